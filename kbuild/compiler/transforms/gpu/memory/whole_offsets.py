"""Addresses a tensor by its whole offsets where these are computed anyway, for a mask.

A base that is the same for all threads, with the start of the program's block in it, is moved by loops and shared by
accesses that differ by constants.  Outside of loops it costs each pointer two additions of 64 bits, where offsets of
32 bits that are compared with a size take one.

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
from kbuild.compiler.ir.types import I32, element_of
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import AddI, AddPtr
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
    start = next((move for move in moves if (op.offset, move.offset) in sums), None)
    if start is None:
        return
    build = Builder.before(op)
    for move in moves:
        if move is not start:
            pointer = build.add(AddPtr(pointer, move.offset)).result
    op.set_operand(0, build.add(Splat(pointer, op.ptr.type)).result)
    op.set_operand(1, sums[op.offset, start.offset])
