"""The race detector: for each rule a kernel that breaks it, and its twin that does not."""

from __future__ import annotations

import pytest

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.race import RaceDetector
from tests.emulator.emulated import at
from tests.emulator.race.kernels import EXCHANGE, HANDED_OVER, PIPELINE, REMOTE, WGMMA
from tests.emulator.race.races import findings, kinds_of
from tests.emulator.race.rules import GRIDS, RULES


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found_and_its_twin_is_clean(name: str, schedule: str) -> None:
    kind, body, word = (*RULES[name], "x")[:3]
    together = body in (REMOTE, HANDED_OVER)
    options: dict = {"cluster": (2, 1, 1)} if together else {}
    options |= {"schedule": schedule, "grid": 2 if together else GRIDS.get(name, 1)}
    options |= {"threads": 128 if body in (WGMMA, PIPELINE) else 64}
    kinds = kinds_of(body, word, **options)
    assert kind in kinds or (kind, kinds) == ("race", {"mbarrier-misuse"})


def test_a_report_names_both_accesses_and_counts() -> None:
    everything = findings(EXCHANGE, "x", threads=64, schedule="reverse")
    found = next(each for each in everything if "reads shared address 0x80" in each.message)
    assert found.instruction is not None and found.instruction.name == "ld.shared.b32"
    assert found.other is not None and found.other.name == "st.shared.b32"
    assert "warp 0, lane 0 reads shared address 0x80" in str(found) and "which warp 1, lane 0 wrote" in str(
        found
    )
    assert f"against PTX line {found.other.line}: st.shared.b32" in str(found)


def test_reads_of_what_the_host_has_not_written() -> None:
    body = at("y", 4) + "ld.global.b32 %r1, [%d0];\n st.global.b32 [%d0], %r1;"
    assert not findings(body, threads=64)
    (found,) = findings(body, threads=64, checks="", observers=[RaceDetector(unwritten=[1])])
    assert found.kind == "uninitialised-read" and "argument 1" in found.message


def test_other_ctas_are_named() -> None:
    (found,) = findings("mov.u32 %r1, %ctaid.x;\n st.global.b32 [%d_y], %r1;", threads=32, grid=2)
    assert "which warp 0, lane 31 of CTA (0, 0, 0) wrote" in found.message and found.cta == (1, 0, 0)


def test_lenient_checks_forgive_what_hardware_does() -> None:
    for name in ("register_that_a_path_leaves_out", "store_without_proxy_fence"):
        assert not findings(RULES[name][1], "x", threads=64, checks="lenient")
    with pytest.raises(EmulationError, match="unknown checks 'loose'"):
        findings(EXCHANGE, checks="loose")
