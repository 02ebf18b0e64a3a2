"""The jobs that build a project on several machines: shards of the variants that cost the same, and how they are built,
verified and joined.

    variants by their positions    · ··  ·   · ···  ·· ·  ·   ··· · ·      each with its seconds
    cut where a job is full       |    a    |   b   |    c    |    d   |

A job's shard is a range of positions, as `shard.py` has them: the list stays right when the manifest changes, only its
balance does not.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kbuild.aot.manifest.expand import Variant
from kbuild.aot.shards.shard import DIGITS, SPACE, Shard, position

AXES = ("arch", "kernel")
"""What jobs may be for one of."""


@dataclass(frozen=True)
class BuildJob:
    """One job: a shard of the variants of some architectures and kernels."""

    name: str
    """For people, and unlike that of any other job."""
    shard: Shard
    archs: tuple[str, ...]
    """Architectures; all of the manifest when empty."""
    kernels: tuple[str, ...]
    """Kernels; all when empty."""
    variants: int
    """How many variants there are today."""
    seconds: float
    """CPU seconds that they take to compile."""

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of a verb for these variants."""
        archs = [word for arch in self.archs for word in ("--arch", arch)]
        return (*archs, "--shard", self.shard.text, *self.kernels)

    @property
    def build(self) -> str:
        """The command that builds the part."""
        return shlex.join(["kbuild", "build", *self.words])

    @property
    def verify(self) -> str:
        """The command that verifies the same variants."""
        return shlex.join(["kbuild", "verify", "--keep-going", *self.words])


def jobs_of(
    variants: Sequence[Variant], seconds: Sequence[float], count: int, axes: Collection[str] = ()
) -> list[BuildJob]:
    """The jobs for these variants, each with the seconds that it takes: `count` for each architecture, each kernel or each
    of both, as `axes` has `arch` or `kernel`, or in all; fewer where there are fewer variants."""
    costs = dict(zip(variants, seconds))
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Variant]] = {}
    for variant in variants:
        archs = (variant.arch,) if "arch" in axes else ()
        kernels = (variant.kernel,) if "kernel" in axes else ()
        groups.setdefault((archs, kernels), []).append(variant)
    return [
        job for (archs, kernels), own in groups.items() for job in _jobs(own, costs, count, archs, kernels)
    ]


def _jobs(
    variants: Sequence[Variant],
    costs: Mapping[Variant, float],
    count: int,
    archs: tuple[str, ...],
    kernels: tuple[str, ...],
) -> Iterator[BuildJob]:
    """The jobs of one group of variants, which share the ring of positions out."""
    placed = sorted((position(variant), costs[variant]) for variant in variants)
    positions, sums = [place for place, _ in placed], [0.0, *accumulate(cost for _, cost in placed)]
    shards = cut(placed, count)
    for number, shard in enumerate(shards, 1):
        first, end = bisect_left(positions, shard.first), bisect_left(positions, shard.end)
        words = [*archs, *kernels]
        if len(shards) > 1 or not words:
            words.append(f"{number} of {len(shards)}")
        yield BuildJob(" ".join(words), shard, archs, kernels, end - first, sums[end] - sums[first])


def cut(placed: Sequence[tuple[int, float]], count: int) -> list[Shard]:
    """At most `count` shards that together have everything, and each about the same cost of what stands at these positions,
    in order, with these costs; at least one item each."""
    count = min(count, len(placed)) or 1
    total = sum(cost for _, cost in placed)
    ends: list[int] = []
    done, index = 0.0, 0
    for number in range(1, count):
        # As far as brings the sum nearest to its share, but leaving an item for each shard to come.
        last = len(placed) - (count - number)
        target = total * number / count
        start = index
        while index < last and (index == start or done + placed[index][1] / 2 <= target):
            done += placed[index][1]
            index += 1
        ends.append(_between(placed[index - 1][0], placed[index][0]))
    bounds = [0, *dict.fromkeys(ends), SPACE]
    return [Shard(first, end) for first, end in pairwise(bounds)]


def _between(before: int, after: int) -> int:
    """The position after `before` and not after `after` that takes the fewest digits to write."""
    for digits in range(1, DIGITS + 1):
        shift = 4 * (DIGITS - digits)
        found = after >> shift << shift
        if found > before:
            return found
    return after
