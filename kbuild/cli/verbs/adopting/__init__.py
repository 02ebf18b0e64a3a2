"""The verbs that take over a library which launches kernels through Triton's JIT."""
