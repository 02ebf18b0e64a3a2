"""Where tensor elements live: linear layouts, the named ones, and what it takes to change from one to another."""

from kbuild.compiler.layout.linear import IN_DIMS, SHARED_DIMS, Conversion, LinearLayout
from kbuild.compiler.layout.named import (
    blocked,
    coalesced,
    default_blocked,
    dot_operand,
    mma_accumulator,
    slice_of,
    swizzled,
    thread_grid,
    unswizzled,
    wgmma_accumulator,
    wgmma_shared,
)
from kbuild.compiler.layout.show import describe, parse_layout

__all__ = [
    "IN_DIMS",
    "SHARED_DIMS",
    "Conversion",
    "LinearLayout",
    "blocked",
    "coalesced",
    "default_blocked",
    "describe",
    "dot_operand",
    "mma_accumulator",
    "parse_layout",
    "slice_of",
    "swizzled",
    "thread_grid",
    "unswizzled",
    "wgmma_accumulator",
    "wgmma_shared",
]
