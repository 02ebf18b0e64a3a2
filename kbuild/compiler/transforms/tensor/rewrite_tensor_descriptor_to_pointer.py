"""Loads, stores and atomics through tensor descriptors become those through tensors of pointers with masks,
for targets without TMA.

    Before:  %d: !tt.tensordesc<tensor<8x64xf16>> = tt.make_tensor_descriptor %x, shape=[%m, %n], strides=[%s, %one]
             %v: tensor<8x64xf16> = tt.descriptor_load %d, indices=[%i, %j]
    After:   %row: tensor<8x1xi32> = expand_dims(splat(%i) + make_range 0 … 8);  %column: tensor<1x64xi32> likewise
             %mask: tensor<8x64xi1> = broadcast(%row <u splat(%m)) and broadcast(%column <u splat(%n))
             %stride: i64 = tt.axis_attributes %s {divisibility = [8]}
             %p: tensor<8x64x!tt.ptr<f16>> = tt.addptr splat(%x), broadcast(%row in i64 * splat(%stride)) + …
             %v: tensor<8x64xf16> = tt.load %p, mask=%mask, other=zeros

Loads, stores and atomics keep the descriptor, where its definition is known: the passes `pipeline` and
`tensor_stores` may have TMA do them.  One unsigned comparison stops negative coordinates too.  The
divisibility of bases and strides that descriptors guarantee becomes hints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.types import I1, I32, I64, DescriptorType, PointerType, TensorType, Type, bit_width
from kbuild.compiler.ops.elementwise import AndI, CmpI, Constant, Select
from kbuild.compiler.ops.tensor import (
    AtomicRMW,
    AxisAttributes,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    ExpandDims,
    Load,
    MakeTensorDescriptor,
    Splat,
    Store,
    gathered_type,
)
from kbuild.compiler.transforms._support.blocks import addresses, coordinates, extended, spread
from kbuild.compiler.transforms._support.splitting import Splitting
from kbuild.targets import Target

ALIGNMENT = 16
"""Bytes that divide a descriptor's base and strides."""


@tensor_pass
def rewrite_tensor_descriptor_to_pointer(module: Module, target: Target) -> None:
    for function in module.functions.values():
        if any(isinstance(op, MakeTensorDescriptor) for op in function.body.walk()):
            _Descriptors(function, target.has("tma")).visit(function.body)
            erase_dead(function.body)


@dataclass(frozen=True)
class Parts:
    """A descriptor taken apart: base, sizes in i32, strides in i64, and an i1, whether NaN lies beyond."""

    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    nan: Value

    @staticmethod
    def of(values: Sequence[Value]) -> Parts:
        rank = (len(values) - 2) // 2
        return Parts(values[0], tuple(values[1 : 1 + rank]), tuple(values[1 + rank : -1]), values[-1])


class _Descriptors(Splitting):
    def __init__(self, func: Func, keep: bool) -> None:
        super().__init__()
        self.func, self.keep = func, keep

    def part_types(self, value: Value) -> Sequence[Type] | None:
        if not isinstance(value.type, DescriptorType):
            return None
        block = value.type.block
        return [PointerType(block.element), *[I32] * block.rank, *[I64] * block.rank, I1]

    def operation(self, op: Op) -> None:
        build = Builder.before(op)
        match op:
            case MakeTensorDescriptor():
                self.parts[op.results[0]] = _parts(build, op, self.func)
            case Select() if op.true_value in self.parts:
                self.parts[op.result] = self.chosen_parts(op)
            case DescriptorLoad():
                block = op.results[0].type
                assert isinstance(block, TensorType)
                parts = Parts.of(self.parts[op.desc])
                pointers, mask = _access(build, block, parts, op.indices)
                load = build.add(Load(pointers, mask, _filling(build, block, parts.nan)))
                self._keep(op, load)
                op.replace_by(load)
            case DescriptorStore():
                assert isinstance(op.src.type, TensorType)
                pointers, mask = _access(build, op.src.type, Parts.of(self.parts[op.desc]), op.indices)
                self._keep(op, build.add(Store(pointers, op.src, mask)))
                op.erase()
            case DescriptorReduce():
                assert isinstance(op.src.type, TensorType)
                pointers, mask = _access(build, op.src.type, Parts.of(self.parts[op.desc]), op.indices)
                self._keep(op, build.add(AtomicRMW(pointers, op.src, op.kind, mask, "relaxed")))
                op.erase()
            case DescriptorGather() | DescriptorScatter():
                self._rows(op, build)

    def _keep(
        self, op: DescriptorLoad | DescriptorStore | DescriptorReduce, access: Load | Store | AtomicRMW
    ) -> None:
        """Record at an access by pointers which descriptor it comes from."""
        if self.keep and isinstance(op.desc.op, MakeTensorDescriptor):
            access.desc, access.indices = op.desc, op.indices

    def _rows(self, op: DescriptorGather | DescriptorScatter, build: Builder) -> None:
        """Rows of a tensor, each by its number."""
        parts = Parts.of(self.parts[op.desc])
        pointers, mask = _row_access(build, gathered_type(op.desc, op.rows), parts, op.rows, op.column)
        if isinstance(op, DescriptorGather):
            block = op.results[0].type
            assert isinstance(block, TensorType)
            op.replace_by(build.add(Load(pointers, mask, _filling(build, block, parts.nan))))
        else:
            build.add(Store(pointers, op.src, mask))
            op.erase()


