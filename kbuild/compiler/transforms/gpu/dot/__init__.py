"""Passes that map dots to tensor cores and feed them."""
