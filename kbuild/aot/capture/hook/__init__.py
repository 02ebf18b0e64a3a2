"""What runs within a captured process: it needs the standard library alone, and Triton 3.2 to 3.9."""
