"""Takes integer tensors apart into what is the same for all elements, as a scalar, and a rest."""

from __future__ import annotations

from kbuild.compiler.analysis.pointer_tensors import is_uniform
from kbuild.compiler.analysis.wrapping import WrappingOffsets
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.types import I64, IntType, TensorType, bit_width, element_of
from kbuild.compiler.ops.elementwise import AddI, Constant, ExtSI, MulI, SubI
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, Reshape, Splat, Trans

Parts = tuple[Value | None, Value | None]
"""A scalar and a tensor whose sum the value is; None stands for zero."""


class UniformParts:
    """Splits values, each once; the new operations stand right behind the one that defines the value.  What
    is expected to wrap around is not split into a sum of parts, unless it is the same for all elements: one
    scalar wraps around as they do."""

    def __init__(self, body: Block) -> None:
        self.known: dict[Value, Parts] = {}
        self.wrapping = WrappingOffsets(body)

    def of(self, value: Value) -> Parts:
        """The uniform part and the rest of a tensor of integers."""
        if value not in self.known:
            self.known[value] = self._split(value)
        return self.known[value]

    def _split(self, value: Value) -> Parts:
        op = value.op
        match op:
            case None:
                return None, value
            case Splat():
                return op.src, None
            case Constant():
                return (None, None) if op.value == 0 else (Builder.after(op).add(_scalar(op)).result, None)
            case _ if self.wrapping.may_wrap(value) and not is_uniform(value):
                return None, value
            case AddI() | SubI():
                return self._sum(op)
            case MulI():
                return self._multiplied(op)
            case ExtSI() | Broadcast() | ExpandDims() | Reshape() | Trans():
                return self._changed(op)
        return None, value

    def _sum(self, op: AddI | SubI) -> Parts:
        (u1, r1), (u2, r2) = self.of(op.lhs), self.of(op.rhs)
        if u1 is None and u2 is None:
            return None, op.result
        build = Builder.after(op)
        if isinstance(op, AddI):
            return added(build, u1, u2), added(build, r1, r2)
        return _difference(build, u1, u2), _difference(build, r1, r2)

    def _multiplied(self, op: MulI) -> Parts:
        """Only a product with a uniform factor has a uniform part."""
        (u1, r1), (u2, r2) = self.of(op.lhs), self.of(op.rhs)
        if r2 is not None:
            (u1, r1), (u2, r2) = (u2, r2), (u1, r1)
        if r2 is not None or u1 is None:
            return (None, op.result) if u1 is not None or r1 is not None else (None, None)
        if u2 is None:
            return None, None
        build = Builder.after(op)
        uniform = build.add(MulI(u1, u2)).result
        if r1 is None:
            return uniform, None
        return uniform, build.add(MulI(r1, build.add(Splat(u2, r1.type)).result)).result

    def _changed(self, op: Op) -> Parts:
        """Extending and shaping a sum extends and shapes its parts."""
        uniform, rest = self.of(op.operands[0])
        if uniform is None:
            return None, op.result if rest is not None else None
        build = Builder.after(op)
        if isinstance(op, ExtSI):
            uniform = resized(build, uniform, bit_width(op.type))
        if rest is None:
            return uniform, None
        copy = op.clone({op.operands[0]: rest})
        return uniform, build.add(copy).result


def _scalar(op: Constant) -> Constant:
    return Constant(op.value, element_of(op.type))


def added(build: Builder, a: Value | None, b: Value | None) -> Value | None:
    """The sum of integers, of which the narrower is extended; None is zero."""
    if a is None or b is None:
        return b if a is None else a
    bits = max(bit_width(a.type), bit_width(b.type))
    return build.add(AddI(resized(build, a, bits), resized(build, b, bits))).result


def _difference(build: Builder, a: Value | None, b: Value | None) -> Value | None:
    if b is None:
        return a
    if a is None:
        a = build.add(Constant.of(0, b.type)).result
    return build.add(SubI(a, b)).result


def resized(build: Builder, value: Value, bits: int) -> Value:
    """Integers sign-extended to so many bits."""
    if bit_width(value.type) == bits:
        return value
    element = I64 if bits == 64 else IntType(bits)
    return build.add(
        ExtSI(value, value.type.with_element(element) if isinstance(value.type, TensorType) else element)
    ).result
