"""Tensor-core instructions, in PTX and in the machine code (SASS) that ptxas makes of it, as data.

Instructions of sm_80 to sm_120 have 16 bytes, of which the low 9 bits name the operation.  NVIDIA documents
the names alone; the numbers, and how many instructions one of PTX becomes, were found by experiment with
ptxas 12.8 to 13.5, and tests compare them with nvdisasm.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

BYTES = 16
"""Bytes of an instruction of machine code."""

OPERATIONS = {
    "HMMA": 0x03C,
    "IMMA": 0x037,
    "BMMA": 0x03D,
    "DMMA": 0x03F,
    "QMMA": 0x07A,
    "HGMMA": 0x1F0,
    "IGMMA": 0x1F1,
    "BGMMA": 0x1F2,
    "QGMMA": 0x1F3,
}
"""The operations that multiply matrices, and the low 9 bits of their code."""
HAS_COLUMNS = ("HGMMA", "QGMMA")
"""Operations whose bits 53 to 57 are the columns of the result divided by 8, less one."""

CAPABILITIES = range(80, 130)
"""Architectures whose machine code is known here."""


class MmaKind(NamedTuple):
    """A kind of instruction of machine code."""

    operation: str
    columns: int = 0
    """Columns of the result, where they are distinguished."""

    def __str__(self) -> str:
        return f"{self.operation} of {self.columns} columns" if self.columns else self.operation


class PtxRule(NamedTuple):
    """What an instruction of PTX becomes."""

    family: str
    """The first part of its name, up to the first period."""
    types: frozenset[str]
    """Types of A, in PTX's words."""
    operation: str
    times: int = 1
    """Instructions of machine code for each of PTX, at least."""
    since: int = 80
    """The first architecture for which it holds."""
    until: int = 129
    """The last one."""


def _row(
    family: str, types: str, operation: str, times: int = 1, since: int = 80, until: int = 129
) -> PtxRule:
    return PtxRule(family, frozenset(types.split()), operation, times, since, until)


TABLE = (
    _row("wgmma", "f16 bf16 tf32", "HGMMA", since=90, until=90),
    _row("wgmma", "e4m3 e5m2", "QGMMA", since=90, until=90),
    _row("wgmma", "s8 u8", "IGMMA", since=90, until=90),
    _row("wgmma", "b1", "BGMMA", since=90, until=90),
    _row("mma", "f16 bf16 tf32", "HMMA"),
    _row("mma", "s8 u8", "IMMA"),
    _row("mma", "s4 u4", "IMMA", until=89),
    _row("mma", "b1", "BMMA", until=89),
    _row("mma", "f64", "DMMA"),
    _row("mma", "e4m3 e5m2", "QMMA", until=89),
    _row("mma", "e4m3 e5m2", "HMMA", times=2, since=90, until=119),  # Widened to f16 before.
    _row("mma", "e4m3 e5m2", "QMMA", since=120),
    _row("wmma", "f16 bf16 tf32", "HMMA"),  # One for each part of the result, of which some may have no use.
    _row("wmma", "s8 u8", "IMMA"),
    _row("wmma", "f64", "DMMA"),
)
"""Other instructions are not counted: sm_90 and newer have neither 4-bit nor XOR MMAs, and no architecture here
those of 8×8×4 f16; ptxas makes a routine for them, which all of them call."""
_ROUTINES = ("mma.sync.aligned.m8n8k4.row.", "mma.sync.aligned.m8n8k4.col.")

_INSTRUCTION = re.compile(
    r"(?m)(?:^|[;{}:])[ \t]*(?:@!?[%$\w]+[ \t]+)?((?:wgmma\.mma_async|w?mma)\.[\w.:]+)[ \t\n]"
)
_TYPE = re.compile(r"\.(f16|bf16|tf32|f32|f64|s32|s8|u8|s4|u4|b1|e4m3|e5m2)\b")
_COLUMNS = re.compile(r"\.m\d+n(\d+)k\d+\b")


