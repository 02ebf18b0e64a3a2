"""What the detector must know of an instruction: its proxy, its order and scope, and its name in reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbuild.emulator.ptx.model import Instruction

_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")
_BULK = ("cp.async.bulk", "cp.reduce.async.bulk")
WEAK, CTA, CLUSTER, DEVICE = range(4)
"""Scopes: among which threads an access or a fence orders.  Those of the system are threads of the device
here."""
_SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": DEVICE, "sys": DEVICE, "gl": DEVICE}


@dataclass(frozen=True, eq=False)
class InstructionSite:
    """One instruction."""

    number: int
    instruction: Instruction
    scope: int
    """Of strong accesses (atomic operations, and accesses with an order): two of them on one address are not
    a race where the scope of each holds both threads.  `WEAK` for others."""
    acquires: bool
    releases: bool
    modifies: bool
    """Whether it reads and writes at once, which keeps a chain of releases going."""
    asynchronous: bool
    """Whether its accesses take place later; they are observed as operations."""
    async_proxy: bool
    """Whether its accesses go through the asynchronous proxy."""
    uses_map: bool
    """Whether its plain loads are of a tensor map."""
    publishes_map: bool
    """Whether it copies a tensor map for the proxy that reads those."""
    read_only: bool
    """Whether it loads what nothing may write."""

    @property
    def strong(self) -> bool:
        return self.scope != WEAK


class Sites:
    """The instructions met so far, by number from 1 on."""

    def __init__(self) -> None:
        self._found: dict[int, InstructionSite] = {}
        self.sites: list[InstructionSite | None] = [None]
        self.scopes = np.zeros(64, np.int8)
        """By number: the scope of the instruction's accesses."""
        self.generic = np.ones(64, bool)
        """By number: whether its accesses go through the generic proxy."""

    def of(self, instruction: Instruction) -> InstructionSite:
        """The site of an instruction."""
        site = self._found.get(id(instruction))
        if site is None:
            site = self._found[id(instruction)] = _describe(len(self.sites), instruction)
            self.sites.append(site)
            if site.number >= len(self.scopes):
                self.scopes = np.concatenate([self.scopes, np.zeros(len(self.scopes), np.int8)])
                self.generic = np.concatenate([self.generic, np.ones(len(self.generic), bool)])
            self.scopes[site.number], self.generic[site.number] = site.scope, not site.async_proxy
        return site

    def numbered(self, number: int) -> InstructionSite:
        site = self.sites[number]
        assert site is not None
        return site


def uses_async_proxy(instruction: Instruction) -> bool:
    """Whether an instruction's accesses go through the asynchronous proxy: wgmmas, bulk and tensor
    copies."""
    return instruction.name.startswith(("wgmma.mma_async", *_BULK))


def scope_of(instruction: Instruction) -> int:
    """The scope of a strong instruction or a fence, the whole device where it names none."""
    return next((_SCOPES[word] for word in instruction.modifiers if word in _SCOPES), DEVICE)


def is_sequential(instruction: Instruction) -> bool:
    """Whether an instruction is a fence of the one order that all such fences have."""
    return instruction.opcode == "membar" or (
        instruction.opcode == "fence" and instruction.modifiers[0] == "sc"
    )


def _describe(number: int, instruction: Instruction) -> InstructionSite:
    name, words = instruction.name, instruction.modifiers
    atomic = instruction.opcode in ("atom", "red") or name.startswith("cp.reduce")
    barrier = instruction.opcode == "mbarrier" and words[0] not in ("init", "inval")
    signal = name.startswith("cp.async.mbarrier")
    scope = DEVICE if barrier or signal else scope_of(instruction) if atomic or _any(_STRONG, words) else WEAK
    return InstructionSite(
        number,
        instruction,
        scope,
        acquires=_any(("acquire", "acq_rel"), words) and not barrier,
        releases=_any(("release", "acq_rel"), words) and not barrier,
        modifies=atomic,
        asynchronous=uses_async_proxy(instruction)
        or (name.startswith(("cp.async", "st.async")) and not signal),
        async_proxy=uses_async_proxy(instruction),
        uses_map=instruction.opcode == "cp" and "tensor" in words,
        publishes_map=name.startswith("tensormap.cp_fenceproxy"),
        read_only="nc" in words,
    )


def _any(wanted: Sequence[str], words: Sequence[str]) -> bool:
    return any(word in words for word in wanted)
