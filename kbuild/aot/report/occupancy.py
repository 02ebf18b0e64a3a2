"""How many programs of a variant a multiprocessor holds at once, and what there is too little of for more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.targets import find_target


@dataclass(frozen=True)
class Occupancy:
    """The share of a multiprocessor's warps that a variant can have running."""

    programs: int
    """Programs at once."""
    warps: int
    """Their warps."""
    max_warps: int
    limits: tuple[str, ...]
    """`registers`, `shared memory`, `warps` and `programs`: those of them that keep further programs out."""

    @property
    def share(self) -> float:
        return self.warps / self.max_warps


def occupancy(arch: str, facts: Mapping[str, Any]) -> Occupancy:
    """The occupancy of a variant, by its facts: `warps`, `registers` and `shared`."""
    limits = find_target(arch).limits
    bounds = limits.bounds(facts["shared"], facts["warps"], facts["registers"])
    bounds["programs"] = limits.max_programs
    programs = min(bounds.values())
    full = tuple(name for name, bound in bounds.items() if bound == programs)
    return Occupancy(programs, programs * facts["warps"], limits.max_warps, full)
