"""What a tuner has chosen for some sizes as rules for all sizes: each gets the choice of its nearest neighbours.

A tree of comparisons such as `n <= 2023`, whose bounds lie halfway, on a scale of factors, between sizes that were seen with
different choices.  Where several sizes make a key, each comparison is of the one that tells most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kbuild.aot.manifest.model import Value

Config = tuple[Value, ...]


@dataclass(frozen=True)
class Sample:
    """A key of a tuner, and what it chose."""

    key: Mapping[str, int]
    config: Config


@dataclass
class _Node:
    """Samples that no comparison tells apart yet, or a comparison and those on both sides of it."""

    samples: Sequence[Sample]
    name: str = ""
    bound: int = 0
    sides: list[_Node] = field(default_factory=list["_Node"])
    """Those up to the bound, and those above."""

    @property
    def usual(self) -> Config:
        """What was chosen most."""
        return Counter(sample.config for sample in self.samples).most_common(1)[0][0]

    @property
    def wrong(self) -> int:
        """How many samples have another choice."""
        usual = self.usual
        return sum(sample.config != usual for sample in self.samples)


def rules(samples: Sequence[Sample], most: int) -> list[tuple[tuple[str, ...], Config]]:
    """Facts such as `n<=2023` with the choice where they hold, to be asked in this order; those of the last hold always.

    At most `most` of them: where more would be needed, a rule has the choice of most of its samples.
    """
    root = _Node(samples)
    leaves = [root]
    while len(leaves) < most:
        leaf = max(leaves, key=lambda one: one.wrong)
        if not leaf.wrong or not _split(leaf):
            break
        leaves.remove(leaf)
        leaves += leaf.sides
    return [*_rules(root, {})]


def _rules(node: _Node, upper: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], Config]]:
    if not node.sides:
        yield tuple(f"{name}<={bound}" for name, bound in upper.items()), node.usual
        return
    yield from _rules(node.sides[0], {**upper, node.name: node.bound})
    yield from _rules(node.sides[1], upper)  # What is not above the bound has been answered.


class _Mix:
    """How often each choice is among some samples, and how many bits say which of these has which."""

    def __init__(self, samples: Sequence[Sample] = ()) -> None:
        self._counts = Counter[Config]()
        self._total, self._sum = 0, 0.0
        for sample in samples:
            self.add(sample.config, 1)

    def add(self, config: Config, number: int) -> None:
        """One more, or with -1 one less."""
        count = self._counts[config]
        self._counts[config] += number
        self._sum += _scaled(count + number) - _scaled(count)
        self._total += number

    @property
    def bits(self) -> float:
        """Their entropy times their number."""
        return round(_scaled(self._total) - self._sum, 6)


def _scaled(count: int) -> float:
    return count * math.log2(count) if count else 0.0


def _split(node: _Node) -> bool:
    """Gives a node two sides, where sizes tell its samples apart: those that leave least to be told, the farthest apart."""
    best: tuple[float, float, str, int] | None = None
    for name in node.samples[0].key:
        left, right = _Mix(), _Mix(node.samples)
        for sample, following in pairwise(sorted(node.samples, key=lambda one: one.key[name])):
            left.add(sample.config, 1)
            right.add(sample.config, -1)
            low, high = sample.key[name], following.key[name]
            if low < high:
                found = (left.bits + right.bits, -_distance(low, high), name, _between(low, high))
                best = found if best is None or found < best else best
    if best is None:
        return False
    _, _, node.name, node.bound = best
    node.sides = [
        _Node([sample for sample in node.samples if sample.key[node.name] <= node.bound]),
        _Node([sample for sample in node.samples if sample.key[node.name] > node.bound]),
    ]
    return True


def _between(low: int, high: int) -> int:
    """The largest size that is nearer to the lower one: by their ratio, where both are positive."""
    return math.isqrt(low * high) if low > 0 else (low + high) // 2


def _distance(low: int, high: int) -> float:
    return math.log(high / low) if low > 0 else float(high - low)
