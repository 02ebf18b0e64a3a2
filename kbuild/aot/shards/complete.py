"""Whether parts of a build are all of it: each variant of their architectures in one of them, and in one alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kbuild.aot.artifact.record import Coverage, Record
from kbuild.aot.manifest.expand import Expansion, Variant
from kbuild.aot.shards.shard import Shard, gaps
from kbuild.errors import UsageError

NamedRecord = tuple[str, Record]
"""A file's name for messages, and what it says of its build."""
_Cell = tuple[str, str]
"""An architecture and a kernel."""


def coverage(shard: Shard, kernels: tuple[str, ...], whole: Expansion, own: Expansion) -> Coverage:
    """Which variants a part of a shard has: `own` of the `whole` of its architectures; `kernels` as they were named."""
    counts: dict[str, dict[str, int]] = {}
    places: dict[Variant, int] = {}
    for variant in whole.variants:
        of_arch = counts.setdefault(variant.arch, {})
        places[variant] = of_arch.get(variant.kernel, 0)
        of_arch[variant.kernel] = places[variant] + 1
    return Coverage(shard.text, kernels, counts, tuple(places[variant] for variant in own.variants))


def check_complete(parts: Sequence[NamedRecord]) -> None:
    """UsageError unless these parts have each variant of their architectures once."""
    owners: dict[tuple[_Cell, int], int] = {}
    counts: dict[_Cell, int] = {}
    for index, (name, record) in enumerate(parts):
        if record.part is None:
            _check_no_other_wheel(parts, index)
        own = _counts(record)
        for (variant, _), place in zip(record.rows, places_of(record)):
            cell = variant.arch, variant.kernel
            if not 0 <= place < own.get(cell, 0):
                raise UsageError(
                    f"{name} is damaged: it counts {variant.name} wrongly", help="build it again"
                )
            other = owners.setdefault((cell, place), index)
            if other != index:
                raise _both(parts[other], parts[index])
        counts |= own
    missing = dict(counts)
    for cell, _ in owners:
        missing[cell] -= 1
    if left := {cell: count for cell, count in missing.items() if count}:
        text = f"{sum(left.values())} of {sum(counts.values())} variants are in none of these parts"
        commands = _commands(parts, counts, left)
        if not commands:
            raise UsageError(f"{text}, though their shards have them", help="build all parts again")
        raise UsageError(
            "\n  ".join([f"{text}; these make them:", *commands]), help="merge takes all parts at once"
        )


def places_of(record: Record) -> Sequence[int]:
    """For each row its number among the variants of its kernel and architecture; a wheel has them all, in order."""
    if record.part:
        return record.part.places
    seen: dict[_Cell, int] = {}
    found: list[int] = []
    for variant, _ in record.rows:
        cell = variant.arch, variant.kernel
        seen[cell] = seen.get(cell, -1) + 1
        found.append(seen[cell])
    return found


def _counts(record: Record) -> dict[_Cell, int]:
    """How many variants there are in all of each kernel on each architecture of a part."""
    if record.part:
        return {
            (arch, kernel): count for arch, own in record.part.counts.items() for kernel, count in own.items()
        }
    found: dict[_Cell, int] = {}
    for variant, _ in record.rows:
        cell = variant.arch, variant.kernel
        found[cell] = found.get(cell, 0) + 1
    return found


def _check_no_other_wheel(parts: Sequence[NamedRecord], index: int) -> None:
    name, record = parts[index]
    for other, before in parts[:index]:
        if shared := [arch for arch in record.archs if before.part is None and arch in before.archs]:
            raise UsageError(
                f"{name} and {other} both have {shared[0]}", help="give one wheel for each architecture"
            )


def _both(first: NamedRecord, second: NamedRecord) -> UsageError:
    """The error for two parts that have some of the same variants."""
    codes = {str(variant): facts["sha256"] for variant, facts in first[1].rows}
    shared = [(variant, facts) for variant, facts in second[1].rows if str(variant) in codes]
    names = f"{first[0]} and {second[0]}"
    for variant, facts in shared:
        if facts["sha256"] != codes[str(variant)]:
            return UsageError(
                f"{names} have different code of {variant.name}",
                help="build both parts again, and report the difference",
            )
    more = f" and {len(shared) - 1} variants more" if len(shared) > 1 else ""
    return UsageError(f"{names} both have {shared[0][0].name}{more}", help="give one part for each shard")


def _commands(
    parts: Sequence[NamedRecord], counts: Mapping[_Cell, int], left: Mapping[_Cell, int]
) -> list[str]:
    """The commands that make what is missing."""
    holes = {cell: _holes(parts, cell) for cell in counts}
    archs = parts[0][1].manifest.package.archs
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for arch in archs:
        own = {kernel: hole for (of, kernel), hole in holes.items() if of == arch}
        for kernel in (kernel for kernel in own if (arch, kernel) in left):
            kernels = () if len(set(own.values())) == 1 else (kernel,)
            of_hole = found.setdefault((own[kernel], kernels), [])
            if arch not in of_hole:
                of_hole.append(arch)
    lines: list[str] = []
    for (hole, kernels), of_hole in found.items():
        words = [] if tuple(of_hole) == archs else [word for arch in of_hole for word in ("--arch", arch)]
        lines += [shlex.join(["kbuild", "build", *words, "--shard", shard, *kernels]) for shard in hole]
    return lines


def _holes(parts: Sequence[NamedRecord], cell: _Cell) -> tuple[str, ...]:
    """The shards of a kernel on an architecture that no part is of."""
    arch, kernel = cell
    covered = [
        Shard.parse(record.part.shard)
        for _, record in parts
        if record.part and arch in record.archs and (not record.part.kernels or kernel in record.part.kernels)
    ]
    return tuple(shard.text for shard in gaps(covered))
