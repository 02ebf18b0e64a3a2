"""How long builds of up to 100,000 variants would take with up to 1,000 workers, by replaying schedules.

    python bench/scale/replay.py [--seconds FILE] [--variants 548,2000,10000,100000] [--workers 1,8,64,1000] [--hits 0,0.9,1]

Durations are those measured for the shipped kernels (`seconds.json`: seconds of single compilations, two at a time on
two cores), drawn at random for as many variants as are asked for; or those of a build's own directory,
`build/.kbuild/seconds.json`.  Everything else that a build does is linear, and was measured with
generated projects (`measure.py`).  Two ways to share the work out are replayed:

    shards    each worker builds the shard that `kbuild ci` cuts for it, by estimates that are off as they are, and one
              merges; whoever is done waits for the slowest
    queue     one machine plans, and free workers take the next variant, as engines for remote execution do

Both print the seconds to the wheel, and what part of the workers' time was work.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from kbuild.aot.shards.jobs import cut
from kbuild.aot.shards.shard import SPACE

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Costs:
    """Seconds of what is not compiling, on one core."""

    start: float = 0.4
    """Of a command: Python, the manifest, digests of sources and tools."""
    expand: float = 0.00005
    """Of a variant that is listed: expanding it and placing it on the ring."""
    plan: float = 0.0002
    """Of a variant that is planned: its identity, its files, its step."""
    step: float = 0.004
    """Of a step: ninja's process, the server, the record."""
    hit: float = 0.004
    """Of a variant that is found in a cache, besides its step."""
    pack: float = 0.0006
    """Of a variant in a wheel: reading it, its rows in the tables, compiling these, and the archive."""
    launcher: float = 3.0
    """Of compiling the launcher, once."""
    dispatch: float = 0.002
    """Of the one machine that hands variants out to remote workers."""
    error: float = 0.5
    """Standard deviation of an estimate, as a part of the mean."""


@dataclass(frozen=True)
class Replayed:
    """What a schedule came to."""

    seconds: float
    """From the start to the wheel."""
    busy: float
    """The part of the workers' time in which they compiled or fetched."""


def works(
    durations: Sequence[float], count: int, hits: float, costs: Costs, generator: random.Random
) -> list[float]:
    """The seconds of each variant's step, of which a part comes from a cache."""
    return [
        costs.step + (costs.hit if generator.random() < hits else generator.choice(durations))
        for _ in range(count)
    ]


def shards(work: Sequence[float], workers: int, costs: Costs, generator: random.Random) -> Replayed:
    """Each worker builds one shard, with one core."""
    mean = sum(work) / len(work)
    placed = sorted(
        (generator.randrange(SPACE), index, max(cost + generator.gauss(0, costs.error * mean), 0.2 * mean))
        for index, cost in enumerate(work)
    )
    each = costs.start + costs.expand * len(work)
    positions, sums = (
        [place for place, _, _ in placed],
        [0.0, *accumulate(work[index] for _, index, _ in placed)],
    )
    spent = []
    for shard in cut([(place, guess) for place, _, guess in placed], workers):
        first, end = bisect_left(positions, shard.first), bisect_left(positions, shard.end)
        spent.append(each + sums[end] - sums[first] + (end - first) * (costs.plan + costs.pack / 2))
    merge = costs.start + costs.launcher + costs.pack * len(work)
    seconds = max(spent) + (merge if workers > 1 else costs.launcher + costs.pack / 2 * len(work))
    return Replayed(seconds, sum(work) / (seconds * workers))


def queue(work: Sequence[float], workers: int, costs: Costs) -> Replayed:
    """One machine hands variants out, in the order of the manifest, to whichever worker is free."""
    planning = costs.start + (costs.expand + costs.plan) * len(work)
    free = [0.0] * workers
    handed = 0.0
    for cost in work:
        handed = max(handed + costs.dispatch * (workers > 1), free[0])
        heapq.heapreplace(free, handed + cost)
    seconds = planning + max(max(free), costs.launcher) + costs.pack * len(work)
    return Replayed(seconds, sum(work) / (seconds * workers))


def durations_of(file: Path) -> list[float]:
    """All seconds in a file."""
    found = json.loads(file.read_text())
    return [
        float(value)
        for item in found.values()
        for value in (item if isinstance(item, list) else [item])
        if isinstance(value, float)
    ]


def shown(seconds: float) -> str:
    """A time as people read it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=Path, default=HERE / "seconds.json")
    parser.add_argument("--variants", default="548,2000,10000,100000")
    parser.add_argument("--workers", default="1,8,64,256,1000")
    parser.add_argument("--hits", default="0,0.9,1")
    options = parser.parse_args()
    durations, costs = durations_of(options.seconds), Costs()
    print(f"{len(durations)} durations, mean {sum(durations) / len(durations):.3f} s")
    print(
        "| variants | found in a cache | workers | shards | busy | queue | busy |\n|--:|--:|--:|--:|--:|--:|--:|"
    )
    for count in map(int, options.variants.split(",")):
        for hits in map(float, options.hits.split(",")):
            work = works(durations, count, hits, costs, random.Random(count))
            for workers in map(int, options.workers.split(",")):
                one, other = shards(work, workers, costs, random.Random(workers)), queue(work, workers, costs)
                print(
                    f"| {count:,} | {hits:.0%} | {workers:,} | {shown(one.seconds)} | {one.busy:.0%} "
                    f"| {shown(other.seconds)} | {other.busy:.0%} |"
                )


if __name__ == "__main__":
    main()
