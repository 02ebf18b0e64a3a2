"""Where tensor elements live: linear layouts, the named ones, and how to convert from one to
another."""

from kbuild.compiler.layout.boxes import tma_box
from kbuild.compiler.layout.convert import classify, register_moves, warps_are_apart
from kbuild.compiler.layout.halves import joined_layout, split_layout
from kbuild.compiler.layout.linear import IN_DIMS, SHARED_DIMS, Conversion, LinearLayout, all_sums, axis_bits
from kbuild.compiler.layout.named import (
    blocked,
    coalesced,
    default_blocked,
    dot_operand,
    fma_operand,
    fma_result,
    mma_accumulator,
    slice_of,
    stored_by_warps,
    swizzled,
    thread_grid,
    unswizzled,
    wgmma_accumulator,
    wgmma_mode,
    wgmma_shared,
    widened,
)
from kbuild.compiler.layout.padded import PaddedLayout, gaps_of, moved_up
from kbuild.compiler.layout.scratch import SharedPlan, SharedRound, shared_plan
from kbuild.compiler.layout.shared import (
    LdmatrixPlan,
    SharedAccess,
    Swizzle,
    bank_conflicts,
    best_swizzle,
    conflicts_per_wavefront,
    ldmatrix_fits,
    matrix_swizzle,
    offset_map,
    shared_access,
    total_bytes,
    wavefronts,
)
from kbuild.compiler.layout.show import show
from kbuild.compiler.layout.shuffles import Affine, ShufflePlan, ShuffleRound, shuffle_plan
from kbuild.compiler.layout.text import author_text, describe, parse_layout
from kbuild.compiler.layout.written import PendingLayout, WrittenLayout

__all__ = [
    "IN_DIMS",
    "SHARED_DIMS",
    "Affine",
    "Conversion",
    "LdmatrixPlan",
    "LinearLayout",
    "PaddedLayout",
    "PendingLayout",
    "SharedAccess",
    "SharedPlan",
    "SharedRound",
    "ShufflePlan",
    "ShuffleRound",
    "Swizzle",
    "WrittenLayout",
    "all_sums",
    "author_text",
    "axis_bits",
    "bank_conflicts",
    "best_swizzle",
    "blocked",
    "classify",
    "coalesced",
    "conflicts_per_wavefront",
    "default_blocked",
    "describe",
    "dot_operand",
    "fma_operand",
    "fma_result",
    "gaps_of",
    "joined_layout",
    "ldmatrix_fits",
    "matrix_swizzle",
    "mma_accumulator",
    "moved_up",
    "offset_map",
    "parse_layout",
    "register_moves",
    "shared_access",
    "shared_plan",
    "show",
    "shuffle_plan",
    "slice_of",
    "split_layout",
    "stored_by_warps",
    "swizzled",
    "thread_grid",
    "tma_box",
    "total_bytes",
    "unswizzled",
    "warps_are_apart",
    "wavefronts",
    "wgmma_accumulator",
    "wgmma_mode",
    "wgmma_shared",
    "widened",
]
