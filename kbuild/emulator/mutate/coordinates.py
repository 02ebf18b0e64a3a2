"""The registers whose values depend only on a thread's place in its CTA: the same in every launch,
whatever the arguments."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.emulator.engine.program import Program
from kbuild.emulator.isa.table import form_of
from kbuild.emulator.ptx.model import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
)

_PLACES = ("%tid.", "%ntid.", "%laneid", "%warpid", "%nwarpid", "%lanemask", "WARP_SZ")


def fixed_registers(program: Program) -> frozenset[str]:
    """The registers whose every definition computes with constants, places and such registers.

    It is the least such set, so a value that a loop carries is not in it.
    """
    definitions: dict[str, list[Instruction]] = {}
    for statement in program.flat.statements:
        if (
            isinstance(statement, Instruction)
            and statement.operands
            and not isinstance(statement.operands[0], Address)
        ):
            for name in registers(statement.operands[0]):
                definitions.setdefault(name, []).append(statement)
    fixed: set[str] = set()
    growing = True
    while growing:
        found = {
            name
            for name, instructions in definitions.items()
            if name not in fixed and all(_is_fixed(instruction, fixed) for instruction in instructions)
        }
        growing = bool(found)
        fixed |= found
    return frozenset(fixed)


def registers(operand: Operand) -> Iterator[str]:
    """The names of the registers in an operand."""
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Pair):
        yield from (part.name for part in (operand.first, operand.second) if isinstance(part, Register))
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from registers(item)
    elif isinstance(operand, Not):
        yield operand.register.name
    elif isinstance(operand, Address):
        yield from registers(operand.base)


def computes_from(instruction: Instruction, fixed: frozenset[str] | set[str]) -> bool:
    """Whether all sources of an instruction are constants, places or registers of the set."""
    sources = instruction.operands[1:]
    if not all(
        isinstance(source, Register | Immediate | Special | Symbol | Vector | Not) for source in sources
    ):
        return False
    places = all(source.name.startswith(_PLACES) for source in sources if isinstance(source, Special))
    guarded = instruction.guard is None or instruction.guard.register.name in fixed
    return places and guarded and all(name in fixed for source in sources for name in registers(source))


def _is_fixed(instruction: Instruction, fixed: set[str]) -> bool:
    computing = instruction.opcode == "mov" or bool(form_of(instruction).row.operands)
    return computing and computes_from(instruction, fixed)
