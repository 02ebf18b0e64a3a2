"""The one table of opcodes: what the emulator knows of every instruction.

The table drives the engine, is the whitelist of what may occur in PTX, and is printed as a reference page.
"""

from __future__ import annotations

from functools import lru_cache

from kbuild.emulator.isa import (
    access,
    async_copies,
    bits,
    bulk_copies,
    collectives,
    control,
    convert,
    floats,
    integers,
    moves,
    remote_stores,
)
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, Fragment, InstructionSpec, Lanes, View
from kbuild.emulator.isa.matrix import mma_rows, sparse_rows, wgmma_rows, wmma_rows
from kbuild.emulator.ptx.model import Instruction, PtxError

__all__ = [
    "SECTIONS",
    "TABLE",
    "Bound",
    "Effects",
    "Form",
    "Fragment",
    "InstructionSpec",
    "Lanes",
    "View",
    "form_of",
]

SECTIONS = (
    integers,
    bits,
    floats,
    convert,
    moves,
    access,
    collectives,
    control,
    mma_rows,
    sparse_rows,
    wmma_rows,
    async_copies,
    bulk_copies,
    remote_stores,
    wgmma_rows,
)
"""The modules whose `ROWS` make up the table."""
TABLE: tuple[InstructionSpec, ...] = tuple(row for module in SECTIONS for row in module.ROWS)

_BY_OPCODE: dict[str, list[InstructionSpec]] = {}
for _row in TABLE:
    _BY_OPCODE.setdefault(_row.opcode, []).append(_row)


@lru_cache(maxsize=4096)
def _find(opcode: str, modifiers: tuple[str, ...]) -> Form | None:
    for row in _BY_OPCODE.get(opcode, ()):
        if row.matches(modifiers):
            return Form(row, opcode, modifiers)
    return None


def form_of(instruction: Instruction) -> Form:
    """The form of an instruction.  Raises PtxError that names an opcode or modifiers that the table lacks."""
    form = _find(instruction.opcode, instruction.modifiers)
    if form is None:
        rows = _BY_OPCODE.get(instruction.opcode)
        what = "opcode" if rows is None else "form of " + instruction.opcode
        help = "known are " + ", ".join(row.pattern for row in rows) if rows else ""
        raise PtxError(f"line {instruction.line}: unknown {what}: {instruction.name}", help=help)
    return form
