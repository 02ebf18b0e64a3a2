"""Takes block pointers (`tl.make_block_ptr`, `tl.advance`) apart into a base, a shape, strides and offsets;
loads and stores through them become loads and stores through tensors of pointers, with masks where boundaries
are checked.

    Before:  %p: !tt.ptr<tensor<64xf32>> = tt.make_tensor_ptr %x, shape=[%n], strides=[%s], offsets=[%o] {order = [0]}
             %v: tensor<64xf32> = tt.load %p {boundary_check = [0], padding = "zero"}
    After:   %0: tensor<64xi32> = tt.make_range {start = 0, end = 64}
             %1: tensor<64xi64> = arith.extsi %0
             %2: tensor<64xi64> = arith.addi %1, splat(extsi %o)
             %3: tensor<64x!tt.ptr<f32>> = tt.addptr splat(%x), (%2 * splat(%s))
             %m: tensor<64xi1> = %2 >= 0 and %2 < splat(%n)
             %v: tensor<64xf32> = tt.load %3, mask=%m, other=zeros

Loops carry all the parts; canonicalize then drops those that do not change, which leaves the offsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.types import I1, I32, I64, PointerType, TensorType, Type
from kbuild.compiler.ops.elementwise import AddI, AndI, CmpI, Constant, Select
from kbuild.compiler.ops.tensor import Advance, Load, MakeTensorPtr, Splat, Store
from kbuild.compiler.transforms._support.blocks import addresses, coordinates, extended, spread
from kbuild.compiler.transforms._support.splitting import Splitting
from kbuild.targets import Target


@tensor_pass
def rewrite_tensor_pointer(module: Module, target: Target) -> None:
    for function in module.functions.values():
        if any(isinstance(op, MakeTensorPtr) for op in function.body.walk()):
            _BlockPointers().visit(function.body)
            erase_dead(function.body)


class BlockPointerParts(NamedTuple):
    """The parts of a block pointer: base; shape and strides in i64; offsets in i32 or i64."""

    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]

    @property
    def parts(self) -> tuple[Value, ...]:
        return (self.base, *self.shape, *self.strides, *self.offsets)

    @staticmethod
    def of(parts: Sequence[Value]) -> BlockPointerParts:
        rank = (len(parts) - 1) // 3
        return BlockPointerParts(
            parts[0], *(tuple(parts[1 + rank * i : 1 + rank * (i + 1)]) for i in range(3))
        )


def tile_of(type_: Type) -> TensorType | None:
    """The tile that a block pointer points at; None for other types."""
    return type_.pointee if isinstance(type_, PointerType) and isinstance(type_.pointee, TensorType) else None


class _BlockPointers(Splitting):
    def part_types(self, value: Value) -> Sequence[Type] | None:
        tile = tile_of(value.type)
        return (
            None
            if tile is None
            else [PointerType(tile.element), *[I64] * (2 * tile.rank), *[I32] * tile.rank]
        )

    def operation(self, op: Op) -> None:
        build = Builder.before(op)
        match op:
            case MakeTensorPtr():
                shape, strides = ([extended(build, v) for v in values] for values in (op.shape, op.strides))
                self.parts[op.results[0]] = BlockPointerParts(
                    op.base, tuple(shape), tuple(strides), op.offsets
                ).parts
            case Advance():
                pointer = BlockPointerParts.of(self.parts[op.ptr])
                moved = [build.add(AddI(at, by)).result for at, by in zip(pointer.offsets, op.offsets)]
                self.parts[op.results[0]] = BlockPointerParts(
                    pointer.base, pointer.shape, pointer.strides, tuple(moved)
                ).parts
            case Select() if op.true_value in self.parts:
                self.parts[op.result] = self.chosen_parts(op)
            case Load() if op.ptr in self.parts:
                self._load(op, build)
            case Store() if op.ptr in self.parts:
                self._store(op, build)

    def _load(self, op: Load, build: Builder) -> None:
        pointers, mask = self._access(op, build)
        other = None
        if mask is not None and op.padding:
            filling = 0 if op.padding == "zero" else math.nan
            other = build.add(Constant.of(filling, op.result.type)).result
        op.replace_by(build.add(Load(pointers, mask, other, (), "", op.cache, op.eviction, op.volatile)))

    def _store(self, op: Store, build: Builder) -> None:
        pointers, mask = self._access(op, build)
        build.add(Store(pointers, op.value, mask, (), op.cache, op.eviction))
        op.erase()

    def _access(self, op: Load | Store, build: Builder) -> tuple[Value, Value | None]:
        """The pointers of a tile's elements, and which of them lie inside the tensor."""
        tile = tile_of(op.ptr.type)
        assert tile is not None
        pointer = BlockPointerParts.of(self.parts[op.ptr])
        indices = _indices(build, tile, pointer)
        mask = _mask(build, tile, pointer, indices, op.boundary_check)
        return addresses(build, tile, pointer.base, pointer.strides, indices), mask


def _indices(build: Builder, tile: TensorType, pointer: BlockPointerParts) -> list[Value]:
    """The tile's coordinates in the tensor along each axis, in i64."""
    return [
        coordinates(build, tile, axis, extended(build, offset)) for axis, offset in enumerate(pointer.offsets)
    ]


def _mask(
    build: Builder,
    tile: TensorType,
    pointer: BlockPointerParts,
    indices: Sequence[Value],
    axes: Sequence[int],
) -> Value | None:
    """Which elements lie inside the tensor along `axes`; None when no axis is checked."""
    total: Value | None = None
    for axis in axes:
        index = indices[axis]
        zero = build.add(Constant.of(0, index.type)).result
        size = build.add(Splat(pointer.shape[axis], index.type)).result
        low, high = build.add(CmpI(index, zero, "sge")).result, build.add(CmpI(index, size, "slt")).result
        inside = spread(build, build.add(AndI(low, high)).result, tile, I1)
        total = inside if total is None else build.add(AndI(total, inside)).result
    return total
