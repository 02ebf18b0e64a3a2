"""The records of architectures: where they come from, their order, and which devices run what."""

from __future__ import annotations

from pathlib import Path

import pytest

import kbuild.targets
from kbuild.compiler.ir.types import bit_width, scalar
from kbuild.errors import UsageError
from kbuild.targets import ARCHS, TARGETS, Target, capability_of, devices_of, find_target
from kbuild.targets.devices import Devices
from kbuild.targets.elements import ELEMENT_BITS

DEVICES = (75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121, 130)
"""Compute capabilities of devices; 13.0 is one that there is not yet."""


def test_each_file_is_an_architecture_and_they_stand_by_capability() -> None:
    files = {file.stem for file in Path(kbuild.targets.__file__).parent.glob("sm_*.py")}
    assert files == set(ARCHS) and list(ARCHS) == sorted(ARCHS, key=capability_of)


@pytest.mark.parametrize(
    ("arch", "is_ptx", "expected"),
    [
        ("sm_80", False, {80, 86, 87, 89}),
        ("sm_86", False, {86, 87, 89}),
        ("sm_89", False, {89}),
        ("sm_90", False, {90}),
        ("sm_90a", False, {90}),
        ("sm_100", False, {100, 101, 103}),
        ("sm_100f", False, {100, 101, 103}),
        ("sm_120", False, {120, 121}),
        ("sm_80", True, {80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121, 130}),
        ("sm_90", True, {90, 100, 101, 103, 110, 120, 121, 130}),
        ("sm_90a", True, {90}),
        ("sm_100f", True, {100, 101, 103}),
        ("sm_120", True, {120, 121, 130}),
    ],
)
def test_which_devices_run_what(arch: str, is_ptx: bool, expected: set[int]) -> None:
    devices = devices_of(arch, is_ptx)
    assert {capability for capability in DEVICES if devices.have(capability)} == expected


def test_names_that_are_no_architecture_are_refused() -> None:
    for name in ("sm_90b", "sm90", "compute_90", ""):
        with pytest.raises(UsageError, match="unknown architecture"):
            devices_of(name)
    with pytest.raises(UsageError, match="unknown architecture 'sm_70'") as caught:
        find_target("sm_70")
    assert caught.value.help == f"known: {', '.join(ARCHS)}"


def test_a_target_runs_on_what_its_cubins_run_on() -> None:
    assert find_target("sm_80").devices == Devices(80, 89)
    assert find_target("sm_90").runs_on(90) and not find_target("sm_90").runs_on(89)


def test_elements_are_the_ir_s() -> None:
    assert {name: bit_width(scalar(name)) for name in ELEMENT_BITS} == ELEMENT_BITS


@pytest.mark.parametrize("target", TARGETS.values(), ids=ARCHS)
def test_what_is_portable_has_nothing_of_one_capability(target: Target) -> None:
    portable = target.portable()
    assert portable.arch == target.arch and portable.limits == target.limits
    assert not portable.wgmma_atoms and not portable.accelerated_arch and not portable.has("wgmma")
    assert portable.portable() == portable


def test_programs_at_once_are_bounded_by_each_of_the_limits() -> None:
    limits = find_target("sm_90").limits
    assert limits.programs(0, 4) == 16  # 64 warps
    assert limits.programs(100 * 1024, 4) == 2  # and 1 KB for each
    assert limits.programs(0, 4, registers=128) == 4  # 65,536 registers
    assert limits.programs(limits.shared_bytes, 4) == 1 and limits.programs(limits.shared_bytes + 1, 4) == 0
    assert limits.registers_for(128) == 255 and limits.registers_for(1024) == 64


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "warps", "programs", "limited_by"),
    [
        ("sm_80", 64, 0, 8, 4, ("registers",)),
        ("sm_80", 32, 0, 8, 8, ("warps", "registers")),
        ("sm_80", 32, 160 * 1024, 4, 1, ("shared memory",)),
        ("sm_90", 16, 0, 4, 16, ("warps",)),
        # A program of one warp: the multiprocessor holds 32 of them, on Ada 24, and 16 on the small Ampere.
        ("sm_80", 16, 0, 1, 32, ("programs",)),
        ("sm_89", 16, 0, 1, 24, ("programs",)),
        ("sm_86", 16, 0, 1, 16, ("programs",)),
        ("sm_86", 16, 120 * 1024, 1, 0, ("shared memory",)),  # It cannot be launched there.
    ],
)
def test_occupancy_says_what_there_is_too_little_of(
    arch: str, registers: int, shared: int, warps: int, programs: int, limited_by: tuple[str, ...]
) -> None:
    """As NVIDIA's occupancy calculator has it."""
    limits = find_target(arch).limits
    found = limits.occupancy(shared, warps, registers)
    assert (found.programs, found.limits) == (programs, limited_by)
    assert found.share == programs * warps / limits.max_warps