def _parts(build: Builder, op: MakeTensorDescriptor, func: Func) -> Sequence[Value]:
    """The parts of a descriptor, with the divisibility that it guarantees."""
    assert isinstance(op.type, DescriptorType)
    size = max(bit_width(op.type.block), 8) // 8
    strides = [_divisible(build, stride, max(ALIGNMENT // size, 1), func) for stride in op.strides[:-1]]
    nan = build.add(Constant.of(int(op.padding == "nan"), I1)).result
    return (_divisible(build, op.base, ALIGNMENT, func), *op.shape, *strides, op.strides[-1], nan)


def _divisible(build: Builder, value: Value, divisor: int, func: Func) -> Value:
    """A value that is known to be divisible.  Constants need no hint, nor do arguments that have one."""
    is_argument = value.op is None and value.block is func.body and value.index < len(func.argument_hints)
    known = int(func.argument_hints[value.index].get("divisibility", 1)) if is_argument else 1
    if isinstance(value.op, Constant) or known % divisor == 0:
        return value
    return build.add(AxisAttributes(value, divisibility=(divisor,))).result


def _access(build: Builder, block: TensorType, parts: Parts, indices: Sequence[Value]) -> tuple[Value, Value]:
    """The pointers of a block, and which of them lie in the tensor."""
    # Addresses in 64 bits from the start: the part that all threads share can then be split off.
    wide = [coordinates(build, block, axis, extended(build, index)) for axis, index in enumerate(indices)]
    pointers = addresses(build, block, parts.base, parts.strides, wide)
    places = [coordinates(build, block, axis, index) for axis, index in enumerate(indices)]
    return pointers, _inside(build, block, parts, places)


def _row_access(
    build: Builder, block: TensorType, parts: Parts, rows: Value, column: Value
) -> tuple[Value, Value]:
    """The pointers of rows with the given numbers, and which of them lie in the tensor."""
    down = build.add(ExpandDims(rows, 1)).result
    wide = [extended(build, down), coordinates(build, block, 1, extended(build, column))]
    places = [down, coordinates(build, block, 1, column)]
    return addresses(build, block, parts.base, parts.strides, wide), _inside(build, block, parts, places)


def _inside(build: Builder, block: TensorType, parts: Parts, places: Sequence[Value]) -> Value:
    """Which elements of a block lie in the tensor, from its coordinates along each axis."""
    mask: Value | None = None
    for place, size in zip(places, parts.shape):
        limit = build.add(Splat(size, place.type)).result
        inside = spread(build, build.add(CmpI(place, limit, "ult")).result, block, I1)
        mask = inside if mask is None else build.add(AndI(mask, inside)).result
    assert mask is not None, "a block has at least one axis"
    return mask


def _filling(build: Builder, block: TensorType, nan: Value) -> Value:
    """The value that is read beyond the tensor."""
    zeros = build.add(Constant.of(0, block)).result
    if isinstance(nan.op, Constant) and not nan.op.value:
        return zeros
    nans = build.add(Constant.of(math.nan, block)).result
    condition = build.add(Splat(nan, block.with_element(I1))).result
    return build.add(Select(condition, nans, zeros)).result
