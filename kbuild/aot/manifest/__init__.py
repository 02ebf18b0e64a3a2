"""The manifest `kernels.toml`, checked and expanded to variants."""
