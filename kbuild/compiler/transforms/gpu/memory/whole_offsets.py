"""Addresses a tensor by its whole offsets where these are computed anyway, for a mask.

A base that is the same for all threads, with the start of the program's block in it, is moved by loops and shared by
accesses that differ by constants.  Outside of loops it costs each pointer two additions of 64 bits, where offsets of
32 bits that are compared with a size take one.  So they do where rows of a constant stride begin at them: multiplied in
64 bits, which is the same instruction.

    Before:  %offsets: tensor<1024xi32> = arith.addi splat(%start), %range
             %mask: tensor<1024xi1> = arith.cmpi %offsets, %n
             %b: !tt.ptr<f16> = tt.addptr %x, %start
             %p: tensor<1024x!tt.ptr<f16>> = tt.addptr splat(%b), %range
    After:   %offsets: tensor<1024xi32> = arith.addi splat(%start), %range
             %mask: tensor<1024xi1> = arith.cmpi %offsets, %n
             %p: tensor<1024x!tt.ptr<f16>> = tt.addptr splat(%x), %offsets
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.types import I32, I64, TensorType, element_of
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import AddI, AddPtr, Constant, ExtSI, MulI
from kbuild.compiler.ops.tensor import Splat

Sums = dict[tuple[Value, Value], Value]
"""The sum of a tensor and a scalar, by these two."""


@gpu_pass
def whole_offsets(module: Module, target: object) -> None:
    for function in module.functions.values():
        _visit(function.body, {})
        erase_dead(function.body)


def _visit(block: Block, sums: Sums) -> None:
    """The operations of a block, where some sums are computed already."""
    for op in list(block):
        if isinstance(op, AddI) and element_of(op.result.type) == I32:
            sums |= {
                (rest, part.op.src): op.result
                for part, rest in ((op.lhs, op.rhs), (op.rhs, op.lhs))
                if isinstance(part.op, Splat)
            }
        elif isinstance(op, AddPtr) and isinstance(op.ptr.op, Splat):
            _readdress(op, op.ptr.op, sums)
        elif not isinstance(op, For | While):
            for region in op.regions:
                _visit(region, dict(sums))


def _readdress(op: AddPtr, base: Splat, sums: Sums) -> None:
    """Take the offsets whole, if the base is moved by what makes them so."""
    moves: list[AddPtr] = []
    pointer = base.src
    while isinstance(pointer.op, AddPtr):
        moves.insert(0, pointer.op)
        pointer = pointer.op.ptr
    wholes = ((move, _whole(op.offset, move.offset, sums)) for move in moves)
    start, whole = next(((move, whole) for move, whole in wholes if whole is not None), (None, None))
    if start is None or whole is None:
        return
    build = Builder.before(op)
    for move in moves:
        if move is not start:
            pointer = build.add(AddPtr(pointer, move.offset)).result
    op.set_operand(0, build.add(Splat(pointer, op.ptr.type)).result)
    op.set_operand(1, _multiplied(build, *whole))


def _whole(rest: Value, start: Value, sums: Sums) -> tuple[Value, int] | None:
    """A sum that is computed already, and what to multiply it by for the sum of some offsets and their start."""
    part, stride = _factors(rest)
    origin, distance = _factors(start)
    for (other, begin), total in sums.items():
        if (rest, start) == (other, begin):
            return total, 1
        if other is part and _factors(begin) == (origin, distance // stride) and not distance % stride:
            return total, stride
    return None


def _factors(value: Value) -> tuple[Value, int]:
    """A value as another one times a constant, other than zero."""
    if isinstance(value.op, MulI):
        for constant, rest in ((value.op.lhs.op, value.op.rhs), (value.op.rhs.op, value.op.lhs)):
            if isinstance(constant, Constant) and constant.value:
                return rest, int(constant.value)
    return value, 1


def _multiplied(build: Builder, offsets: Value, stride: int) -> Value:
    """Offsets times a stride, in 64 bits, as pointers may be that far apart."""
    if stride == 1:
        return offsets
    assert isinstance(offsets.type, TensorType)
    wide = offsets.type.with_element(I64)
    return build.add(
        MulI(build.add(ExtSI(offsets, wide)).result, build.add(Constant.of(stride, wide)).result)
    ).result
