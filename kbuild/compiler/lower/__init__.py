"""From ttgir to LLVM text: one handler per operation."""

from kbuild.compiler.lower import (
    async_copy,
    atomics,
    control,
    convert_layout,
    debug,
    elementwise,
    gather,
    histogram,
    memory,
    mma,
    pointers,
    reduce,
    scan,
    shapes,
    shared,
    trigonometry,
    wgmma,
)
from kbuild.compiler.lower.lowering import lower_module, unhandled_ops

__all__ = [
    "async_copy",
    "atomics",
    "control",
    "convert_layout",
    "debug",
    "elementwise",
    "gather",
    "histogram",
    "lower_module",
    "memory",
    "mma",
    "pointers",
    "reduce",
    "scan",
    "shapes",
    "shared",
    "trigonometry",
    "unhandled_ops",
    "wgmma",
]
