"""The layouts of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from kbuild.compiler.layout.gluon.base import (
    Bases,
    DistributedLayout,
    Numbers,
    Shape,
    check_bases,
    check_numbers,
    text,
)
from kbuild.compiler.layout.linear import IN_DIMS, LinearLayout
from kbuild.compiler.layout.named import blocked, dot_operand, mma_accumulator

THREADS = 32
"""Threads of a warp."""


@dataclass(frozen=True, repr=False)
class AutoLayout(DistributedLayout):
    """Found out from other operands and the users of the value."""

    kind = "auto"


@dataclass(frozen=True, repr=False)
class CoalescedLayout(DistributedLayout):
    """That in which neighbouring threads access neighbouring bytes of global memory."""

    kind = "coalesced"


@dataclass(frozen=True, repr=False)
class BlockedLayout(DistributedLayout):
    """Each thread holds a box, boxes fill a warp, warps the program; `order` lists dimensions, the fastest
    first."""

    size_per_thread: Numbers
    threads_per_warp: Numbers
    warps_per_cta: Numbers
    order: Numbers
    cga_layout: Bases = ()

    def check(self) -> None:
        for name in ("size_per_thread", "threads_per_warp", "warps_per_cta", "order"):
            check_numbers(name, getattr(self, name), len(self.order), name != "order")
        if sorted(self.order) != list(range(self.rank)):
            raise ValueError(f"order {list(self.order)} is not a permutation of 0 … {self.rank - 1}")
        if prod(self.threads_per_warp) != THREADS:
            raise ValueError(
                f"threads_per_warp {list(self.threads_per_warp)} has {prod(self.threads_per_warp)} threads, a "
                f"warp has {THREADS}"
            )

    @property
    def rank(self) -> int:
        return len(self.order)

    @property
    def warps(self) -> int:
        return prod(self.warps_per_cta)

    def whole(self, shape: Shape) -> LinearLayout:
        return blocked(shape, self.size_per_thread, self.threads_per_warp, self.warps_per_cta, self.order)


@dataclass(frozen=True, repr=False)
class SliceLayout(DistributedLayout):
    """What is left of `parent` without its dimension `dim`: the layout of a reduction's result, and of what
    `expand_dims` gives the parent's layout."""

    dim: int
    parent: Any

    def check(self) -> None:
        if not isinstance(self.parent, DistributedLayout):
            raise ValueError(f"the parent of a slice is a layout of tensors, not {self.parent!s}")
        if isinstance(self.parent, AutoLayout | CoalescedLayout):
            raise ValueError(f"{type(self.parent).__name__} has no dimensions to be sliced: use it itself")
        if not isinstance(self.dim, int) or not 0 <= self.dim < self.parent.rank:
            raise ValueError(f"dim is {self.dim}, {self.parent} has dimensions 0 to {self.parent.rank - 1}")

    @property
    def rank(self) -> int:
        return self.parent.rank - 1

    @property
    def warps(self) -> int | None:
        return self.parent.warps

    def whole(self, shape: Shape) -> LinearLayout:
        whole = self.parent.linear((*shape[: self.dim], 1, *shape[self.dim :]))
        return whole.drop(self.dim, compress=True)


