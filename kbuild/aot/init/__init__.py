"""A manifest written from Triton source, which is read and not executed: what `kbuild init` does."""
