"""A library of operations that launches its kernels through Triton's JIT."""

from tiny_ops.elementwise import add, gelu, lerp, scale
from tiny_ops.matrices import matmul, transpose
from tiny_ops.rows import cross_entropy, rms_norm, row_max, softmax

__all__ = [
    "add",
    "cross_entropy",
    "gelu",
    "lerp",
    "matmul",
    "rms_norm",
    "row_max",
    "scale",
    "softmax",
    "transpose",
]
