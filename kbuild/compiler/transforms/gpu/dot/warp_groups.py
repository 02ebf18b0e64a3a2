"""Dots by warpgroups (wgmma): which instruction, which warps, and where the operands lie.

    %d = tt.dot %a, %b, %c                %1 = ttg.local_alloc src=%a,   %2 = ttg.local_alloc src=%b    (right after %a, %b)
                                          %d = ttng.warp_group_dot %1, %2, %c' {atom = "m64n256k16.f16"}

Tiles of shared memory are contiguous along the axis along which the operand was loaded, and a transpose
becomes another view of them.  A left operand that was computed in registers, next to the dot, stays
there.

Sums over a loop that have fewer rows than a warpgroup needs, or whose B the instruction cannot read, are
computed by the transposed dot (`swapped`): bᵀ is its left operand, in registers where its order in memory is
the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import F32, I32, IntType, MemDescType, TensorType, bit_width
from kbuild.compiler.layout import LinearLayout, dot_operand, in_pairs, wgmma_accumulator, wgmma_shared
from kbuild.compiler.ops.control import For, If
from kbuild.compiler.ops.gpu import LocalAlloc, MemDescTrans
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Dot, Join, Load, Reshape, Trans
from kbuild.compiler.transforms._support.layout_flow import (
    converted,
    held_layout,
    minor_axis,
    tensor_type,
    without_conversions,
)
from kbuild.targets import Target
from kbuild.targets.wgmma import GROUP_ROWS, GROUP_WARPS, MAX_SWIZZLE_BYTES, STEP_BYTES, WgmmaAtom

WORD_BITS, LANES = 32, 32


@dataclass(frozen=True)
class WarpGroups:
    """How warpgroups share a dot."""

    atom: WgmmaAtom
    warps: tuple[int, int]
    """Along M, a multiple of four, and along N."""
    swapped: bool = False
    """Whether they compute the transposed dot, and the warps are along N and M."""
    stored: bool = False
    """Whether the threads store B, of 32-bit elements, contiguous along k, as the instruction requires."""


def choose_warp_groups(
    target: Target, a: TensorType, b: TensorType, accumulator: TensorType, num_warps: int, precision: str
) -> WarpGroups | None:
    """The widest instruction for a dot; None where none fits.  Warps go along M as far as there are 64
    rows for each four of them, then along N."""
    m, n = accumulator.shape[-2:]
    if not target.has("wgmma") or num_warps % GROUP_WARPS or accumulator.rank != 2 or m < GROUP_ROWS:
        return None
    is_part = precision not in ("tf32", "ieee")  # See `split_dots`: it suits mma.sync.
    if is_part or (a.element == F32 and precision != "tf32"):
        return None
    warps_m, warps_n = GROUP_WARPS, 1
    while warps_m * warps_n < num_warps:
        if m * GROUP_WARPS > GROUP_ROWS * warps_m:
            warps_m *= 2
        else:
            warps_n *= 2
    wide = I32 if isinstance(accumulator.element, IntType) else F32
    wanted = str(a.element), str(b.element), str(wide)
    for atom in target.wgmma_atoms:
        if (atom.a, atom.b, atom.accumulator) == wanted and atom.n * warps_n <= n and atom.k <= a.shape[1]:
            return WarpGroups(atom, (warps_m, warps_n))
    return None


class WarpGroupDots:
    """Builds dots of warpgroups; two that read the same operand share its tile."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.tiles: dict[tuple[Value, LinearLayout], Value] = {}

    def lower(
        self, builder: Builder, dot: Dot, operands: tuple[Value, Value], c: Value, groups: WarpGroups
    ) -> Value:
        """a·b + c in the accumulator's layout, inserted where `builder` is; `operands` are without
        conversions."""
        a, b = operands
        if groups.swapped:
            return self.lower_swapped(builder, dot, operands, c, groups)
        c = converted(builder, c, wgmma_accumulator(tensor_type(c).shape, groups.warps, groups.atom.n))
        in_registers = stays_in_registers(a, dot, groups, self.target)
        if groups.stored:
            in_registers |= operand_tile(a, 0, groups.atom) is None
            b = self.stored(builder, b, in_registers)
        else:
            b = self.shared(builder, b, 1, groups.atom)
        if in_registers:
            width = 2 if groups.stored else groups.atom.k_width
            a = converted(builder, a, dot_operand(tensor_type(a).shape, groups.warps, 0, width))
        else:
            a = self.shared(builder, a, 0, groups.atom)
        new = WarpGroupDot(a, b, c, groups.atom.name, False, dot.input_precision, dot.max_num_imprecise_acc)
        return builder.add(new, dot.result.name).result

    def lower_swapped(
        self, builder: Builder, dot: Dot, operands: tuple[Value, Value], c: Value, groups: WarpGroups
    ) -> Value:
        """The same by the transposed dot, in the transposed layouts."""
        a, b = operands
        rows, columns = tensor_type(c).shape
        c = converted(
            builder, c, wgmma_accumulator((columns, rows), groups.warps, groups.atom.n).transpose((1, 0))
        )
        if operand_tile(b, 1, groups.atom, True) is not None:
            b = self.shared(builder, b, 1, groups.atom, True)
        else:
            depth = tensor_type(b).shape[0]
            b = converted(
                builder,
                b,
                dot_operand((columns, depth), groups.warps, 0, groups.atom.k_width).transpose((1, 0)),
            )
        a = self.shared(builder, a, 0, groups.atom, True)
        new = WarpGroupDot(
            a, b, c, groups.atom.name, False, dot.input_precision, dot.max_num_imprecise_acc, True
        )
        return builder.add(new, dot.result.name).result

    def shared(
        self, builder: Builder, value: Value, index: int, atom: WgmmaAtom, swapped: bool = False
    ) -> Value:
        """An operand in shared memory, as the instruction reads it."""
        layout = operand_tile(value, index, atom, swapped)
        assert layout is not None, "the order was checked when the instruction was chosen"
        return self.tile_as(builder, value, layout)

    def stored(self, builder: Builder, b: Value, paired: bool) -> Value:
        """B in shared memory contiguous along k, whichever way it comes.  Where A is in registers both are `in_pairs`
        along k: as the threads hold what they compute, and load 16 bits for 32."""
        layout = _along_k(tensor_type(b).shape, bit_width(b.type))
        return self.tile_as(builder, b, in_pairs(layout, 0) if paired else layout)

    def tile_as(self, builder: Builder, value: Value, layout: LinearLayout) -> Value:
        """A value in shared memory in a layout; a transpose is another view of what it transposes."""
        source, order = behind_transpose(value)
        if order is None:
            return self.tile(source, layout)
        tile = self.tile(source, layout.transpose([order.index(axis) for axis in range(len(order))]))
        return builder.add(MemDescTrans(tile, order)).result

    def tile(self, source: Value, layout: LinearLayout) -> Value:
        key = source, layout
        if key not in self.tiles:
            type_ = tensor_type(source)
            self.tiles[key] = (
                Builder.after_value(source)
                .add(LocalAlloc(MemDescType(type_.shape, type_.element, layout), source), source.name)
                .result
            )
        return self.tiles[key]


