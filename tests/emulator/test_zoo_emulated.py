"""Every case of the zoo: the compiler's own PTX, run by the emulator, gives numpy's results."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from zoo import CASES, Bits

import kbuild
from tests.emulator.artifacts import emulate, outputs_of

ADVERSE = ["reverse", "random(1)", "starve(0)"]
"""Schedules that run every warp on its own."""


@lru_cache
def compiled(name: str, arch: str) -> kbuild.Artifact:
    """The artifact of a case."""
    case = CASES[name]
    signature = case.signature(case.make(np.random.default_rng(0)))
    return kbuild.compile(
        case.source,
        signature=signature,
        constexprs=case.constexprs,
        target=arch,
        stop="ptx",
        options=case.options(arch),
    )


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


@pytest.mark.parametrize(
    ("name", "arch"), [(name, arch) for name, case in CASES.items() for arch in case.archs]
)
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
