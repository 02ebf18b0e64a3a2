"""The fake driver's results are those of an H200's driver: `probes.json` has these for the same calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kbuild.emulator.driver import FakeDriver
from tests.emulator.driver.cuda import ADD_ONE
from tests.emulator.driver.probes.probes import ask
from tests.emulator.driver.probes.table import FATAL, PROBES

HARDWARE: dict[str, Any] = json.loads(Path(__file__).with_name("probes.json").read_text())
_HEADER = b"\x7fELF\x02\x01\x01" + bytes(33) + (96).to_bytes(8, "little") + bytes(16)
IMAGES = {arch: _HEADER + arch.encode().ljust(32) for arch in ("sm_80", "sm_90")}
OTHERWISE = {
    **{f"map: element {number}": "the emulator does not flush in copies" for number in (10, 12)},
    **{
        f"capture {kind}: destroying it": "a stream that is gone has no answer; once the driver crashed"
        for kind in ("global", "global of a non-blocking stream", "thread", "relaxed")
    },
}
"""The probes for which the fake driver's result differs, and why."""


def opened(libraries: Path) -> FakeDriver:
    driver = FakeDriver(["sm_90"], folder=libraries)
    for arch, image in IMAGES.items():
        driver.register(image, ADD_ONE.replace("sm_80", arch))
    return driver


def test_every_probe_has_been_run_on_hardware() -> None:
    assert set(HARDWARE) == set(PROBES)


def test_all_answers_are_those_of_hardware(libraries: Path) -> None:
    with opened(libraries) as driver:
        answers = {name: ask(str(driver.path), name, IMAGES) for name in PROBES if name not in FATAL}
    for name in FATAL:
        with opened(libraries) as driver:
            answers[name] = ask(str(driver.path), name, IMAGES)
    different = {name: (answers[name], HARDWARE[name]) for name in PROBES if answers[name] != HARDWARE[name]}
    assert {name: both for name, both in different.items() if name not in OTHERWISE} == {}
    assert set(different) == set(OTHERWISE)
