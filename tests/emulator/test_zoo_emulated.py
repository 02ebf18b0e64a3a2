"""Every case of the zoo assembles for each target, and the compiler's own PTX, run by the emulator, gives numpy's
results."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from zoo import CASES, Bits

import kbuild
from tests.emulator.artifacts import emulate, outputs_of

ADVERSE = ["reverse", "random(1)", "starve(0)"]
"""Schedules that run every warp on its own."""


@cache
def compiled(name: str, arch: str) -> kbuild.Artifact:
    """The artifact of a case, compiled once for all tests here; of its texts the PTX and the cubin alone are kept."""
    case = CASES[name]
    signature = case.signature(case.make(np.random.default_rng(0)))
    artifact = kbuild.compile(
        case.source,
        signature=signature,
        constexprs=case.constexprs,
        target=arch,
        options=case.options(arch),
    )
    return replace(artifact, asm={stage: artifact.asm[stage] for stage in ("ptx", "cubin")})


def check(name: str, arch: str, schedule: str, checks: str = "") -> None:
    """Run a case and compare its outputs with numpy's."""
    case, artifact = CASES[name], compiled(name, arch)
    arguments = case.make(np.random.default_rng(1))
    given = {key: value.data if isinstance(value, Bits) else value for key, value in arguments.items()}
    report = emulate(artifact, given, case.grid, schedule=schedule, checks=checks).check()
    outputs = outputs_of(artifact, report)
    kinds = {key: value.type_name for key, value in arguments.items() if isinstance(value, Bits)}
    case.check(
        arguments,
        {key: Bits(output, kinds[key]) if key in kinds else output for key, output in outputs.items()},
    )


ON_EACH = [(name, arch) for name, case in CASES.items() for arch in case.archs]


@pytest.mark.parametrize(("name", "arch"), ON_EACH)
def test_case_assembles_without_spills(name: str, arch: str) -> None:
    artifact = compiled(name, arch)
    assert artifact.metadata.spill_stores == 0
    assert artifact.asm["cubin"].startswith(b"\x7fELF")


@pytest.mark.parametrize(("name", "arch"), ON_EACH)
def test_case_is_right_in_lockstep(name: str, arch: str) -> None:
    check(name, arch, "lockstep")


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_case_is_right_whichever_warp_runs_first_and_has_no_race(number: int) -> None:
    name = list(CASES)[number]
    archs = CASES[name].archs
    check(name, archs[-1 - number % 2 % len(archs)], ADVERSE[number % len(ADVERSE)], "strict")


@pytest.mark.parametrize(
    "name", ["dot_and_sum_loop", "dot_and_sum_specialized", "dot_of_written", "count_calls"]
)
def test_races_that_were_found_do_not_come_back(name: str) -> None:
    check(name, "sm_90", "round-robin", "strict")
