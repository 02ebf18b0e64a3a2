"""Copies that land later: `cp.async` and its groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.asyncp.cp_async import Copy, CopyGroups
from kbuild.emulator.asyncp.timing import unit_of
from kbuild.emulator.optable.access import address_of, offset_by
from kbuild.emulator.optable.row import Bound, Effects, Form, Row, View
from kbuild.emulator.ptx import Immediate, Instruction, PtxError


def threads_of(convoy: Any, where: Any) -> np.ndarray:
    """The threads of a CTA that execute an instruction."""
    lanes = np.arange(convoy.size) if where is True else np.flatnonzero(where)
    return lanes + convoy.first_thread


def number_of(instruction: Instruction, index: int) -> int:
    """A literal operand."""
    operand = instruction.operands[index] if index < len(instruction.operands) else None
    if not isinstance(operand, Immediate):
        raise PtxError(f"{instruction.name} needs a number as operand {index + 1}")
    return operand.value


def _copy(form: Form, instruction: Instruction) -> Bound:
    destination, source = instruction.operands[:2]
    size = number_of(instruction, 2)
    if size not in ((16,) if form.has("cg") else (4, 8, 16)):
        raise PtxError(f"{instruction.name} cannot copy {size} bytes")
    to, to_offset = address_of(destination)
    origin, offset = address_of(source)
    rest = instruction.operands[3:-1] if form.has("L2::cache_hint") else instruction.operands[3:]

    def function(convoy: Any, target: np.ndarray, start: np.ndarray, *filled: np.ndarray, where: Any = True) -> None:
        chosen = slice(None) if where is True else where
        bytes_read = filled[0][chosen].astype(np.int64) if filled else None
        if bytes_read is not None:
            bytes_read = np.minimum(bytes_read, size)
            if (bytes_read == size).all():
                bytes_read = None
        copy = Copy(
            convoy, instruction, threads_of(convoy, where), offset_by(target, to_offset)[chosen].copy(),
            offset_by(start, offset)[chosen].copy(), size, bytes_read, np.empty(0, np.int64),
        )  # fmt: skip
        unit_of(convoy.cta, CopyGroups).issue(copy)

    return Bound(function, (to, origin, *(View(operand, "u32") for operand in rest)))


def _commit(form: Form, instruction: Instruction) -> Bound:
    def function(convoy: Any, where: Any = True) -> None:
        unit_of(convoy.cta, CopyGroups).commit(threads_of(convoy, where))

    return Bound(function)


def _wait(form: Form, instruction: Instruction) -> Bound:
    allowed = None if form.has("wait_all") else number_of(instruction, 0)

    def function(convoy: Any, where: Any = True) -> None:
        unit_of(convoy.cta, CopyGroups).wait(threads_of(convoy, where), allowed)

    return Bound(function)


_COPY = Effects(reads=("global",), writes=("shared",), asynchronous=True)
_PREFETCH = "[L2::64B|L2::128B|L2::256B]"

ROWS = [
    Row("cp.async{ca|cg}{shared|shared::cta}.global[L2::cache_hint]" + _PREFETCH, "", "copy of 4, 8 or 16 bytes per thread",
        handler=_copy, effects=_COPY),
    Row("cp.async.commit_group", "", "ends a group of copies", handler=_commit),
    Row("cp.async.wait_group", "", "waits for all but the last groups", handler=_wait),
    Row("cp.async.wait_all", "", "waits for all copies", handler=_wait),
]  # fmt: skip
