"""The layouts of Gluon by its own names: what an author writes, and which linear layout that means.

The classes have the fields of Triton's, and compare field by field; sequences are kept as tuples.  A wrong
argument raises ValueError.  `linear(shape)` is the linear layout of a tensor or tile of that shape; registers
that only repeat others of the same thread are left out, so that a layout means the same in whichever way it was
derived.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import Any

from kbuild.compiler.layout.linear import IN_DIMS, LinearLayout, axis_bits
from kbuild.compiler.layout.named import blocked, dot_operand, mma_accumulator, swizzled

Numbers = tuple[int, ...]
THREADS = 32
"""Threads of a warp."""
BOX = 256
"""Elements along an axis that one instruction of TMA may copy."""


class Layout:
    """Any layout that an author writes."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, _frozen(getattr(self, field.name)))
        if getattr(self, "cga_layout", ()):
            raise ValueError("cga_layout is for tensors of several programs; a tensor belongs to one here")
        self.check()

    def check(self) -> None:
        """Raise ValueError where the fields contradict each other."""

    @property
    def rank(self) -> int:
        """Dimensions of the tensors that have it."""
        raise NotImplementedError

    def __str__(self) -> str:
        shown = [
            f"{field.name}={_text(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.name != "cga_layout"
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    __repr__ = __str__


class DistributedLayout(Layout):
    """A layout of tensors: which register of which thread holds what."""

    def linear(self, shape: Numbers) -> LinearLayout:
        """The linear layout of a tensor of a shape, without registers that repeat others of the same thread."""
        return self.whole(shape).remove_zero_bases("register")

    def whole(self, shape: Numbers) -> LinearLayout:
        """The same with such registers."""
        raise NotImplementedError

    @property
    def warps(self) -> int | None:
        """Warps that it is for; None where it fits any."""
        return None


class SharedLayout(Layout):
    """A layout of tiles in shared memory."""

    def linear(self, shape: Numbers) -> LinearLayout:
        """The linear layout of a tile of a shape."""
        raise NotImplementedError


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
    cga_layout: tuple[Numbers, ...] = ()

    def check(self) -> None:
        for name in ("size_per_thread", "threads_per_warp", "warps_per_cta", "order"):
            _check_numbers(name, getattr(self, name), len(self.order), name != "order")
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

    def whole(self, shape: Numbers) -> LinearLayout:
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

    def whole(self, shape: Numbers) -> LinearLayout:
        whole = self.parent.linear((*shape[: self.dim], 1, *shape[self.dim :]))
        return whole.drop(self.dim, compress=True)


@dataclass(frozen=True, repr=False)
class DistributedLinearLayout(DistributedLayout):
    """A linear layout by its bases: for each bit of register, lane and warp, the coordinates that it adds."""

    reg_bases: tuple[Numbers, ...]
    lane_bases: tuple[Numbers, ...]
    warp_bases: tuple[Numbers, ...]
    block_bases: tuple[Numbers, ...]
    shape: Numbers

    def check(self) -> None:
        if self.block_bases:
            raise ValueError("block_bases are for tensors of several programs; a tensor belongs to one here")
        _check_numbers("shape", self.shape, self.rank, True)
        for name in ("reg_bases", "lane_bases", "warp_bases"):
            _check_bases(name, getattr(self, name), self.shape)
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

    def whole(self, shape: Numbers) -> LinearLayout:
        return _fitted(self.own, shape)


@dataclass(frozen=True, repr=False)
class NVMMADistributedLayout(DistributedLayout):
    """The accumulator of tensor cores: version 2 is `mma.sync`, version 3 `wgmma`."""

    version: Numbers
    warps_per_cta: Numbers
    instr_shape: Numbers
    cga_layout: tuple[Numbers, ...] = ()

    def check(self) -> None:
        if self.version[:1] not in ((2,), (3,)) or len(self.version) != 2:
            raise ValueError(f"version is {_text(self.version)}; it is [2, 0] for mma.sync, [3, 0] for wgmma")
        _check_numbers("warps_per_cta", self.warps_per_cta, self.rank, True)
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

    def whole(self, shape: Numbers) -> LinearLayout:
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

    def whole(self, shape: Numbers) -> LinearLayout:
        parent = self.parent
        if isinstance(parent, BlockedLayout):
            axis = len(shape) - 1 - self.operand_index
            sizes = (*parent.size_per_thread[:axis], shape[axis], *parent.size_per_thread[axis + 1 :])
            return blocked(shape, sizes, parent.threads_per_warp, parent.warps_per_cta, parent.order)
        return dot_operand(
            shape, parent.warps_per_cta, self.operand_index, self.k_width, rows_first=parent.rows_first
        )


@dataclass(frozen=True, repr=False)
class NVMMASharedLayout(SharedLayout):
    """A tile as TMA writes it and `wgmma` reads it, in the swizzle of 128, 64, 32 or 0 (none) bytes."""

    swizzle_byte_width: int
    element_bitwidth: int
    rank: int = 2  # type: ignore[assignment]
    transposed: bool = False
    fp4_padded: bool = False
    cga_layout: tuple[Numbers, ...] = ()

    def check(self) -> None:
        if self.swizzle_byte_width not in (0, 32, 64, 128):
            raise ValueError(f"swizzle_byte_width is {self.swizzle_byte_width}; it is 0, 32, 64 or 128")
        if self.element_bitwidth not in (8, 16, 32, 64):
            raise ValueError(f"element_bitwidth is {self.element_bitwidth}; it is 8, 16, 32 or 64")
        if self.fp4_padded:
            raise ValueError("fp4_padded is for tensor cores of sm_100 and newer")

    @staticmethod
    def get_default_for(
        block_shape: Any,
        dtype: Any,
        transposed: bool = False,
        fp4_padded: bool = False,
        cga_layout: Any = None,
    ) -> NVMMASharedLayout:
        """That of the widest swizzle which a block of this shape has room for."""
        shape = tuple(block_shape)
        along = (*shape[1:], *shape[:1]) if transposed else shape
        row, bits = along[-1], dtype.primitive_bitwidth
        swizzle = next((width for width in (128, 64, 32) if row * bits // 8 % width == 0), 0)
        if len(shape) < 2 or prod(along[:-1]) < 8:
            swizzle = 0
        return NVMMASharedLayout(swizzle, bits, len(shape), transposed, fp4_padded, cga_layout or ())

    def linear(self, shape: Numbers) -> LinearLayout:
        if not self.transposed:
            return _as_tma_writes(shape, self.element_bitwidth, self.swizzle_byte_width)
        made = _as_tma_writes((*shape[1:], shape[0]), self.element_bitwidth, self.swizzle_byte_width)
        return made.transpose((len(shape) - 1, *range(len(shape) - 1)))


@dataclass(frozen=True, repr=False)
class SwizzledSharedLayout(SharedLayout):
    """`vec` neighbours along order[0] stay together, in a place that is XORed with the row's phase: rows along
    order[1], of which `per_phase` share one of `max_phase` phases."""

    vec: int
    per_phase: int
    max_phase: int
    order: Numbers
    cga_layout: tuple[Numbers, ...] = ()

    def check(self) -> None:
        _check_numbers("order", self.order, len(self.order), False)
        if sorted(self.order) != list(range(self.rank)):
            raise ValueError(f"order {list(self.order)} is not a permutation of 0 … {self.rank - 1}")
        for name in ("vec", "per_phase", "max_phase"):
            _check_numbers(name, (getattr(self, name),), 1, True)

    @property
    def rank(self) -> int:
        return len(self.order)

    def linear(self, shape: Numbers) -> LinearLayout:
        return swizzled(shape, self.vec, self.per_phase, self.max_phase, self.order)


@dataclass(frozen=True, repr=False)
class SharedLinearLayout(SharedLayout):
    """A tile by its bases: for each bit of the offset, the coordinates that it adds."""

    offset_bases: tuple[Numbers, ...]
    block_bases: tuple[Numbers, ...] = ()
    alignment: int = 16

    def check(self) -> None:
        if self.block_bases:
            raise ValueError("block_bases are for tiles of several programs; a tile belongs to one here")
        if not self.offset_bases or any(len(basis) != self.rank for basis in self.offset_bases):
            raise ValueError("offset_bases are coordinates of one length")

    @staticmethod
    def of(layout: LinearLayout) -> SharedLinearLayout:
        """A linear layout in these words."""
        return SharedLinearLayout(tuple(layout.unflatten(basis) for basis in layout.bases_of("offset")))

    @property
    def rank(self) -> int:
        return len(self.offset_bases[0])

    def linear(self, shape: Numbers) -> LinearLayout:
        _check_bases("offset_bases", self.offset_bases, shape)
        return LinearLayout.make(shape, offset=self.offset_bases)


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
        SharedLinearLayout,
        SliceLayout,
        SwizzledSharedLayout,
    )
}
"""The layouts by their names in `gl`."""


def _as_tma_writes(shape: Numbers, bits: int, swizzle_bytes: int) -> LinearLayout:
    """A tile in the order in which TMA copies it: boxes of up to `BOX` elements along each axis, and along the last
    one as wide as the swizzle.  A box is dense, but for the swizzle, which `wgmma_shared` describes."""
    width = swizzle_bytes * 8 // bits or BOX
    rows = prod(shape[:-1])
    if shape[-1] < width if swizzle_bytes else shape[-1] * bits < 128:
        raise ValueError(
            f"a row has {shape[-1] * bits // 8} bytes, at least {swizzle_bytes or 16} are needed"
        )
    if swizzle_bytes and rows < 8:
        raise ValueError(f"a swizzle needs 8 rows, the tile has {rows}")
    last = len(shape) - 1
    box = [min(size, width if axis == last else BOX) for axis, size in enumerate(shape)]
    inside = [
        bit for axis in reversed(range(len(shape))) for bit in axis_bits(shape, axis)[: _bits(box[axis])]
    ]
    outside = [bit for axis in range(len(shape)) for bit in axis_bits(shape, axis)[_bits(box[axis]) :]]
    bases = [1 << bit for bit in (*inside, *outside)]
    chunk, row = _bits(128 // bits), _bits(1024 // bits)
    for position in range(_bits(swizzle_bytes // 16) if swizzle_bytes else 0):
        bases[row + position] ^= bases[chunk + position]
    return LinearLayout.make(shape, offset=bases)


def _bits(size: int) -> int:
    return size.bit_length() - 1


def _frozen(value: Any) -> Any:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, tuple) else str(value)


def _check_numbers(name: str, values: Any, count: int, powers: bool) -> None:
    if not isinstance(values, tuple) or any(not isinstance(value, int) for value in values):
        raise ValueError(f"{name} is {_text(values)}; it is a list of integers")
    if len(values) != count:
        raise ValueError(
            f"{name} {list(values)} has {len(values)} numbers, the layout has {count} dimensions"
        )
    if powers and any(value < 1 or value & (value - 1) for value in values):
        raise ValueError(
            f"{name} is {_text(values if count > 1 else values[0])}; it must be of powers of two"
        )


def _check_bases(name: str, bases: tuple[Numbers, ...], shape: Numbers) -> None:
    for basis in bases:
        if len(basis) != len(shape):
            raise ValueError(f"{name} has {list(basis)}, the shape {list(shape)} has {len(shape)} dimensions")
        if any(not 0 <= coordinate < size for coordinate, size in zip(basis, shape)):
            raise ValueError(f"{name} has {list(basis)}, which lies outside of the shape {list(shape)}")


def _fitted(layout: LinearLayout, shape: Numbers) -> LinearLayout:
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
