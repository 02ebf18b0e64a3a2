"""What a variant asks of memory in one launch, by source line, and how many of its blocks run at once."""

from __future__ import annotations

import linecache
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.aot.build.plan import constexprs_of
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Manifest, below
from kbuild.aot.verify.cases import cases
from kbuild.aot.verify.check import run_ptx
from kbuild.aot.verify.oracle import oracle_of, types_of_artifact
from kbuild.aot.verify.reference_task import reference_task
from kbuild.compiler import driver
from kbuild.emulator import load as load_ptx
from kbuild.emulator.counts import SPACES, UNITS, AccessCounter, AccessCounts, LineCounts, total
from kbuild.errors import Loc, UsageError
from kbuild.targets import find_target

_WIDTH = 60
"""Characters of a line of source in a table."""
KIND = "whole"
"""The numbers in arrays of which a launch is counted."""


@dataclass(frozen=True)
class VariantCounts:
    """The counts of one launch of a variant."""

    variant: str
    """Its name."""
    launch: str
    """The scalars of the launch."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: int
    """Of a thread."""
    shared: int
    """Bytes of shared memory of a block, static and dynamic."""
    spills: int
    """Bytes that ptxas spills."""
    blocks: int
    """Blocks that a multiprocessor holds at once."""
    limited_by: str
    """What allows no more of them."""
    occupancy: float
    """Warps that a multiprocessor holds at once, as a share of those that it can hold."""
    lines: tuple[LineCounts, ...]
    findings: tuple[str, ...] = ()
    """What ended the launch early."""

    def encode(self) -> dict[str, Any]:
        """The counts as plain values."""
        lines = [
            {"place": str(line.place or ""), "kind": line.kind, "space": line.space, **vars(line.counts)}
            for line in self.lines
        ]
        return {**vars(self), "lines": lines}

    def table(self, root: Path) -> str:
        """The counts as text: a row for each line and kind of access, the sums, and what the blocks take.  Files are named
        from `root` on."""
        rows = [
            ("line", "access", "requests", "bytes", "units", "", "per request", "fewest", "excess", "source")
        ]
        rows += [
            (
                *_row(_shown(line.place, root), f"{line.space} {line.kind}", line.space, line.counts),
                _source(line.place),
            )
            for line in self.lines
        ]
        for space in SPACES:
            found = total([*self.lines], space)
            if found.requests:
                rows.append((*_row("all", space, space, found), ""))
        widths = [max(map(len, column)) for column in zip(*rows)]
        left = (0, 1, 5, 9)
        lines = [
            "  ".join(
                text.ljust(width) if place in left else text.rjust(width)
                for place, (text, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        ]
        shape = "x".join(map(str, self.block))
        limits = (
            f"{self.blocks} blocks of {shape} threads at once on a multiprocessor, {100 * self.occupancy:.0f} % of its warps, "
            f"limited by {self.limited_by}; {self.registers} registers, {self.shared:,} bytes of shared memory"
        )
        spills = f", {self.spills} bytes of spills" if self.spills else ""
        head = f"{self.variant}: {self.launch or 'no arguments'}; grid {'x'.join(map(str, self.grid))}"
        return "\n".join([head, *(f"  {line}" for line in lines), f"  {limits}{spills}", *self.findings])


def _shown(place: Loc | None, root: Path) -> str:
    """A line's file and number."""
    if place is None:
        return "?"
    folder = f"{root.resolve()}{os.sep}"
    return f"{place.file.removeprefix(folder)}:{place.line}"


def _source(place: Loc | None) -> str:
    """The text of a line, cut where it is long."""
    text = linecache.getline(place.file, place.line).strip() if place is not None else ""
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _row(place: str, access: str, space: str, counts: AccessCounts) -> tuple[str, ...]:
    per = counts.units / counts.requests if counts.requests else 0.0
    excess = f"{counts.excess:,} ({100 * (1 - counts.efficiency):.0f} %)" if counts.excess else "0"
    return (
        place,
        access,
        f"{counts.requests:,}",
        f"{counts.bytes:,}",
        f"{counts.units:,}",
        UNITS[space],
        f"{per:.2f}",
        f"{counts.ideal:,}",
        excess,
    )


def count_variant(
    project: Path, manifest: Manifest, variant: Variant, number: int, ptxas: str | None
) -> VariantCounts:
    """The counts of the launch of a number, from 1, of those that verify a variant.  Raises `UsageError` where there is none,
    `KbuildError` as the compiler does."""
    kernel = manifest.kernel(variant.kernel)
    launches = cases(kernel, variant)
    if not 0 < number <= len(launches):
        raise UsageError(
            f"{variant.name} has {len(launches)} launches, and no number {number}",
            help="add one to [kernel.verify]",
        )
    case = launches[number - 1]
    signature, values = dict(variant.signature), dict(constexprs_of(kernel, variant))
    include = below(variant.options.include, project)
    artifact = driver.compile(
        f"{project / kernel.source}:{kernel.function}",
        signature=signature,
        constexprs=values,
        target=variant.arch,
        options=replace(variant.options, lineinfo=True, ptxas=ptxas, include=include),
    )
    types = types_of_artifact(artifact, signature)
    oracle = oracle_of(artifact, types, signature, values, reference_task(project, kernel))
    right = oracle(case, KIND, zlib.crc32(f"{variant.kernel} {case}".encode()))
    program, counter = load_ptx(artifact.asm["ptx"], artifact.metadata.name), AccessCounter()
    report = run_ptx(
        artifact,
        program,
        types,
        right.arguments,
        case.grid,
        "lockstep",
        "late",
        [counter],
        only=right.programs,
    )
    facts, limits = artifact.metadata, find_target(variant.arch).limits
    shared = facts.shared + facts.static_shared
    occupancy = limits.occupancy(shared, facts.warps, facts.registers or 0)
    return VariantCounts(
        variant.name,
        str(case),
        tuple(case.grid),
        trimmed(facts.block),
        facts.registers or 0,
        shared,
        (facts.spill_stores or 0) + (facts.spill_loads or 0),
        occupancy.programs,
        " and ".join(occupancy.limits),
        occupancy.share,
        tuple(counter.lines()),
        tuple(map(str, report.findings)),
    )


def trimmed(block: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a block without ones at the end."""
    sizes = list(block)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(sizes)
