"""Atomic operations that the hardware does not have, by comparing and swapping: the element is computed anew until
nothing has written it in the meantime."""

from __future__ import annotations

from kbuild.compiler.ir.types import F32, FloatType, Type
from kbuild.compiler.lower.core.casts import convert_floats
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, llvm_type
from kbuild.compiler.lower.memory.pointers import address
from kbuild.compiler.ops.tensor import AtomicRMW

_COMBINE = {"fadd": "fadd float {}, {}", "fmax": "@llvm.maxnum.f32", "fmin": "@llvm.minnum.f32"}


def update_by_swapping(
    emit: Emitter, op: AtomicRMW, order: str, start: int, guard: str, register: str, element: Type
) -> str:
    """Update one element of 16 bits in an order where `guard` holds; the word of its old value, zero elsewhere.

    The first guess of the old value is zero: where it is right, nothing was read in vain.
    """
    assert isinstance(element, FloatType)
    base, offset = address(emit, op.ptr, start)
    value = convert_floats(emit, [register], element, F32)[0]
    again, after = emit.new_label("swap"), emit.new_label("swapped")
    before = emit.chunk.label
    if guard == "true":
        emit.branch(again)
    else:
        emit.branch(again, guard, after)
    with emit.scope():
        head = emit.start_block(again)
        emit.new_chunk()
        guess = emit.fresh()
        combined = _combined(emit, op.kind, guess, value, element)
        template = f"atom.{order}.{op.scope}.global.cas.b16 $0, [$1 + {offset}], $2, $3;"
        operands = [(GLOBAL_POINTER, base), ("i16", guess), ("i16", combined)]
        found = emit.asm(template, "=h,l,h,h", operands, ["i16"], effect=True)[0]
        same, latch = emit.compare("eq", found, guess, "i16"), emit.chunk.label
        emit.branch(after, same, again)
    head.lines.append(f"  {guess} = phi i16 [0, %{before}], [{found}, %{latch}]")
    joined = emit.start_block(after)
    old = emit.fresh()
    otherwise = "" if guard == "true" else f"[0, %{before}], "
    joined.lines.append(f"  {old} = phi i16 {otherwise}[{found}, %{latch}]")
    return emit.instruction(f"zext i16 {old} to i32")


def _combined(emit: Emitter, kind: str, guess: str, value: str, element: FloatType) -> str:
    """The bits of the new element.  In fp32 sums of two are rounded once more only to what they would have been."""
    old = emit.instruction(f"bitcast i16 {guess} to {llvm_type(element)}")
    wide = convert_floats(emit, [old], element, F32)[0]
    how = _COMBINE[kind]
    if how[0] == "@":
        new = emit.call(how[1:], "float", [("float", wide), ("float", value)])
    else:
        new = emit.instruction(how.format(wide, value))
    narrow = convert_floats(emit, [new], F32, element)[0]
    return emit.instruction(f"bitcast {llvm_type(element)} {narrow} to i16")
