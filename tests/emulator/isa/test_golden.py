"""Every row of the table of opcodes gives the values that the PTX ISA specifies, through parser, decoder and
engine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kbuild.emulator.isa.instruction_spec import TYPES
from kbuild.emulator.isa.table import TABLE, Form, form_of
from kbuild.emulator.ptx.model import Instruction
from kbuild.emulator.ptx.parser import parse
from tests.emulator.emulated import at, launch
from tests.emulator.isa.programs import PROGRAMS

LINES = [
    [part.strip() for part in line.split("|")]
    for line in (Path(__file__).parent / "golden_lanes.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]
BY_NAME: dict[str, list[tuple[list[str], list[str]]]] = defaultdict(list)
for name, sources, expected in LINES:
    BY_NAME[name].append((sources.split(), expected.split()))


def form_named(name: str) -> Form:
    opcode, *modifiers = name.split(".")
    return form_of(Instruction(opcode, tuple(modifiers), ()))


def bits_of(text: str, kind: str) -> int:
    """The bits of a number of the file, as the type's lanes hold them."""
    dtype = TYPES[kind]
    if text.startswith("0x") or dtype.kind not in "f":
        value = int(text, 0)
        return value & ((1 << 8 * max(dtype.itemsize, 1)) - 1)
    return int(np.array(float(text), dtype).view(f"u{dtype.itemsize}"))


def kinds(form: Form) -> tuple[list[str], list[str]]:
    """Types of the results and of the sources."""
    left, right = (side.split() for side in form.row.operands.split("="))
    return [form.operand_type(key) for key in left if not key.endswith("?")], [
        form.operand_type(key) for key in right
    ]


def letter(kind: str) -> str:
    return "p" if kind == "pred" else {1: "h", 2: "h", 4: "r", 8: "d"}[TYPES[kind].itemsize]


def body_for(name: str, left: list[str], right: list[str], count: int) -> str:
    """Loads each source, runs the instruction, stores each result."""
    code, names = "", []
    for index, kind in enumerate(right[:count]):
        size = 4 if kind == "pred" else TYPES[kind].itemsize
        register = f"%{letter(kind)}{index + 1}"
        names.append(register)
        loaded = f"%r{index + 40}" if kind == "pred" else register
        code += at(f"a{index}", size) + f"    ld.global.b{8 * size} {loaded}, [%d0];\n"
        if kind == "pred":
            code += f"    setp.ne.b32 {register}, {loaded}, 0;\n"
    outputs = [f"%{letter(kind)}{index + 10}" for index, kind in enumerate(left)]
    code += f"    {name} {', '.join((*outputs, *names))};\n"
    for index, (kind, register) in enumerate(zip(left, outputs)):
        if kind == "pred":
            code += f"    selp.b32 %r50, 1, 0, {register};\n"
        size = 4 if kind == "pred" else TYPES[kind].itemsize
        code += (
            at(f"o{index}", size)
            + f"    st.global.b{8 * size} [%d0], {'%r50' if kind == 'pred' else register};\n"
        )
    return code


@pytest.mark.parametrize("name", BY_NAME)
def test_values_are_the_golden_ones(name: str) -> None:
    cases, (left, right) = BY_NAME[name], kinds(form_named(name))
    arrays: dict[str, np.ndarray] = {}
    for index, kind in enumerate(right[: len(cases[0][0])]):
        dtype = np.dtype("u4") if kind == "pred" else np.dtype(f"u{TYPES[kind].itemsize}")
        arrays[f"a{index}"] = np.resize(
            np.array([bits_of(sources[index], kind) for sources, _ in cases], dtype), 32
        )
    for index, kind in enumerate(left):
        arrays[f"o{index}"] = np.zeros(32, "u4" if kind == "pred" else f"u{TYPES[kind].itemsize}")
    body = body_for(name, left, right, len(cases[0][0]))
    report = launch(body, arrays).check()
    for index, kind in enumerate(left):
        found = report.outputs[len(arrays) - len(left) + index]
        assert found is not None
        for lane, (sources, expected) in enumerate(cases):
            value, want = int(found[lane]), bits_of(expected[index], kind)
            if expected[index] == "nan":
                assert np.isnan(found[lane : lane + 1].view(TYPES[kind])[0]), f"{name} {sources}: {value:#x}"
            else:
                assert value == want, f"{name} {sources}: {value:#x}, expected {want:#x}"


def test_every_row_has_a_golden_test() -> None:
    rows = {form_named(name).row.pattern for name in BY_NAME}
    for program in PROGRAMS:
        for function in parse(program.text).functions:
            rows |= {form_of(instruction).row.pattern for instruction in function.instructions}
    missing = [row.pattern for row in TABLE if row.pattern not in rows]
    assert not missing, missing


def test_no_two_rows_take_the_same_form() -> None:
    seen: dict[str, str] = {}
    for row in TABLE:
        if not row.unordered:
            for form in row.forms():
                assert form not in seen, f"{form} is of {seen[form]} and of {row.pattern}"
                seen[form] = row.pattern


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_give_the_golden_outputs(program) -> None:
    report = program.run().check()
    for name, expected in program.expected.items():
        found = report.outputs[list(program.arrays).index(name)]
        np.testing.assert_array_equal(found, expected, err_msg=f"{program.name}: {name}")
