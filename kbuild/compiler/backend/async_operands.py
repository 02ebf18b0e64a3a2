"""Finds registers that are written while an asynchronous `wgmma` may still read them.

A `wgmma` whose left operand is in registers reads them after the threads have gone on, until `wgmma.wait_group`
covers it.  ptxas before 13.3 reuses such registers too early, and the results are wrong.  PTX cannot show this, for it
names no machine registers; so the machine code of sm_90 is followed along all its paths.

The encodings were found by experiment, as in sass.py: `HGMMA` and its like, with the group that one closes;
the wait for groups; branches; and the instructions that write general registers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kbuild.compiler.backend.sass import BYTES, OPERATIONS

_WGMMAS = {number for name, number in OPERATIONS.items() if name.endswith("GMMA")}
_IN_REGISTERS = 0b110
"""Bits 9 to 11 of a `wgmma` whose left operand is in registers."""
_OPERAND_REGISTERS = 4
"""Registers of a left operand: 64 rows of 32 bytes over 128 threads."""
_WARPGROUP, _BRANCH, _EXIT = 0x1C5, 0x147, 0x14D
_IS_WAIT = 1 << 80
"""Set in the instruction `WARPGROUP` if it is a wait; otherwise it is `wgmma.fence`."""
_ALWAYS = 7
"""The predicate of an unconditional instruction."""
_MAX_GROUPS = 8
"""Groups in flight that are distinguished: `wgmma.wait_group` names at most 7."""

_NOT_REGISTERS = {0x004, 0x006, 0x00B, 0x00C, 0x01C, 0x02A, 0x02F, 0x034, 0x044}
"""Arithmetic instructions that write only predicates (R2P, VOTE, FSETP, ISETP, PLOP3, DSETP, ELECT, HSETP2), and
STSM."""
_ARITHMETIC = {number for number in range(0x002, 0x050) if number not in _NOT_REGISTERS}
_CONVERSIONS = {0x104, 0x105, 0x106, 0x108, 0x119}  # F2F, F2I, I2F, MUFU, S2R
_LOADS = {0x180, 0x181, 0x182, 0x183, 0x184, 0x189}  # LD, LDG, LDC, LDL, LDS, SHFL
_PAIRS = {0x005, 0x025}  # CS2R, IMAD.WIDE
_MATRIX_LOAD = 0x03B  # LDSM


class Overwrite(NamedTuple):
    """An instruction that writes a register that a `wgmma` may still read."""

    place: int
    """Where it stands, in bytes."""
    wgmma: int
    """Where the `wgmma` stands."""
    register: int


@dataclass(frozen=True)
class _OperandStep:
    """The effect of an instruction on the operands in flight; registers are bits of a mask."""

    writes: int = 0
    reads: int = 0
    """Registers that a `wgmma` reads."""
    closes: bool = False
    """Whether a `wgmma` is the last one of its group."""
    waits: int = -1
    """How many groups a wait leaves in flight; -1 for other instructions."""


_Flight = tuple[int, ...]
"""Registers that are read in flight: by the open group, by the last one that was closed, by that before, and
so on."""


def overwritten(code: bytes) -> list[Overwrite]:
    """Every instruction of a section of machine code that may write what a `wgmma` in flight reads."""
    words = [low | high << 64 for low, high in struct.iter_unpack("<QQ", code[: len(code) // BYTES * BYTES])]
    wgmmas = {index: step for index, word in enumerate(words) if (step := _wgmma_step(word)) is not None}
    operands = 0
    for step in wgmmas.values():
        operands |= step.reads
    if not operands:
        return []
    steps = wgmmas | {
        index: step for index, word in enumerate(words) if (step := _other(word, operands)) is not None
    }
    found: dict[int, Overwrite] = {}
    for index, step, flight in _reached(words, steps):
        for mask in flight:
            if step.writes & mask:
                register = (step.writes & mask & -(step.writes & mask)).bit_length() - 1
                reader = next(place for place, wgmma in wgmmas.items() if wgmma.reads >> register & 1)
                found[index] = Overwrite(index * BYTES, reader * BYTES, register)
    return [found[index] for index in sorted(found)]


def _wgmma_step(word: int) -> _OperandStep | None:
    if word & 0x1FF not in _WGMMAS:
        return None
    reads = _mask(word >> 24 & 0xFF, _OPERAND_REGISTERS) if word >> 9 & 0b111 == _IN_REGISTERS else 0
    return _OperandStep(reads=reads, closes=word >> 84 & 0b111 == 0)


def _other(word: int, operands: int) -> _OperandStep | None:
    operation = word & 0x1FF
    if operation == _WARPGROUP and word & _IS_WAIT:
        return _OperandStep(waits=word >> 72 & 0xFF)
    written = _mask(word >> 16 & 0xFF, _width(operation, word)) & operands
    return _OperandStep(writes=written) if written else None


def _width(operation: int, word: int) -> int:
    """How many general registers an instruction writes."""
    if operation in _LOADS:
        return {5: 2, 6: 4}.get(word >> 73 & 0b111, 1)
    if operation == _MATRIX_LOAD:
        return {1: 2, 2: 4}.get(word >> 72 & 0b11, 1)
    if operation in _PAIRS:
        return 2
    return 1 if operation in _ARITHMETIC or operation in _CONVERSIONS else 0


def _mask(first: int, count: int) -> int:
    return (1 << count) - 1 << first if first != 0xFF else 0  # The last register is the constant zero.


def _reached(
    words: list[int], steps: Mapping[int, _OperandStep]
) -> Iterator[tuple[int, _OperandStep, _Flight]]:
    """The steps that write, with the registers in flight before them on some path; a step is repeated when
    another path adds registers."""
    known: dict[int, _Flight] = {}
    work: list[tuple[int, _Flight]] = [(0, (0,))]
    targets = {target for index, word in enumerate(words) if (target := _target(index, word)) is not None}
    while work:
        index, flight = work.pop()
        while index < len(words):
            if index in targets or index == 0:
                joined = _joined(known.get(index, ()), flight)
                if joined == known.get(index):
                    break
                known[index] = flight = joined
            if (step := steps.get(index)) is not None:
                if step.writes:
                    yield index, step, flight
                flight = _after(step, flight)
            word = words[index]
            is_always = word >> 12 & 0xF == _ALWAYS
            if (target := _target(index, word)) is not None:
                if not is_always:
                    work.append((index + 1, flight))
                index = target
                continue
            if word & 0x1FF == _EXIT and is_always:
                break
            index += 1


def _target(index: int, word: int) -> int | None:
    """The target of a branch: bits 16 to 23 and 34 to 81 are a quarter of the distance in bytes from the next
    instruction."""
    if word & 0x1FF != _BRANCH:
        return None
    distance = word >> 16 & 0xFF | (word >> 34 & (1 << 48) - 1) << 8
    distance -= 1 << 56 if distance >> 55 else 0
    return index + 1 + 4 * distance // BYTES


def _after(step: _OperandStep, flight: _Flight) -> _Flight:
    if step.waits >= 0:
        return flight[: 1 + step.waits]
    flight = (flight[0] | step.reads, *flight[1:])
    return _shortened((0, *flight)) if step.closes else flight


def _shortened(flight: _Flight) -> _Flight:
    """Groups beyond the maximum are merged; those at the end that read nothing are left out."""
    while len(flight) > _MAX_GROUPS + 1:
        flight = (*flight[:-2], flight[-2] | flight[-1])
    while len(flight) > 1 and not flight[-1]:
        flight = flight[:-1]
    return flight


def _joined(one: _Flight, other: _Flight) -> _Flight:
    """The registers in flight where two paths meet."""
    length = max(len(one), len(other))
    return tuple(
        a | b for a, b in zip(one + (0,) * (length - len(one)), other + (0,) * (length - len(other)))
    )
