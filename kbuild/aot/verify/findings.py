"""The emulator's findings, once for each cause: pairs of lines of the kernel, rather than of instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import Finding
from kbuild.emulator.engine.memory import Space
from kbuild.emulator.ptx.flow import looks
from kbuild.emulator.ptx.model import PtxModule

ENDLESS = "step-budget"
"""The kind of finding of an endless run."""
_MAX_LOOKS = 4
"""Warps of an endless run that are shown."""


def once(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for each kind and lines of the kernel, with the sum of their counts."""
    found: dict[Any, Finding] = {}
    for finding in findings:
        places = finding.place, finding.other_place
        key = (finding.kind, *map(str, places)) if finding.place is not None else finding
        found[key] = replace(found[key], count=found[key].count + finding.count) if key in found else finding
    return list(found.values())


class Looks:
    """An observer that keeps the last place each warp read in memory that other CTAs may change."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, int], tuple[Any, Space, int]] = {}

    def began(self, launch: Any) -> None:
        self._module: PtxModule = launch.program.module

    def accessed(
        self,
        kind: str,
        space: Space,
        offsets: np.ndarray,
        size: int,
        lanes: np.ndarray,
        data: np.ndarray | None,
        site: Any,
    ) -> None:
        batch, instruction = site[0], site[1]
        if space.name == "global" and kind != "store" and looks(instruction):
            warp = batch.first + int(lanes[0]) // 32
            self._last[batch.cta.index, warp] = instruction, space, int(offsets[0])

    def __str__(self) -> str:
        """What the warps look at, a line each."""
        lines = []
        for (cta, warp), (instruction, space, offset) in self._last.items():
            place = self._module.place(instruction)
            source = "" if place is None else f", from {place}"
            lines.append(f"  warp {warp} of CTA {cta} looks at {space.describe(offset)}{source}")
        more = [f"  and {len(lines) - _MAX_LOOKS} warps more"] if len(lines) > _MAX_LOOKS else []
        return "\n".join([*lines[:_MAX_LOOKS], *more])
