"""The compiler: Triton-language kernels to cubins.  `driver.compile` is its whole face."""
