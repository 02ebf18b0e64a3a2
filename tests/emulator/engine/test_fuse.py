"""Fused instructions give the same results as separate ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from kbuild.emulator.engine.launch import Report, run
from kbuild.emulator.engine.program import Program, load
from kbuild.emulator.isa.instruction_spec import TYPES
from tests.emulator.emulated import at, kernel
from tests.emulator.isa.programs import PROGRAMS
from tests.emulator.isa.test_golden import BY_NAME, form_named

REGISTERS = 12


def fused(text: str) -> Program:
    """A program whose blocks have run before, so that like instructions are fused from the start."""
    program = load(text, "test")
    for number in range(2 * len(program.blocks)):
        program.steps_of(number // 2, whole=True)
    return program


def names(text: str) -> list[str]:
    """The instructions of a kernel's first block as they run, with how many are one."""
    return [
        f"{step.instruction.opcode} {len(step.members) or 1}" for step in fused(text).steps_of(0, whole=True)
    ]


def steps(body: str) -> list[str]:
    first = names(kernel("", ["out"]))
    return names(kernel(body, ["out"]))[len(first) :]


def test_like_instructions_move_forwards_to_the_first_of_them() -> None:
    found = steps(
        "cvt.u64.u32 %d1, %r1;\nst.global.b64 [%d_out], %d1;\ncvt.u64.u32 %d2, %r2;\ncvt.u64.u32 %d3, %r3;\n"
    )
    assert found == ["cvt 3", "st 1"]


@pytest.mark.parametrize(
    "between",
    [
        "mov.b32 %r2, 7;",  # what it reads is written in between,
        "add.u32 %r9, %r5, %r1;",  # what it writes is read,
        "xor.b32 %r5, %r1, %r1;",  # or written,
        "bar.sync 0;",  # or something waits.
    ],
)
def test_instructions_stay_behind_what_they_depend_on(between: str) -> None:
    like = "not.b32 %r3, %r1;\nnot.b32 %r4, %r1;\n"
    assert "not 3" in steps(like + "not.b32 %r5, %r2;")
    assert "not 3" not in steps(like + between + "\nnot.b32 %r5, %r2;\n")


def test_instructions_that_can_fault_keep_their_order() -> None:
    shuffles = [f"shfl.sync.idx.b32 %r{number}, %r1, {number}, 31, -1;" for number in (3, 4, 5)]
    assert steps("\n".join(shuffles)) == ["shfl 3"]
    shuffles.insert(2, "ld.global.b32 %r9, [%d_out];")
    assert steps("\n".join(shuffles)) == ["shfl 1", "shfl 1", "ld 1", "shfl 1"]


def test_a_step_with_another_function_stays_alone() -> None:
    program = load(kernel("not.b32 %r3, %r1;\nnot.b32 %r4, %r1;\nnot.b32 %r5, %r1;\n"), "test")
    changed = [replace(step, function=lambda *lanes, where=True: None) for step in program.blocks[0].steps]
    program = replace(program, blocks=(replace(program.blocks[0], steps=tuple(changed)), *program.blocks[1:]))
    assert program.steps_of(0, whole=True) == program.steps_of(0, whole=True) == tuple(changed)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_golden_programs_give_the_same_results_and_findings(program) -> None:
    def launched(loaded: Program, checks: str = "") -> Report:
        warps = -(-program.threads // 32)
        arrays = list(program.arrays.values())
        return run(
            loaded,
            "test",
            program.grid,
            warps,
            program.shared,
            arrays,
            cluster=program.cluster,
            checks=checks,
        )

    report = launched(fused(program.text)).check()
    for name, expected in program.expected.items():
        np.testing.assert_array_equal(report.outputs[list(program.arrays).index(name)], expected)
    plain, together = (
        launched(loaded, "strict") for loaded in (load(program.text, "test"), fused(program.text))
    )
    assert (list(map(str, together.findings)), together.steps) == (
        list(map(str, plain.findings)),
        plain.steps,
    )


def random_code(random: np.random.Generator) -> Iterator[str]:
    """Instructions on few registers, so that they depend on each other in all ways."""
    for _ in range(120):
        a, b, c, d = random.integers(1, REGISTERS + 1, 4)
        yield [
            f"add.u32 %r{a}, %r{b}, %r{c};",
            f"mov.b32 %r{a}, %r{b};",
            f"shl.b32 %r{a}, %r{b}, {d};",
            f"min.s32 %r{a}, %r{b}, %r{c};",
            f"setp.lt.u32 %p{a}, %r{b}, %r{c};",
            f"selp.b32 %r{a}, %r{b}, %r{c}, %p{d};",
            f"lop3.b32 %r{a}, %r{b}, %r{c}, %r{d}, {random.choice([0x96, 0xE8])};",
            f"@%p{d} xor.b32 %r{a}, %r{b}, %r{c};",
            f"shfl.sync.bfly.b32 %r{a}, %r{b}, {c}, 31, -1;",
            f"popc.b32 %r{a}, %r{b};",
        ][random.integers(10)]


@pytest.mark.parametrize("seed", range(12))
def test_random_code_gives_the_same_results(seed: int) -> None:
    random = np.random.default_rng(seed)
    begin = "".join(
        f"mul.lo.u32 %r{n}, %r_tid, {n * 0x9E3779B1 & 0xFFFFFFFF};\nsetp.gt.s32 %p{n}, %r{n}, 0;\n"
        for n in range(1, REGISTERS + 1)
    )
    ending = "".join(
        at("out", 4, index=f"%r{20}") + f"st.global.b32 [%d0], %r{n};\nadd.u32 %r20, %r20, 64;\n"
        for n in range(1, REGISTERS + 1)
    )
    text = kernel(
        begin + "\n".join(random_code(random)) + "\nmov.u32 %r20, %r_tid;\n" + ending, ["out"], threads=64
    )
    plain, together = (
        run(program, "test", (1,), 2, 0, [np.zeros(64 * REGISTERS, np.uint32)], schedule="reverse")
        .check()
        .outputs[0]
        for program in (load(text, "test"), fused(text))
    )
    np.testing.assert_array_equal(together, plain)
    assert any(step.members for step in fused(text).steps_of(0, whole=True))


@pytest.mark.parametrize(
    "name", sorted(name for name in BY_NAME if form_named(name).row.meaning and name != "lop3.b32")
)
def test_what_a_lane_gets_depends_on_that_lane_alone(name: str) -> None:
    form, random = form_named(name), np.random.default_rng(1)
    kinds = [
        "pred" if key == "cc" else form.operand_type(key) for key in form.row.operands.split("=")[1].split()
    ]
    sources = [
        random.integers(0, 256, 64 * TYPES[kind].itemsize, np.uint8).view(TYPES[kind]) for kind in kinds
    ]
    sources = [source.view(np.uint8) > 127 if source.dtype == bool else source for source in sources]
    assert form.row.meaning is not None
    with np.errstate(all="ignore"):
        whole = form.row.meaning(form)(*sources)
        parts = [
            form.row.meaning(form)(*(source[half] for source in sources))
            for half in (slice(32), slice(32, 64))
        ]
    for result, *halves in zip(
        *(found if isinstance(found, tuple) else (found,) for found in (whole, *parts))
    ):
        assert result.tobytes() == np.concatenate(halves).tobytes()
