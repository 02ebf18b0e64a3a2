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
    map_elementwise,
    math,
    memory,
    program,
    reduce,
    shape,
)
from kbuild.compiler.semantic.gluon import (
    async_copy,
    facts,
    mbarrier,
    mma,
    shared,
    tensors,
    tma,
    warp_specialize,
)
from kbuild.compiler.semantic.registry import MEMBERS, TABLES, Builtin, builtin

__all__ = [
    "MEMBERS",
    "TABLES",
    "Builtin",
    "arith",
    "async_copy",
    "atomic",
    "builtin",
    "cast",
    "debug",
    "descriptor",
    "dot",
    "facts",
    "libdevice",
    "map_elementwise",
    "math",
    "mbarrier",
    "memory",
    "mma",
    "program",
    "reduce",
    "shape",
    "shared",
    "tensors",
    "tma",
    "warp_specialize",
]
