"""Splits tensors of pointers into one scalar base and a tensor of offsets: `addptr(splat(base), offsets)` is
then the form of every address.  What is the same for all elements moves to the base, in scalar arithmetic,
and loops carry only the base when the offsets do not change.

    Before:  %p0: tensor<64x!tt.ptr<f16>> = tt.addptr splat(%x), (splat(%start) + %range)
             scf.for … init=[%p0] body(%i: i32, %p: tensor<64x!tt.ptr<f16>>) {
               %v: tensor<64xf16> = tt.load %p
               %next: tensor<64x!tt.ptr<f16>> = tt.addptr %p, splat(%step)
               scf.yield %next
             }
    After:   %b0: !tt.ptr<f16> = tt.addptr %x, %start
             scf.for … init=[%b0] body(%i: i32, %b: !tt.ptr<f16>) {
               %p: tensor<64x!tt.ptr<f16>> = tt.addptr splat(%b), %range
               %v: tensor<64xf16> = tt.load %p
               %next: !tt.ptr<f16> = tt.addptr %b, %step
               scf.yield %next
             }

A sum of 32-bit offsets is assumed not to overflow, as an offset that did would lie outside of any array;
where it is expected to (`WrappingOffsets`), offsets stay whole.  Pointers that were loaded, or chosen element
by element, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.pointer_tensors import PointerTensors
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.types import TensorType, Type, bit_width, element_of
from kbuild.compiler.ops.elementwise import AddPtr, Bitcast, Constant, Select
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Reshape, Splat, Trans
from kbuild.compiler.transforms._support.splitting import Splitting
from kbuild.compiler.transforms._support.uniform import UniformParts, added, resized
from kbuild.targets import Target


@tensor_pass
def canonicalize_pointers(module: Module, target: Target) -> None:
    for function in module.functions.values():
        pointers = PointerTensors(function)
        if pointers.found:
            _Bases(function, pointers).visit(function.body)
            erase_dead(function.body)


class _Bases(Splitting):
    """The parts of a tensor of pointers: its base, and its offsets unless they are all zero."""

    def __init__(self, function: Func, pointers: PointerTensors) -> None:
        super().__init__()
        self.pointers = pointers
        self.uniform = UniformParts(function.body)
        self.wholes: dict[Value, Value] = {}

    def part_types(self, value: Value) -> Sequence[Type] | None:
        if not self.pointers.is_split(value):
            return None
        assert isinstance(value.type, TensorType)
        offsets = self.pointers.offset_type(value)
        return (
            [value.type.element]
            if offsets is None
            else [value.type.element, value.type.with_element(offsets)]
        )

    def parts_as(self, value: Value, types: Sequence[Type], build: Builder) -> Sequence[Value]:
        base, offsets = self.base_and_offsets(value)
        if len(types) == 1:
            assert offsets is None
            return [base]
        if offsets is None:
            offsets = build.add(Constant.of(0, types[1])).result
        return [base, resized(build, offsets, bit_width(types[1]))]

    def base_and_offsets(self, value: Value) -> tuple[Value, Value | None]:
        parts = self.parts[value]
        return parts[0], parts[1] if len(parts) > 1 else None

    def whole(self, value: Value) -> Value:
        """The tensor of pointers, rebuilt beside its definition where its parts have changed."""
        if value not in self.parts:
            return value
        if value not in self.wholes:
            self.wholes[value] = self._assembled(value)
        return self.wholes[value]

    def _assembled(self, value: Value) -> Value:
        base, offsets = self.base_and_offsets(value)
        op = value.op
        if isinstance(op, Splat) and op.src is base and offsets is None:
            return value
        if (
            isinstance(op, AddPtr)
            and isinstance(op.ptr.op, Splat)
            and op.ptr.op.src is base
            and op.offset is offsets
        ):
            return value
        build = Builder.after_value(value)
        pointers = build.add(Splat(base, value.type)).result
        return build.add(AddPtr(pointers, offsets), value.name).result if offsets is not None else pointers

    def operation(self, op: Op) -> None:
        if op.results and self.pointers.is_split(op.results[0]):
            self.parts[op.results[0]] = [part for part in self._split_operation(op) if part is not None]
            return
        for index, operand in enumerate(op.operands):
            if operand in self.parts:
                op.set_operand(index, self.whole(operand))

    def _split_operation(self, op: Op) -> tuple[Value, Value | None]:
        """Base and offsets of the result of an operation on tensors of pointers."""
        build = Builder.before(op)
        match op:
            case Splat():
                return op.src, None
            case AddPtr():
                base, offsets = self.base_and_offsets(op.ptr)
                uniform, rest = self.uniform.of(op.offset)
                if uniform is not None:
                    base = build.add(AddPtr(base, uniform), op.results[0].name).result
                return base, added(build, offsets, rest)
            case Select():
                return self._split_select(op, build)
        base, offsets = self.base_and_offsets(op.operands[0])
        type_ = op.results[0].type
        if isinstance(op, Bitcast):
            return build.add(Bitcast(base, element_of(type_))).result, offsets
        assert isinstance(op, Broadcast | ExpandDims | Reshape | Trans) and isinstance(type_, TensorType)
        return base, _reshaped(build, op, offsets) if offsets is not None else None

    def _split_select(self, op: Select, build: Builder) -> tuple[Value, Value | None]:
        """A choice of one pointer or the other for all elements."""
        condition = op.condition.op
        assert isinstance(condition, Splat)
        (base, offsets), (base2, offsets2) = (
            self.base_and_offsets(op.true_value),
            self.base_and_offsets(op.false_value),
        )
        base = build.add(Select(condition.src, base, base2)).result
        if offsets is offsets2:
            return base, offsets
        known = next(part for part in (offsets, offsets2) if part is not None)
        zero = build.add(Constant.of(0, known.type)).result
        bits = max(bit_width(part.type) for part in (offsets, offsets2) if part is not None)
        pair = [resized(build, part if part is not None else zero, bits) for part in (offsets, offsets2)]
        return base, build.add(Select(op.condition, *pair)).result


def _reshaped(build: Builder, op: Op, src: Value) -> Value:
    """Apply an operation that shapes tensors of pointers to their offsets instead."""
    copy = op.clone({op.operands[0]: src})
    assert isinstance(copy.results[0].type, TensorType)
    copy.results[0].type = copy.results[0].type.with_element(element_of(src.type))
    return build.add(copy).result