@dataclass(frozen=True, repr=False)
class DistributedLinearLayout(DistributedLayout):
    """A linear layout by its bases: for each bit of register, lane and warp, the coordinates that it adds."""

    reg_bases: Bases
    lane_bases: Bases
    warp_bases: Bases
    block_bases: Bases
    shape: Numbers

    def check(self) -> None:
        if self.block_bases:
            raise ValueError("block_bases are for tensors of several programs; a tensor belongs to one here")
        check_numbers("shape", self.shape, self.rank, True)
        for name in ("reg_bases", "lane_bases", "warp_bases"):
            check_bases(name, getattr(self, name), self.shape)
        if len(self.lane_bases) != 5:
            raise ValueError(
                f"lane_bases has {len(self.lane_bases)} bases, the {THREADS} lanes of a warp have 5"
            )
        if not self.own.is_surjective():
            raise ValueError(f"the bases do not reach all elements of a tensor of shape {list(self.shape)}")

    @staticmethod
    def of(layout: LinearLayout) -> DistributedLinearLayout:
        """A linear layout in these words."""
        register, lane, warp, _ = (
            tuple(layout.unflatten(basis) for basis in layout.bases_of(dim)) for dim in IN_DIMS
        )
        return DistributedLinearLayout(register, lane, warp, (), layout.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def warps(self) -> int:
        return 1 << len(self.warp_bases)

    @property
    def own(self) -> LinearLayout:
        """That of a tensor of its own shape."""
        return LinearLayout.make(
            self.shape, register=self.reg_bases, lane=self.lane_bases, warp=self.warp_bases
        )

    def whole(self, shape: Shape) -> LinearLayout:
        return _fitted(self.own, shape)


@dataclass(frozen=True, repr=False)
class NVMMADistributedLayout(DistributedLayout):
    """The accumulator of tensor cores: version 2 is `mma.sync`, version 3 `wgmma`."""

    version: Numbers
    warps_per_cta: Numbers
    instr_shape: Numbers
    cga_layout: Bases = ()

    def check(self) -> None:
        if self.version[:1] not in ((2,), (3,)) or len(self.version) != 2:
            raise ValueError(f"version is {text(self.version)}; it is [2, 0] for mma.sync, [3, 0] for wgmma")
        check_numbers("warps_per_cta", self.warps_per_cta, self.rank, True)
        least = 2 if self.version[0] == 2 else 3
        if len(self.instr_shape) < least:
            raise ValueError(
                f"instr_shape {list(self.instr_shape)} has {len(self.instr_shape)} numbers; it is [16, 8] for "
                "mma.sync, [16, n, k] for wgmma"
            )
        if self.version[0] == 3 and self.warps_per_cta[0] % 4:
            raise ValueError(
                f"warps_per_cta {list(self.warps_per_cta)}: wgmma takes 4 warps along M, or 8, …"
            )

    @property
    def rank(self) -> int:
        return len(self.warps_per_cta)

    @property
    def warps(self) -> int:
        return prod(self.warps_per_cta)

    def whole(self, shape: Shape) -> LinearLayout:
        rows, columns = self.instr_shape[-2:] if self.version[0] == 2 else self.instr_shape[:2]
        return mma_accumulator(shape, self.warps_per_cta, (rows, columns), self.rows_first)

    @property
    def rows_first(self) -> bool:
        """Whether warps are numbered along M first; those of `mma.sync` are along N first."""
        return self.version[0] != 2


@dataclass(frozen=True, repr=False)
class DotOperandLayout(DistributedLayout):
    """A (`operand_index` 0) or B (1) of a dot whose result has the layout `parent`; `k_width` elements along K
    lie in one register."""

    operand_index: int
    parent: Any
    k_width: int

    def check(self) -> None:
        if self.operand_index not in (0, 1):
            raise ValueError(f"operand_index is {self.operand_index}; it is 0 for A, 1 for B")
        if not isinstance(self.parent, NVMMADistributedLayout | BlockedLayout):
            raise ValueError(
                f"the parent of a dot's operand is an NVMMADistributedLayout or a BlockedLayout, not {self.parent!s}"
            )

    @property
    def rank(self) -> int:
        return self.parent.rank

    @property
    def warps(self) -> int | None:
        return self.parent.warps

    def whole(self, shape: Shape) -> LinearLayout:
        parent = self.parent
        if isinstance(parent, BlockedLayout):
            axis = len(shape) - 1 - self.operand_index
            sizes = (*parent.size_per_thread[:axis], shape[axis], *parent.size_per_thread[axis + 1 :])
            return blocked(shape, sizes, parent.threads_per_warp, parent.warps_per_cta, parent.order)
        return dot_operand(
            shape, parent.warps_per_cta, self.operand_index, self.k_width, rows_first=parent.rows_first
        )


def _fitted(layout: LinearLayout, shape: Shape) -> LinearLayout:
    """A layout for a tensor of another shape: what lies outside becomes copies, what is missing comes in further
    registers, the last dimension first."""
    if layout.shape == shape:
        return layout
    bases = {
        dim: [tuple(c % size for c, size in zip(layout.unflatten(basis), shape)) for basis in found]
        for dim, found in layout.bases
    }
    for axis in reversed(range(len(shape))):
        size = layout.shape[axis]
        while size < shape[axis]:
            bases["register"].append(tuple(size if other == axis else 0 for other in range(len(shape))))
            size *= 2
    return LinearLayout.make(shape, **{dim: tuple(found) for dim, found in bases.items()})
