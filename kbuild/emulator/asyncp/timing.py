"""When asynchronous operations take effect: as late as allowed, at once, or at random moments between.

Every unit of a CTA that has something under way is an agent of the CTA: the engine asks agents to land one operation where no
warp can go on, so that a wait that is justified always ends.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np

from kbuild.emulator.findings import EmulationError


class Timing(Protocol):
    """Chooses how many of the operations that may land now do so."""

    def ready(self, pending: int) -> int:
        """How many of `pending` operations land now; called whenever an instruction of the unit is executed."""
        ...


class Late:
    """Operations land only when something waits for them."""

    def ready(self, pending: int) -> int:
        return 0


class Early:
    """Operations land with their instruction."""

    def ready(self, pending: int) -> int:
        return pending


class Random:
    """Operations land at random moments."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def ready(self, pending: int) -> int:
        return int(self.generator.integers(0, pending + 1)) if self.generator.integers(0, 2) else 0


def timing_named(name: str) -> Timing:
    """The timing of a name: `late`, `early` or `random(SEED)`.  Raises EmulationError for another."""
    if name in ("late", "early"):
        return Late() if name == "late" else Early()
    found = re.fullmatch(r"random\((\d+)\)", name)
    if found is None:
        raise EmulationError(f"unknown timing {name!r}", hint="known are late, early and random(SEED)")
    return Random(int(found.group(1)))


def unit_of(cta: Any, kind: type) -> Any:
    """The CTA's unit of a kind, made at its first use."""
    for agent in cta.agents:
        if type(agent) is kind:
            return agent
    unit = kind(cta)
    cta.agents.append(unit)
    return unit
