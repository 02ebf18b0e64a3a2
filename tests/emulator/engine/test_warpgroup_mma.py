"""MMAs of a warp group in kernels: correct for every timing and schedule, and missing waits show."""

from __future__ import annotations

import pytest

from tests.emulator.engine.asynchronous import SCHEDULES, both, run_wgmma, wgmma_kernel


@pytest.mark.parametrize("registers", [False, True], ids=["memory", "registers"])
@both
def test_wgmmas(timing: str, schedule: str, registers: bool) -> None:
    report, wanted = run_wgmma(wgmma_kernel(16, 4, registers), 16, 4, timing=timing, schedule=schedule)
    assert (report.check().outputs[2] == wanted).all()


def test_wgmmas_that_are_never_waited_for_show() -> None:
    for wait in ("", "wgmma.wait_group.sync.aligned 1;"):
        text = wgmma_kernel(8, 2, False, wait)
        report, wanted = run_wgmma(text, 8, 2, timing="late")
        assert (report.outputs[2] != wanted).any()
    report, wanted = run_wgmma(wgmma_kernel(8, 2, False).replace("    wgmma.fence.sync.aligned;\n", ""), 8, 2)
    assert report.findings[0].kind == "wgmma-registers"


def test_wgmmas_of_part_of_a_warpgroup_are_refused() -> None:
    text = wgmma_kernel(8, 1, False).replace(
        "    wgmma.mma_async", "    setp.lt.u32 %p5, %r_tid, 96;\n    @%p5 wgmma.mma_async"
    )
    for schedule in SCHEDULES:
        report, _ = run_wgmma(text, 8, 1, schedule=schedule)
        assert report.findings[0].kind == "wgmma-divergent"
    text = wgmma_kernel(8, 1, False).replace("0x4000004000000000", "0x4002004000000000")
    assert run_wgmma(text, 8, 1)[0].findings[0].kind == "wgmma-descriptor"
