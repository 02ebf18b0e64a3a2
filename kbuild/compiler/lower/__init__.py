"""From ttgir to LLVM text: one handler per operation."""

from kbuild.compiler.lower.collective import convert_layout, gather, histogram, reduce, scan
from kbuild.compiler.lower.core import (
    control,
    debug,
    elementwise,
    map_elementwise,
    opaque_copy,
    shapes,
    warp_specialize,
)
from kbuild.compiler.lower.core.lowering import unhandled_ops
from kbuild.compiler.lower.core.module import lower_module
from kbuild.compiler.lower.math import trigonometry
from kbuild.compiler.lower.memory import (
    async_copy,
    atomics,
    global_memory,
    mbarriers,
    own_maps,
    pointers,
    shared_memory,
    tma,
)
from kbuild.compiler.lower.mma import dot, local_dot, wgmma

__all__ = [
    "async_copy",
    "atomics",
    "control",
    "convert_layout",
    "debug",
    "dot",
    "elementwise",
    "gather",
    "global_memory",
    "histogram",
    "local_dot",
    "lower_module",
    "map_elementwise",
    "mbarriers",
    "opaque_copy",
    "own_maps",
    "pointers",
    "reduce",
    "scan",
    "shapes",
    "shared_memory",
    "tma",
    "trigonometry",
    "unhandled_ops",
    "warp_specialize",
    "wgmma",
]