def in_ptx(ptx: str) -> list[str]:
    """The name of every instruction of a PTX text that multiplies matrices, in order."""
    return list(_in_ptx(ptx)) if "mma" in ptx else []


@lru_cache(maxsize=2)  # Several checks of one text ask.
def _in_ptx(ptx: str) -> tuple[str, ...]:
    found = _INSTRUCTION.finditer(ptx)
    return tuple(one[1] for one in found if not _is_comment(ptx, one.start(1)))


def _is_comment(ptx: str, place: int) -> bool:
    return "//" in ptx[ptx.rfind("\n", 0, place) + 1 : place]


def expected(names: Iterable[str], capability: int) -> Counter[MmaKind]:
    """How many instructions of each kind PTX instructions of these names must become."""
    found: Counter[MmaKind] = Counter()
    for name, number in Counter(names).items():
        row = _row_of(name, capability)
        if row is not None:
            columns = _COLUMNS.search(name) if row.operation in HAS_COLUMNS else None
            found[MmaKind(row.operation, int(columns[1]) if columns else 0)] += number * row.times
    return found


def _row_of(name: str, capability: int) -> PtxRule | None:
    family = name.partition(".")[0]
    types = _TYPE.findall(name)
    if len(types) < 2 or (name.startswith(_ROUTINES) and "f16" in types):
        return None
    # D's type comes first; those of A and B follow, but for wmma of f16, which leaves them out.
    operand = "f16" if family == "wmma" and len(types) == 2 else types[1]
    for row in TABLE:
        if row.family == family and operand in row.types and row.since <= capability <= row.until:
            return row
    return None


def widens_fp8(capability: int) -> bool:
    """Whether ptxas widens the operands of `mma.sync` from fp8 to f16 for an architecture."""
    row = _row_of("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", capability)
    return row is not None and row.operation == "HMMA"


def in_code(code: bytes) -> Counter[MmaKind]:
    """How many instructions of each kind there are in a section of machine code."""
    low, high = code[0::BYTES], code[1::BYTES]
    found: Counter[MmaKind] = Counter()
    for operation, number in OPERATIONS.items():
        place = low.find(number & 0xFF)
        while place >= 0:
            if high[place] & 1 == number >> 8:
                columns = 0
                if operation in HAS_COLUMNS:
                    word = int.from_bytes(code[place * BYTES : place * BYTES + 8], "little")
                    columns = 8 * (word >> 53 & 0x1F) + 8
                found[MmaKind(operation, columns)] += 1
            place = low.find(number & 0xFF, place + 1)
    return found


_WIDEN_A_NUMBER = 0x83E
"""The low 12 bits of F2FP, which converts pairs, where what it converts stands in the instruction, in bits 32
to 63."""
_UNPACKS = 1 << 64 + 25
"""Set where it widens fp8."""


def widened_numbers(code: bytes) -> list[int]:
    """Words of fp8 that stand in the code as numbers and are widened there."""
    return [found >> 32 & 0xFFFFFFFF for found in _instructions(code, _WIDEN_A_NUMBER) if found & _UNPACKS]


_STORE_LOCAL = 0x387
"""The low 12 bits of STL, whose bits 40 to 63 are its distance from the address, and bits 73 to 75 the size
of what it stores."""
_SIZES_OF_HALVES = (2, 3)


def stores_upper_halves(code: bytes) -> bool:
    """Whether 16-bit values are written to the upper half of a word of local memory: where PTX has no such
    store, of a register that was spilled."""
    return any(
        found >> 73 & 7 in _SIZES_OF_HALVES and found >> 40 & 2 for found in _instructions(code, _STORE_LOCAL)
    )


def _instructions(code: bytes, number: int) -> Iterator[int]:
    """The instructions whose low 12 bits are a number."""
    low = code[0::BYTES]
    place = low.find(number & 0xFF)
    while place >= 0:
        instruction = int.from_bytes(code[place * BYTES : (place + 1) * BYTES], "little")
        if instruction & 0xFFF == number:
            yield instruction
        place = low.find(number & 0xFF, place + 1)
