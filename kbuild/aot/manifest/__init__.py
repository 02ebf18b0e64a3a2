"""What a project asks for: the manifest `kernels.toml`, checked, and expanded to variants."""
