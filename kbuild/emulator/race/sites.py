"""What the detector must know of an instruction: its proxy, its order, and how to speak of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbuild.emulator.ptx import Instruction

_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")
_BULK = ("cp.async.bulk", "cp.reduce.async.bulk")


@dataclass(frozen=True, eq=False)
class Site:
    """One instruction."""

    number: int
    instruction: Instruction
    strong: bool
    """Whether two of its kind on one address are no race: atomic operations, and accesses with an order."""
    acquires: bool
    releases: bool
    modifies: bool
    """Whether it reads and writes at once, which keeps a chain of releases going."""
    within_cta: bool
    """Whether its order is for threads of the CTA alone."""
    asynchronous: bool
    """Whether its accesses take place later; they are heard of as operations."""
    async_proxy: bool
    """Whether its accesses go through the asynchronous proxy."""


class Sites:
    """The instructions met so far, by number from 1 on."""

    def __init__(self) -> None:
        self._found: dict[int, Site] = {}
        self.sites: list[Site | None] = [None]
        self.strong = np.zeros(64, bool)
        """By number: whether the instruction's accesses are strong."""
        self.generic = np.ones(64, bool)
        """By number: whether its accesses go through the generic proxy."""

    def of(self, instruction: Instruction) -> Site:
        """The site of an instruction."""
        site = self._found.get(id(instruction))
        if site is None:
            site = self._found[id(instruction)] = _describe(len(self.sites), instruction)
            self.sites.append(site)
            if site.number >= len(self.strong):
                self.strong = np.concatenate([self.strong, np.zeros(len(self.strong), bool)])
                self.generic = np.concatenate([self.generic, np.ones(len(self.generic), bool)])
            self.strong[site.number], self.generic[site.number] = site.strong, not site.async_proxy
        return site

    def numbered(self, number: int) -> Site:
        site = self.sites[number]
        assert site is not None
        return site


def uses_async_proxy(instruction: Instruction) -> bool:
    """Whether an instruction's accesses go through the asynchronous proxy: products of warpgroups, bulk and tensor copies."""
    return instruction.name.startswith(("wgmma.mma_async", *_BULK))


def _describe(number: int, instruction: Instruction) -> Site:
    name, words = instruction.name, instruction.modifiers
    atomic = instruction.opcode in ("atom", "red") or name.startswith("cp.reduce")
    barrier = instruction.opcode == "mbarrier" and words[0] not in ("init", "inval")
    signal = name.startswith("cp.async.mbarrier")
    return Site(
        number, instruction, atomic or barrier or signal or _any(_STRONG, words),
        acquires=_any(("acquire", "acq_rel"), words) and not barrier,
        releases=_any(("release", "acq_rel"), words) and not barrier, modifies=atomic, within_cta="cta" in words,
        asynchronous=uses_async_proxy(instruction) or (name.startswith("cp.async") and not signal),
        async_proxy=uses_async_proxy(instruction),
    )  # fmt: skip


def _any(wanted: Sequence[str], words: Sequence[str]) -> bool:
    return any(word in words for word in wanted)
