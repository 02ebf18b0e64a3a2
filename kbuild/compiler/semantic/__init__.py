"""The functions that kernels may call, `tl.*`, one Python function each, in a table.

Importing this package fills the table.
"""

from kbuild.compiler.semantic import (
    arith,
    atomic,
    cast,
    debug,
    descriptor,
    dot,
    libdevice,
    libdevice_ptx,
    math,
    memory,
    program,
    reduce,
    shape,
)
from kbuild.compiler.semantic.registry import TABLES, Builtin, builtin

__all__ = [
    "TABLES",
    "Builtin",
    "arith",
    "atomic",
    "builtin",
    "cast",
    "debug",
    "descriptor",
    "dot",
    "libdevice",
    "libdevice_ptx",
    "math",
    "memory",
    "program",
    "reduce",
    "shape",
]
