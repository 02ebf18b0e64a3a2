"""The configurations of a kernel, as a manifest or the decorators of its source give them."""
