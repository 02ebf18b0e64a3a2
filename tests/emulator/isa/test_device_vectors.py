"""The emulator computes what an H200 computed: every lane-wise row, and MMAs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from kbuild.emulator import run
from kbuild.emulator.fp.convert import decode
from kbuild.emulator.isa.instruction_spec import TYPES, Accuracy
from kbuild.emulator.isa.table import form_of
from kbuild.emulator.ptx.parser import parse
from tests.emulator.isa.device_products import AskedMma
from tests.emulator.isa.device_vectors import COUNT, LANE_ROWS, THREADS, Asked, asked, module, operand
from tests.emulator.isa.products import BITS

UNDEFINED = {
    "bfe.": lambda sources: (sources[1] > 255) | (sources[2] > 255),
    "bfi.": lambda sources: (sources[2] > 255) | (sources[3] > 255),
    "cvt.rna": lambda sources: np.isnan(sources[0].view(np.float32)),
}
"""Operands for which the PTX ISA specifies no result, by the beginning of names."""


@lru_cache
def stored() -> dict[str, np.ndarray]:
    """The bytes of each answer."""
    file = np.load(Path(__file__).parent / "device_vectors.npz")
    ends = np.cumsum(file["sizes"].astype(np.int64))
    names = str(file["names"]).split("\n")
    return {name: file["results"][end - size : end] for name, size, end in zip(names, file["sizes"], ends)}


INSTRUCTIONS = [name for name in stored() if "/" not in name]
MMAS = [name for name in stored() if "/" in name]


def values(bits: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of float lanes as float64; pairs one after the other."""
    if kind.endswith("x2"):
        return values(np.ascontiguousarray(bits).view(f"u{bits.itemsize // 2}"), kind[:-2])
    with np.errstate(invalid="ignore"):
        return (bits.view(TYPES[kind]) if kind in ("f16", "f32", "f64") else decode(bits, kind)).astype(
            np.float64
        )


def differs(kind: str, here: np.ndarray, there: np.ndarray, accuracy: Accuracy | None) -> np.ndarray:
    """Where results differ: in any bit, or for floats in value and sign (payloads of NaN do not matter), or
    by the bound."""
    if kind.removesuffix("x2") not in ("f16", "bf16", "f32", "f64", "tf32", "e4m3", "e5m2"):
        return here != there
    mine, theirs = values(here, kind), values(there, kind)
    with np.errstate(all="ignore"):
        same = (np.isnan(mine) & np.isnan(theirs)) | (
            (mine == theirs) & (np.signbit(mine) == np.signbit(theirs))
        )
        if accuracy is not None:
            same |= error(kind, mine, theirs, accuracy.unit) <= accuracy.bound
    return ~same.reshape(len(here), -1).all(1)


def error(kind: str, mine: np.ndarray, theirs: np.ndarray, unit: str) -> np.ndarray:
    """How far the GPU's results are from the emulator's, less the half unit that rounding the latter may have
    cost."""
    fraction, lowest = {"f16": (10, -14), "bf16": (7, -126), "f32": (23, -126), "f64": (52, -1022)}[
        kind.removesuffix("x2")
    ]
    ulp = 2.0 ** (np.maximum(np.floor(np.log2(np.abs(mine))), lowest) - fraction)
    distance = np.abs(mine - theirs)
    exact = np.maximum(distance - 0.5 * ulp, 0)
    relative = exact / np.abs(mine)
    return {
        "ulp": exact / ulp,
        "relative": relative,
        "absolute": exact,
        "either": np.minimum(exact, relative),
    }[unit]


def outside(question: Asked) -> np.ndarray:
    """The operands for which no result is specified."""
    sources = question.arrays[: len(question.sources)]
    skipped = np.zeros(COUNT, bool)
    for start, undefined in UNDEFINED.items():
        if question.name.startswith(start):
            skipped |= undefined(sources)
    if question.form.opcode in ("sin", "cos"):
        skipped |= ~(np.abs(sources[0].view(np.float32)) <= np.float32(np.pi))
    return skipped


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instruction_gives_what_the_gpu_gives(name: str) -> None:
    question = asked(name)
    sources = question.arrays[: len(question.sources)]
    report = run(module([question]), "k0", (COUNT // THREADS,), THREADS // 32, 0, question.arrays).check()
    place = 0
    for kind, found in zip(question.results, report.outputs[len(sources) :]):
        assert found is not None
        wanted = stored()[name][place : place + found.nbytes].view(found.dtype)
        place += found.nbytes
        shown = "tf32" if ".tf32." in name else kind
        wrong = np.flatnonzero(differs(shown, found, wanted, question.form.row.accuracy) & ~outside(question))
        lines = [
            f"{[hex(source[lane]) for source in sources]}: {found[lane]:#x}, GPU {wanted[lane]:#x}"
            for lane in wrong[:5]
        ]
        assert not lines, f"{name}: {len(wrong)} of {COUNT} differ\n" + "\n".join(lines)


def test_every_lane_wise_row_was_measured() -> None:
    rows = {asked(name).form.row.pattern for name in INSTRUCTIONS}
    wrong = [row.pattern for row in LANE_ROWS if (row.pattern in rows) == bool(row.unasked)]
    assert not wrong, "ask a GPU by tests/gpu/make_device_vectors.py, or say in the row why none was asked"


def test_operands_hold_the_edges() -> None:
    found = operand("f32", 0).view(np.float32)
    assert np.isnan(found).any() and np.isinf(found).any() and (found == 0).any()
    assert ((found != 0) & (np.abs(found) < np.finfo(np.float32).tiny)).any()


BOUNDS = {("wgmma", "e4m3"): 2.0**-12, ("wgmma", "e5m2"): 2.0**-12, ("mma", "f64"): 2.0**-51}
"""How far tensor cores may be from the exact sum, as a part of the largest result; 2^-22 by
default.  Sums are truncated, not rounded, and wgmma keeps only about 13 bits in between for 8-bit floats."""


@pytest.mark.parametrize("name", MMAS)
def test_mma_is_close_to_what_the_gpu_gives(name: str) -> None:
    instruction, seed = name.split("/")
    program = AskedMma(instruction, int(seed)).program
    found = program.run().check().outputs[-1]
    assert found is not None
    words = instruction.split(".")
    result, factor, *_ = [word for word in words if word in BITS]
    here, there = (
        found.ravel().view(TYPES[result]).astype(np.float64),
        stored()[name].view(TYPES[result]).astype(np.float64),
    )
    bound = 0.0 if result[0] == "s" else BOUNDS.get((words[0], factor), 2.0**-22)
    assert np.abs(here - there).max() <= bound * np.abs(there).max()


def test_questions_are_of_the_table() -> None:
    for name in INSTRUCTIONS[::40]:
        function = parse(module([asked(name)])).functions[0]
        assert any(form_of(instruction).name == name for instruction in function.instructions)
