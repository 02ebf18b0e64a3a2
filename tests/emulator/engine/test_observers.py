"""The events of asynchronous operations that observers are notified of."""

from __future__ import annotations

import pytest

from tests.emulator.engine.asynchronous import bulk, copied, run_wgmma, wgmma_kernel


class Listener:
    """Records the events."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []
        self.touched: list[str] = []

    def accessed(self, kind, space, offsets, size, lanes, data, site) -> None:
        self.touched.append(f"{kind} {space.name} by {site[1].opcode}")

    def issued(self, operation) -> None:
        bytes_read, bytes_written = (
            sum(len(e.offsets) * e.size for e in extents) for extents in (operation.reads, operation.writes)
        )
        self.heard.append(("issued", operation.kind, bytes_read, bytes_written))

    def awaited(self, operation, threads, only_reads, site) -> None:
        self.heard.append(("awaited", operation.kind, len(threads), only_reads))

    def arrived(self, barrier, phase, site, operation) -> None:
        self.heard.append(("arrived", barrier[1], phase, operation.kind if operation else None))

    def passed(self, barrier, phase, site) -> None:
        self.heard.append(("passed", barrier[1], phase, len(site[2])))


@pytest.mark.parametrize("timing", ["early", "late"])
def test_observers_are_notified_of_issues_waits_and_phases(timing: str) -> None:
    listener = Listener()
    bulk(timing=timing, schedule="round-robin", observers=[listener]).check()
    loads = [("issued", "load", 1024, 1024), ("arrived", 4096, 0, "load")]
    assert [event for event in listener.heard if event[1] in ("load",) or event[-1] == "load"][:2] == loads
    assert (
        listener.heard.count(("passed", 4096, 0, 32)) == 4
        and listener.heard.count(("passed", 4096, 1, 32)) == 4
    )
    assert listener.heard.count(("arrived", 4096, 0, None)) == 1
    stores = [event for event in listener.heard if event[1] == "store"]
    assert stores == [("issued", "store", 1024, 1024), ("awaited", "store", 1, True)] * 2
    assert {"load global by cp", "store shared by cp", "load shared by cp", "store global by cp"} <= set(
        listener.touched
    )

    listener = Listener()
    run_wgmma(wgmma_kernel(8, 2, False), 8, 2, timing=timing, schedule="reverse", observers=[listener])
    assert listener.heard.count(("issued", "wgmma", 16 * 32 + 8 * 32, 0)) == 8
    assert listener.heard.count(("awaited", "wgmma", 32, False)) == 8

    listener = Listener()
    copied("cp.async.wait_group 0;", "bar.sync 0;", timing=timing, schedule="reverse", observers=[listener])
    assert listener.heard == [("issued", "copy", 512, 512), ("awaited", "copy", 32, False)] * 2
