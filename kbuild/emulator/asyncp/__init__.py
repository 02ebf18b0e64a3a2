"""Memory operations that land later than their instruction: copies, tensor maps, transaction barriers."""
