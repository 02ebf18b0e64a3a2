"""PTX as data: parsed, printed, inlined, and its control flow."""
