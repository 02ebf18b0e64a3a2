"""What handlers of asynchronous instructions share: lanes that take part, and addresses in shared memory of a
cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.async_ops import Asynchronous, agent_of
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import CTA_SHIFT, SHARED_WINDOW, WINDOW_SIZE
from kbuild.emulator.isa.instruction_spec import View
from kbuild.emulator.ptx.model import Immediate, Operand, PtxError


def active_lanes(size: int, where: Any) -> np.ndarray:
    """The lanes that execute an instruction, counted in the batch."""
    return np.arange(size) if where is True else np.flatnonzero(where)


def shared_place(warps: Any, address: int, generic: bool = False) -> tuple[Asynchronous, int]:
    """The agent of the CTA whose shared memory an address lies in, and the offset there.  Raises Fault for
    other addresses."""
    if generic:
        if address // WINDOW_SIZE != SHARED_WINDOW // WINDOW_SIZE:
            raise Fault("out-of-bounds", f"the generic address {address:#x} does not lie in shared memory")
        address -= SHARED_WINDOW
    rank = (address >> CTA_SHIFT) - 1
    if rank < 0:
        return agent_of(warps.cta), address
    ctas = warps.cta.cluster.ctas
    if rank >= len(ctas):
        raise Fault("out-of-bounds", f"shared address of CTA {rank} in a cluster of {len(ctas)}")
    return agent_of(living(ctas[rank])), address & ((1 << CTA_SHIFT) - 1)


def living(cta: Any) -> Any:
    """A CTA whose shared memory is used.  Raises Fault where all its warps have ended, and others may have
    that memory."""
    if not cta.live_warps:
        raise Fault("ended-peer", f"uses shared memory of CTA {cta.rank} of the cluster, which has ended")
    return cta


def touch(kind: str, agent: Asynchronous, place: int, site: Any) -> None:
    """Notify observers that threads of `site` make (`store`) or use (`atomic`) the mbarrier at an offset."""
    observers = site[0].memory.observers
    if observers:
        offsets = np.full(len(site[2]), place, np.int64)
        for observer in observers:
            observer.accessed(kind, agent.cta.shared, offsets, 8, site[2], None, site)


def number(operand: Operand) -> int:
    """An operand that must be a literal integer."""
    if not isinstance(operand, Immediate):
        raise PtxError(f"expected a number, found {operand}")
    return operand.value


def count_view(operand: Operand) -> View:
    """The view of a 32-bit count."""
    return View(operand, "u32")
