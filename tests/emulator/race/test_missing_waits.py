"""A pipelined loop without one of its waits, groups or barriers: its output is wrong.

`early` timing hides the waits that are missing, so the same text gives the right answer there: the fault lies
in the timing.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from zoo import CASES

import kbuild
from tests.emulator.artifacts import emulate, outputs_of


@lru_cache
def kernel(name: str, arch: str) -> tuple[kbuild.Artifact, dict]:
    """A case's PTX with arguments for it."""
    case = CASES[name]
    arguments = case.make(np.random.default_rng(1))
    artifact = kbuild.compile(
        case.source,
        signature=case.signature(arguments),
        constexprs=case.constexprs,
        target=arch,
        stop="ptx",
        options=case.options(arch),
    )
    return artifact, arguments


def without(text: str, opcode: str, number: int) -> str:
    """The PTX without one of the instructions of a name."""
    lines = text.split("\n")
    places = [index for index, line in enumerate(lines) if line.strip().startswith(opcode)]
    lines[places[number]] = ""
    return "\n".join(lines)


def outcome(name: str, arch: str, text: str, timing: str) -> str:
    """`right`, `wrong`, or the kind of the first finding."""
    case, (artifact, arguments) = CASES[name], kernel(name, arch)
    schedule = "lockstep" if timing == "early" else "round-robin"
    report = emulate(artifact, arguments, case.grid, ptx=text, schedule=schedule, timing=timing, checks="")
    if report.findings:
        return report.findings[0].kind
    try:
        case.check(arguments, outputs_of(artifact, report))
    except AssertionError:
        return "wrong"
    return "right"


LOOP = ("dot_loop_256_stages3", "sm_80")
MATMUL = ("matmul_fp16", "sm_90")
STORES = ("fold_add_float16", "sm_90")
MISSING = [
    (*LOOP, "cp.async.wait_group", 0),
    (*LOOP, "cp.async.wait_group", 1),
    (*LOOP, "cp.async.commit_group", 0),
    (*LOOP, "cp.async.commit_group", 2),
    (*LOOP, "bar.sync", 0),
    (*MATMUL, "wgmma.wait_group", 1),
    (*MATMUL, "wgmma.commit_group", 0),
    (*STORES, "cp.async.bulk.wait_group", 0),
]


@pytest.mark.parametrize(("name", "arch", "opcode", "number"), MISSING)
def test_late_operations_show_what_is_missing(name: str, arch: str, opcode: str, number: int) -> None:
    text = kernel(name, arch)[0].asm["ptx"]
    for timing in ("early", "late"):
        assert outcome(name, arch, text, timing) == "right"
    broken = without(text, opcode, number)
    assert outcome(name, arch, broken, "early") == "right"
    assert outcome(name, arch, broken, "late") != "right"
