"""The asynchronous units of a CTA, which work beside its warps."""

from __future__ import annotations

from typing import Any

from kbuild.emulator.async_ops.cp_async import CopyGroups
from kbuild.emulator.async_ops.mbarrier import Barriers
from kbuild.emulator.async_ops.transfers import Transfers
from kbuild.emulator.async_ops.wgmma import WgmmaQueues

PATIENCE = 16
"""After this many failed tests of an mbarrier one operation lands, so that spinning ends."""


class Asynchronous:
    """TMA, mbarriers and tensor cores of one CTA; the engine's agent for them."""

    def __init__(self, cta: Any) -> None:
        self.cta = cta
        self.timing = cta.launch.timing
        self.barriers = Barriers(cta.shared)
        self.copies = CopyGroups(cta.memory, 32 * cta.warp_count, self.timing)
        self.transfers = Transfers(cta.memory, self.timing)
        self.wgmmas = WgmmaQueues(cta.memory, cta.warp_count, self.timing)
        self.looked: set[tuple[int, int, int]] = set()
        """Warp, barrier and phase of waits that have failed once."""
        self._looks = 0

    def land(self) -> bool:
        """Let one operation that a thread may wait for take effect.  False where none is under way."""
        return self.transfers.land() or self.copies.land()

    def looked_in_vain(self) -> None:
        """A warp has looked at an mbarrier without waiting for it."""
        self._looks += 1
        if self._looks % PATIENCE == 0:
            for cta in self.cta.cluster.ctas:
                if cta.land():
                    return

    def finish(self) -> None:
        """The CTA has ended.  Raises Fault for operations that must not be under way any more."""
        self.transfers.finish()
        self.wgmmas.finish()


def agent_of(cta: Any) -> Asynchronous:
    """The agent of a CTA, made on first use."""
    for agent in cta.agents:
        if isinstance(agent, Asynchronous):
            return agent
    agent = Asynchronous(cta)
    cta.agents.append(agent)
    return agent
