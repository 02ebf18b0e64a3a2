"""Elements that are the same, in a way that LLVM and ptxas cannot see."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.words import from_words, to_word
from kbuild.compiler.ops.gpu import OpaqueCopy

GRID_BITS = 16
"""A grid has fewer than 2^16 programs along its second axis, so the upper bits of their numbers are zero."""


def opaque_zero(emit: Emitter) -> str:
    """An `i32` of zeros no bit of which LLVM or ptxas can tell: the negative of a zero that only the hardware
    knows."""
    with emit.at_entry():
        return emit.instruction(f"sub i32 0, {_shifted_program_number(emit, GRID_BITS)}")


def _shifted_program_number(emit: Emitter, bits: int) -> str:
    number = emit.asm("mov.u32 $0, %ctaid.y;", "=r", [], ["i32"])[0]
    return emit.shift(number, -bits)


@lower(OpaqueCopy)
def lower_again(emit: Emitter, op: OpaqueCopy) -> Sequence[str]:
    """Combine two elements in a word with a zero that only the hardware knows: the number of the program, shifted
    right by more bits than it has; the shift depends on the operation's number."""
    registers = emit.registers(op.src)
    with emit.at_entry():
        zero = _shifted_program_number(emit, GRID_BITS + op.number - 1)
    words = [
        emit.or_(to_word(emit, registers[at : at + 2], op.src.type), zero)
        for at in range(0, len(registers), 2)
    ]
    return from_words(emit, words, op.src.type)[: len(registers)]