def operand_tile(value: Value, index: int, atom: WgmmaAtom, swapped: bool = False) -> LinearLayout | None:
    """The layout in shared memory of A (index 0) or B (index 1); None where the instruction cannot read one
    that is contiguous along the axis along which the operand comes."""
    source, order = behind_transpose(value)
    minor = _loaded_minor_axis(source) if atom.any_order else None
    if minor is None:
        minor = minor_axis(held_layout(source))
    contiguous = minor if order is None else order.index(minor)
    shape, bits, k_axis = tensor_type(value).shape, bit_width(value.type), 1 - index
    width = shape[k_axis]
    if contiguous != k_axis:
        if not atom.any_order:
            return None
        width = GROUP_ROWS if (index == 0) != swapped else atom.n
    swizzle_bytes = min(MAX_SWIZZLE_BYTES, width * bits // 8)
    return wgmma_shared(shape, bits, swizzle_bytes, contiguous == 0) if swizzle_bytes >= STEP_BYTES else None


def must_be_stored(b: Value, groups: WarpGroups) -> bool:
    """Whether a right operand of 32-bit elements has to be brought into its order by the threads: it is computed, or loaded
    in the other one."""
    if groups.atom.a != str(F32):
        return False
    source, _ = behind_transpose(b)
    return not isinstance(without_conversions(source).op, Load) or operand_tile(b, 1, groups.atom) is None


def _along_k(shape: tuple[int, ...], bits: int) -> LinearLayout:
    """B contiguous along k, in the widest swizzle."""
    return wgmma_shared(shape, bits, min(MAX_SWIZZLE_BYTES, shape[0] * bits // 8), True)


def _loaded_minor_axis(value: Value) -> int | None:
    """The axis along which a computed operand is contiguous, as what it is computed from was loaded: it will have the
    layout of that load, where it still has the default one.  None where nothing of its elements was loaded."""
    work, seen = [(value, tuple(range(tensor_type(value).rank)))], set[Value]()
    while work:
        source, axes = work.pop()  # Along the operand's axes lie these of the value that it is computed from.
        source = without_conversions(source)
        if source in seen:
            continue
        seen.add(source)
        op = source.op
        if isinstance(op, Load):
            return axes[minor_axis(held_layout(source))]
        if isinstance(op, Trans):
            work.append((op.src, tuple(axes[op.order.index(axis)] for axis in range(len(axes)))))
        elif isinstance(op, Reshape):
            work.append((op.src, tuple(axes[axis] for axis in _axes_after(op))))
        elif isinstance(op, Join):
            work.append((op.lhs, axes[:-1]))
        elif isinstance(op, If):  # A branch may have zeros instead.
            work += [(block.terminator.operands[source.index], axes) for block in op.regions]
        elif op is not None and op.has(Trait.ELEMENTWISE):
            operands = (each for each in op.operands if isinstance(each.type, TensorType))
            shape = tensor_type(source).shape
            work += [(each, axes) for each in operands if tensor_type(each).shape == shape]
    return None


def _axes_after(op: Reshape) -> Iterator[int]:
    """For each axis before a reshape, the one along which its neighbours lie afterwards."""
    before, after = tensor_type(op.src).shape, tensor_type(op.result).shape
    for axis in range(len(before)):
        distance = prod(before[axis + 1 :])
        yield next((place for place in range(len(after)) if prod(after[place + 1 :]) <= distance), 0)


def stays_in_registers(a: Value, dot: Dot, groups: WarpGroups, target: Target) -> bool:
    """Whether a left operand is loaded once before the dot's loop and takes few registers, or is computed next to its dot,
    from registers: from the result of another, or where the loop's copies leave in shared memory what it is computed
    from.  What a thread loads and computes outside of loops it stores, and the instruction reads it from there."""
    op = without_conversions(a).op
    if op is None:
        return False
    if isinstance(op, Load):
        loop, type_ = dot.parent_op, tensor_type(a)
        words = type_.shape[0] * type_.shape[1] * bit_width(type_) // (WORD_BITS * LANES * groups.warps[0])
        return (
            op.parent is not dot.parent
            and isinstance(loop, For)
            and not loop.warp_specialize
            and words <= target.thresholds.invariant_operand_registers
        )
    if op.parent is not dot.parent or not (op.has(Trait.ELEMENTWISE) or isinstance(op, Dot | WarpGroupDot)):
        return False
    can_be_stored = groups.atom.any_order and operand_tile(a, 0, groups.atom) is not None
    return isinstance(dot.parent_op, For) or not can_be_stored or _is_made_by_dot(op)


def _is_made_by_dot(op: Op) -> bool:
    """Whether the result of a dot takes part in what an operation computes element by element."""
    work, seen = [op], {op}
    for maker in work:
        if isinstance(maker, Dot | WarpGroupDot):
            return True
        if maker.has(Trait.ELEMENTWISE):
            sources = (without_conversions(operand).op for operand in maker.operands)
            fresh = [source for source in sources if source is not None and source not in seen]
            seen.update(fresh)
            work += fresh
    return False


def behind_transpose(value: Value) -> tuple[Value, tuple[int, ...] | None]:
    """The value under a transpose (conversions aside), with the order of its axes, and otherwise the value
    itself."""
    inner = without_conversions(value)
    return (
        (without_conversions(inner.op.src), inner.op.order) if isinstance(inner.op, Trans) else (value, None)
    )
