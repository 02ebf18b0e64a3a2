"""Addresses as a base register plus a constant, found by looking through the operations that make them.

`addptr(splat(%base), %offsets)` becomes one 64-bit address per distinct variable part of the offsets; what is
constant goes into the access itself, as its immediate:

    offsets = make_range + splat(%start)     register r holds (thread part + %start) + r
    address of register 5                    getelementptr float, %base, (thread part + %start)      and 20 bytes

Rows that are a number of strides apart, which only the launch knows, have addresses that are as many strides apart, and
not products of their own: those would each take two registers through a loop that moves %base.

    offsets = make_range · splat(%stride)    register r holds (thread part + r) · %stride
    address of register 5                    getelementptr float, (getelementptr float, %base, thread part · %stride), 5 · %stride
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import I32, I64, IntType, PointerType, TensorType, bit_width, element_of
from kbuild.compiler.lower.core.emit import Emitter, LazyRegisters
from kbuild.compiler.lower.core.index import coordinate
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, memory_bits, memory_type
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import View, layout, source_registers
from kbuild.compiler.ops.elementwise import (
    AddI,
    AddPtr,
    Constant,
    ExtSI,
    MulI,
    ShLI,
    SubI,
    shift_factor,
    wrap,
)
from kbuild.compiler.ops.tensor import AxisAttributes, Broadcast, ExpandDims, MakeRange, Reshape, Splat, Trans

VIEW_DEPTH = 48
"""How far back to look through operations."""

Parts = tuple[str, int]
"""A register and a constant to add to it."""
Strides = tuple[str, str, int]
"""A register, another in 64 bits that is the same for all threads, and a constant, to add together."""


def offset_parts(emit: Emitter, value: Value, register: int, depth: int = 0) -> Parts:
    """An integer register of a value as base + constant; the same base for all registers that differ by
    constants.

    The offset must not be one that wraps around: what the registers differ by would be lost.
    """
    return _seen_through(emit, value, register, depth, _offset_parts)


def _seen_through(
    emit: Emitter, value: Value, register: int, depth: int, view: Callable[[Emitter, Value, int, int], Parts]
) -> Parts:
    """Parts written where the value is defined (outside the loop that uses it, say), and only once."""
    known = emit.parts.get((value, register))
    if known is None:
        registers, saved = emit.registers(value), emit.chunk
        if isinstance(registers, LazyRegisters):
            emit.chunk = registers.chunk or saved
        known = emit.parts[value, register] = view(emit, value, register, depth)
        emit.chunk = saved
    return known


def _offset_parts(emit: Emitter, value: Value, register: int, depth: int) -> Parts:
    op = value.op
    if depth < VIEW_DEPTH:
        match op:
            case Constant():
                return "0", int(op.value)
            case MakeRange():
                base, constant = coordinate(emit, layout(op.type), 0, register)
                return base, constant + op.start
            case AddI(lhs, rhs):
                first, second = (offset_parts(emit, side, register, depth + 1) for side in (lhs, rhs))
                return emit.add(first[0], second[0], _kind(value)), first[1] + second[1]
            case SubI(lhs, rhs):
                base, constant = offset_parts(emit, rhs, register, depth + 1)
                if base == "0":
                    first, own = offset_parts(emit, lhs, register, depth + 1)
                    return first, own - constant
            case MulI(lhs, rhs) | ShLI(lhs, rhs):
                scaled = _scaled(emit, op, lhs, rhs, register, depth)
                if scaled is not None:
                    return scaled
            case ExtSI() if element_of(op.type) == I64 and element_of(op.src.type) == I32:
                base, constant = offset_parts(emit, op.src, register, depth + 1)
                return _extended(emit, base, "i32"), constant
            case Splat() | AxisAttributes():
                return offset_parts(
                    emit, op.src, register if isinstance(op, AxisAttributes) else 0, depth + 1
                )
            case Broadcast() | ExpandDims() | Reshape() | Trans() if _keeps_order(op):
                return offset_parts(emit, op.src, source_registers(emit, op)[register], depth + 1)
            case _:
                pass
    return _whole(emit, value, register)


def _whole(emit: Emitter, value: Value, register: int) -> Parts:
    """A register as it is: its base, or its constant."""
    found = emit.registers(value)[register]
    return (found, 0) if found[0] == "%" else ("0", int(found))


def _keeps_order(op: View) -> bool:
    return not (isinstance(op, Reshape) and op.allow_reorder)


def _kind(value: Value) -> str:
    element = element_of(value.type)
    assert isinstance(element, IntType)
    return f"i{element.bits}"


def _scaled(
    emit: Emitter, op: MulI | ShLI, lhs: Value, rhs: Value, register: int, depth: int
) -> Parts | None:
    """A product with a constant; None when neither side is a constant."""
    first = offset_parts(emit, lhs, register, depth + 1)
    second = offset_parts(emit, rhs, register, depth + 1)
    if isinstance(op, ShLI):
        if second[0] != "0":
            return None
        second = "0", shift_factor(second[1], bit_width(lhs.type))
    if first[0] == "0":
        first, second = second, first
    if second[0] != "0":
        return None
    return emit.mul(first[0], str(second[1]), _kind(lhs)), first[1] * second[1]


def _extended(emit: Emitter, register: str, kind: str) -> str:
    return (
        emit.instruction(f"sext {kind} {register} to i64")
        if register[0] == "%" and kind != "i64"
        else register
    )


def address(emit: Emitter, value: Value, register: int, depth: int = 0) -> Parts:
    """The address that a register of a pointer value holds: a pointer register plus a constant number of
    bytes."""
    return _seen_through(emit, value, register, depth, _address)


def _address(emit: Emitter, value: Value, register: int, depth: int) -> Parts:
    op = value.op
    if depth < VIEW_DEPTH:
        match op:
            case AddPtr(pointer, offset):
                base, constant = address(emit, pointer, register, depth + 1)
                moved, strides, more = _wide_offset(emit, offset, register)
                pointee = element_of(value.type)
                assert isinstance(pointee, PointerType)
                size, kind = memory_bits(pointee.pointee) // 8, memory_type(pointee.pointee)
                if moved != "0":
                    base = emit.instruction(f"getelementptr {kind}, {GLOBAL_POINTER} {base}, i64 {moved}")
                if strides != "0":
                    base = emit.instruction(f"getelementptr {kind}, {GLOBAL_POINTER} {base}, i64 {strides}")
                return base, wrap(constant + more * size, 64)
            case Splat() | AxisAttributes():
                return address(emit, op.src, register if isinstance(op, AxisAttributes) else 0, depth + 1)
            case Broadcast() | ExpandDims() | Reshape() | Trans() if _keeps_order(op):
                return address(emit, op.src, source_registers(emit, op)[register], depth + 1)
            case _:
                pass
    return emit.registers(value)[register], 0


def _wide_offset(emit: Emitter, offset: Value, register: int) -> Strides:
    """An offset, all of it in 64 bits.  Those that may wrap around are taken whole."""
    wraps = emit.wrapping.may_wrap(offset)
    if not wraps and not emit.wrapping.is_sum_from_memory(offset):
        return _strided(emit, offset, register, 0)
    if wraps or _kind(offset) != "i64":
        base, constant = (_whole if wraps else offset_parts)(emit, offset, register)
        return _hidden(emit, base, _kind(offset)), "0", constant
    own, strides, constant = _strided(emit, offset, register, 0)
    return _hidden(emit, own, "i64"), strides, constant


def _hidden(emit: Emitter, register: str, kind: str) -> str:
    """An offset in 64 bits, of which LLVM does not know what it was computed from: its strength reduction makes one
    address from another by the difference of their indices before these are extended (it looks through the `sext`
    of a GEP's index).  The copy is of 32 bits, so that ptxas extends and adds at once."""
    if register[0] != "%" or kind not in ("i32", "i64"):
        wide = _extended(emit, register, kind)
        return emit.opaque(wide, "i64") if wide[0] == "%" else wide
    return _extended(emit, emit.opaque(register, kind), kind)


def _strided(emit: Emitter, value: Value, register: int, depth: int) -> Strides:
    """A register of an offset, in 64 bits, as what differs between threads, strides, and a constant: strides where the
    offset itself has 64 bits, in which products are the same however they are divided."""
    op = value.op
    if depth < VIEW_DEPTH and element_of(value.type) == I64:
        match op:
            case AddI(lhs, rhs):
                with emit.at_home(value):
                    first, second = (_strided(emit, side, register, depth + 1) for side in (lhs, rhs))
                    own, strides = emit.add(first[0], second[0], "i64"), emit.add(first[1], second[1], "i64")
                    return own, strides, first[2] + second[2]
            case MulI(Value(op=Splat()) as stride, row) | MulI(row, Value(op=Splat()) as stride):
                with emit.at_home(value):
                    base, constant = offset_parts(emit, row, register)
                    factor = emit.registers(stride)[0]
                    if base != "0" and constant and factor[0] == "%":
                        return emit.mul(base, factor, "i64"), emit.mul(factor, str(constant), "i64"), 0
            case Broadcast() | ExpandDims() | Reshape() | Trans() if _keeps_order(op):
                return _strided(emit, op.src, source_registers(emit, op)[register], depth + 1)
            case _:
                pass
    base, constant = offset_parts(emit, value, register)
    return _extended(emit, base, _kind(value)), "0", constant


@lower(AddPtr)
def lower_addptr(emit: Emitter, op: AddPtr) -> Sequence[str]:
    """The pointers themselves, for code that does not use `address`."""
    count = layout(op.ptr.type).size("register") if isinstance(op.ptr.type, TensorType) else 1

    def pointer(register: int) -> str:
        base, constant = address(emit, op.result, register)
        if not constant:
            return base
        return emit.instruction(f"getelementptr i8, {GLOBAL_POINTER} {base}, i64 {constant}")

    return emit.lazy(count, pointer)
