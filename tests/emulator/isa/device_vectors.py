"""The instructions and operands measured on a GPU, to settle what lane-wise instructions do: for every row
of the table of opcodes.

Operands are made by rule, from the edges of each type and from hashed bits, so that only the answers are
stored.  They were computed by an H200 from the PTX of `module` (tests/gpu/make_device_vectors.py) and are in
device_vectors.npz.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kbuild.emulator.isa.instruction_spec import TYPES
from kbuild.emulator.isa.table import TABLE, Form, InstructionSpec, form_of
from kbuild.emulator.ptx.model import Instruction
from tests.emulator.emulated import HEADER, REGISTERS, at

THREADS = 64
COUNT = 192
"""Operand tuples for each instruction."""
FORMS_OF_A_ROW = 8
"""The most forms of a row that are measured."""

_INTEGERS = [
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x100000000,
    0x7FFFFFFFFFFFFFFF,
    0x8000000000000000,
    0xFFFFFFFFFFFFFFFF,
]
_FLOATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
    "tf32": (8, 23),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}
"""Bits of exponent and of fraction."""


def hashed(count: int, seed: int) -> np.ndarray:
    """Bits that look random, uint64: the finaliser of SplitMix64 over a counter."""
    with np.errstate(over="ignore"):
        value = (np.arange(count, dtype=np.uint64) + np.uint64(1 + seed * 1_000_003)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return value ^ value >> np.uint64(31)


def _float_edges(kind: str) -> list[int]:
    """Zeros, subnormal numbers, powers of two and their neighbours, the largest, infinities, NaNs; of both
    signs."""
    exponent, fraction = _FLOATS[kind]
    bias, top = (1 << exponent - 1) - 1, (1 << exponent) - 1
    found = [0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1]
    for power in (-2, -1, 0, 1, 2, 3, fraction, fraction + 1):
        one = (bias + power) % top << fraction
        found += [one, one + 1, one - 1, one + (1 << fraction - 1)]
    found += [
        (top << fraction) - 1,
        top << fraction,
        (top << fraction) + 1,
        (top << fraction) + (1 << fraction - 1),
        (1 << exponent + fraction) - 1,
    ]
    return found + [value | 1 << exponent + fraction for value in found]


def _moderate(bits: np.ndarray, kind: str) -> np.ndarray:
    """Hashed bits as numbers whose size is from 2^-6 to 2^9."""
    exponent, fraction = _FLOATS[kind]
    bias = (1 << exponent - 1) - 1
    power = np.uint64(bias - 6) + (bits >> np.uint64(60))
    sign = bits >> np.uint64(59) & np.uint64(1)
    return (
        bits & np.uint64((1 << fraction) - 1)
        | power << np.uint64(fraction)
        | sign << np.uint64(exponent + fraction)
    )


@lru_cache(maxsize=256)
def operand(kind: str, position: int, count: int = COUNT) -> np.ndarray:
    """The operands of a type at a position of the operand list, as unsigned integers of its width."""
    if kind == "pred":
        return (hashed(count, 900 + position) & np.uint64(1)).astype(np.uint32)
    if kind.endswith("x2"):
        element = kind[:-2]
        low, high = operand(element, position, count), operand(element, position + 7, count)
        return low.astype(f"u{2 * low.itemsize}") | high.astype(f"u{2 * low.itemsize}") << (8 * low.itemsize)
    width = 8 * TYPES[kind].itemsize
    edges = np.array(
        [value & (1 << width) - 1 for value in (_float_edges(kind) if kind in _FLOATS else _INTEGERS)],
        np.uint64,
    )
    bits, chosen = hashed(count, position), hashed(count, 100 + position)
    found = edges[(chosen >> np.uint64(8)) % np.uint64(len(edges))]
    if position == 0:  # a unary instruction sees every edge
        found[: len(edges)] = edges[:count]
    middle = _moderate(bits, kind) if kind in _FLOATS else bits & np.uint64(0xFF)
    sort = chosen & np.uint64(3)
    sort[: len(edges)] = np.where(position == 0, 0, sort[: len(edges)])
    return np.select([sort < 2, sort == 2], [found, middle], bits).astype(f"u{width // 8}")


@dataclass(frozen=True)
class Asked:
    """One instruction with its operands."""

    form: Form

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def results(self) -> list[str]:
        """PTX types of the results that are stored."""
        keys = [key for key in self.form.row.operands.split("=")[0].split() if not key.endswith("?")]
        return [self.form.operand_type(key) for key in keys if key != "cc"]

    @property
    def sources(self) -> list[str]:
        keys = [key for key in self.form.row.operands.split("=")[1].split() if not key.endswith("?")]
        return [self.form.operand_type(key) for key in keys if key != "cc"]

    @property
    def arrays(self) -> list[np.ndarray]:
        """The operands, then room for the results."""
        out = [
            np.zeros(COUNT, "u4" if kind == "pred" else f"u{TYPES[kind].itemsize}") for kind in self.results
        ]
        return [operand(kind, position) for position, kind in enumerate(self.sources)] + out

    def entry(self, name: str) -> str:
        """A kernel of that name, of COUNT threads: loads each operand, runs the instruction, stores each
        result."""
        arrays = [f"a{index}" for index in range(len(self.sources))] + [
            f"o{index}" for index in range(len(self.results))
        ]
        parameters = ", ".join(f".param .u64 {name}_{array}" for array in arrays)
        code = "".join(
            f"    .reg .b64 %d_{array};\n    ld.param.b64 %d_{array}, [{name}_{array}];\n" for array in arrays
        )
        code += "    .reg .b32 %r_tid;\n    mov.u32 %r_tid, %tid.x;\n    mov.u32 %r60, %ctaid.x;\n"
        code += f"    mad.lo.u32 %r_tid, %r60, {THREADS}, %r_tid;\n"
        names = []
        for index, kind in enumerate(self.sources):
            register = f"%{_letter(kind)}{index + 1}"
            names.append(register)
            loaded, size = (f"%r{index + 40}", 4) if kind == "pred" else (register, TYPES[kind].itemsize)
            code += at(f"a{index}", size) + f"    ld.global.b{8 * size} {loaded}, [%d0];\n"
            code += f"    setp.ne.b32 {register}, {loaded}, 0;\n" * (kind == "pred")
        outputs = [f"%{_letter(kind)}{index + 10}" for index, kind in enumerate(self.results)]
        code += f"    {self.name} {', '.join((*outputs, *names))};\n"
        for index, (kind, register) in enumerate(zip(self.results, outputs)):
            code += f"    selp.b32 %r50, 1, 0, {register};\n" * (kind == "pred")
            size, stored = (4, "%r50") if kind == "pred" else (TYPES[kind].itemsize, register)
            code += at(f"o{index}", size) + f"    st.global.b{8 * size} [%d0], {stored};\n"
        return f".visible .entry {name}({parameters})\n.reqntid {THREADS}\n{{{REGISTERS}{code}    ret;\n}}\n"


@dataclass(frozen=True)
class AskedAtomic(Asked):
    """An atomic operation on memory of each thread's own: the sources are memory before and the operand, the
    results the old value and memory after."""

    @property
    def results(self) -> list[str]:
        return [self.form.type, self.form.type]

    @property
    def sources(self) -> list[str]:
        return [self.form.type, self.form.type]

    def entry(self, name: str) -> str:
        size = TYPES[self.form.type].itemsize
        parameters = ", ".join(f".param .u64 {name}_{array}" for array in ("a0", "a1", "o0", "o1"))
        code = "".join(
            f"    .reg .b64 %d_{a};\n    ld.param.b64 %d_{a}, [{name}_{a}];\n"
            for a in ("a0", "a1", "o0", "o1")
        )
        code += f"    .reg .b32 %r_tid;\n    .shared .align 8 .b8 {name}_own[{THREADS * size}];\n    mov.u32 %r_tid, %tid.x;\n"
        code += f"    mov.u32 %r59, {name}_own;\n    mad.lo.u32 %r59, %r_tid, {size}, %r59;\n"
        code += f"    mov.u32 %r60, %ctaid.x;\n    mad.lo.u32 %r_tid, %r60, {THREADS}, %r_tid;\n"
        letter, bits = _letter(self.form.type), 8 * size
        for index in range(2):
            code += at(f"a{index}", size) + f"    ld.global.b{bits} %{letter}{index + 1}, [%d0];\n"
        place, space = ("%r59", "shared") if self.form.has("shared") else ("%d0", "global")
        code += at("o1", size) + f"    st.{space}.b{bits} [{place}], %{letter}1;\n"
        code += f"    {self.name} %{letter}3, [{place}], %{letter}2;\n"
        if space == "shared":
            code += f"    ld.shared.b{bits} %{letter}4, [%r59];\n    st.global.b{bits} [%d0], %{letter}4;\n"
        code += at("o0", size) + f"    st.global.b{bits} [%d0], %{letter}3;\n"
        return f".visible .entry {name}({parameters})\n.reqntid {THREADS}\n{{{REGISTERS}{code}    ret;\n}}\n"


ATOMICS = [
    f"atom.{space}.{operation}"
    for space in ("global", "shared")
    for operation in (
        "add.f32",
        "add.f64",
        "add.noftz.f16",
        "add.noftz.bf16",
        "add.noftz.f16x2",
        "add.noftz.bf16x2",
        "inc.u32",
        "dec.u32",
        "min.s32",
        "max.u64",
        "exch.b32",
        "xor.b32",
    )
]


def asked(name: str) -> Asked:
    """The question with an instruction's name."""
    opcode, *modifiers = name.split(".")
    form = form_of(Instruction(opcode, tuple(modifiers), ()))
    return AskedAtomic(form) if opcode == "atom" else Asked(form)


def _letter(kind: str) -> str:
    return "p" if kind == "pred" else {1: "h", 2: "h", 4: "r", 8: "d"}[TYPES[kind].itemsize]


def module(asked: Sequence[Asked]) -> str:
    """PTX with the kernels `k0`, `k1`, … of these instructions."""
    return HEADER + "".join(each.entry(f"k{number}") for number, each in enumerate(asked))


def _spread(names: list[str], count: int) -> list[str]:
    """At most `count` of the names, from all over the list."""
    return names if len(names) <= count else [names[index * len(names) // count] for index in range(count)]


def candidates(row: InstructionSpec) -> Iterator[Asked]:
    """The forms of a lane-wise row that are asked; some of them may not be valid PTX."""
    for name in row.forms():
        opcode, *modifiers = name.split(".")
        yield Asked(Form(row, opcode, tuple(modifiers)))


LANE_ROWS = [
    row for row in TABLE if row.operands and not any(word in row.operands.split() for word in ("cc", "cc?"))
]
"""Rows whose instructions compute lane by lane; those of carries are pairs of instructions, with golden
programs."""
