"""Where kernels come from: files that are read without being imported, and live functions."""
