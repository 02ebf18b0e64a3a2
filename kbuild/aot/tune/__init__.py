"""Configurations timed on a GPU, and what times them."""
