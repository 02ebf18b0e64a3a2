"""Collects findings: one report for each pair of instructions, with a count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kbuild.emulator.engine.findings import Finding
from kbuild.emulator.ptx.model import PtxModule
from kbuild.emulator.race.sites import InstructionSite

KINDS = {
    "race": "two accesses of one byte, one of them a write, that nothing orders",
    "warp-race": "the same between threads of one warp, which bar.warp.sync would order",
    "proxy-fence": "data written through the generic proxy and used by the asynchronous one without fence.proxy.async on the way",
    "proxy-fence-reuse": "data read through the generic proxy and overwritten by the asynchronous one without fence.proxy.async",
    "tensormap-fence": "a tensor map that the kernel wrote, used without fence.proxy.tensormap: release, then acquire of the map",
    "uninitialised-read": "a read of memory that was never written",
    "read-only-load": "a ld.global.nc of memory that the kernel has written",
    "uninitialised-register": "a read of a register that the thread has not written",
    "wgmma-fence": "registers of a wgmma touched after the last wgmma.fence before it",
    "wgmma-registers": "registers of a wgmma touched before it has been waited for",
    "mbarrier-fence": "a copy that notifies an mbarrier made without fence.proxy.async or fence.mbarrier_init on the way",
    "mbarrier-reuse": "an mbarrier initialised again without mbarrier.inval, between two phases",
    "unfinished": "asynchronous operations on shared memory under way when the CTA ends",
    "ended-peer": "shared memory of a CTA of the cluster used by another, and nothing orders that before the CTA's end",
    "before-wait": "memory that an earlier launch may still work on, touched before griddepcontrol.wait",
}
"""The kinds of findings, and what each means."""

LENIENT = ("proxy-fence", "proxy-fence-reuse", "mbarrier-fence", "mbarrier-reuse", "uninitialised-register")
"""Kinds that break the letter of the PTX ISA in ways that today's hardware is known to forgive."""


class Reports:
    """Findings of one launch."""

    def __init__(self, module: PtxModule, without: frozenset[str]) -> None:
        self.module = module
        self.without = without
        """Kinds to leave out."""
        self._found: dict[tuple[str, int, int], Finding] = {}

    def is_first(self, kind: str, site: InstructionSite, other: InstructionSite | None = None) -> bool:
        """Whether a finding is the first of its kind and place; if it is not, it is counted."""
        if kind in self.without:
            return False
        key = (kind, site.number, other.number if other else 0)
        old = self._found.get(key)
        if old is not None:
            self._found[key] = replace(old, count=old.count + 1)
        return old is None

    def add(
        self,
        kind: str,
        message: str,
        site: InstructionSite,
        batch: Any,
        warps: tuple[int, ...],
        other: InstructionSite | None = None,
    ) -> None:
        """A finding at an instruction, perhaps against an `other` one that came before it."""
        place = self.module.place
        self._found[kind, site.number, other.number if other else 0] = Finding(
            kind,
            message,
            site.instruction,
            place(site.instruction),
            batch.cta.index,
            warps,
            other.instruction if other else None,
            place(other.instruction) if other else None,
        )

    def findings(self) -> list[Finding]:
        return list(self._found.values())
