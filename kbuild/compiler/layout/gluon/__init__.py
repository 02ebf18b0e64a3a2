"""The layouts of Gluon by its own names: what an author writes, and which linear layout that means.

The classes have the fields of Triton's, and compare field by field; sequences are kept as tuples.  A wrong
argument raises ValueError.  `linear(shape)` is the linear layout of a tensor or tile of that shape; registers
that only repeat others of the same thread are left out, so that a layout means the same in whichever way it was
derived.
"""

from __future__ import annotations

from kbuild.compiler.layout.gluon.base import DistributedLayout, Layout, SharedLayout
from kbuild.compiler.layout.gluon.distributed import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    SliceLayout,
)
from kbuild.compiler.layout.gluon.shared import (
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)

__all__ = [
    "PUBLIC",
    "AutoLayout",
    "BlockedLayout",
    "CoalescedLayout",
    "DistributedLayout",
    "DistributedLinearLayout",
    "DotOperandLayout",
    "Layout",
    "NVMMADistributedLayout",
    "NVMMASharedLayout",
    "PaddedSharedLayout",
    "SharedLayout",
    "SharedLinearLayout",
    "SliceLayout",
    "SwizzledSharedLayout",
]

PUBLIC: dict[str, type[Layout]] = {
    cls.__name__: cls
    for cls in (
        AutoLayout,
        BlockedLayout,
        CoalescedLayout,
        DistributedLinearLayout,
        DotOperandLayout,
        NVMMADistributedLayout,
        NVMMASharedLayout,
        PaddedSharedLayout,
        SharedLinearLayout,
        SliceLayout,
        SwizzledSharedLayout,
    )
}
"""The layouts by their names in `gl`."""
