"""Which variants a machine builds where several machines build one project.

    sha256 of the variant's text, without facts that only dispatch asks for ─▶ its position, from 0 to 1
        ─▶ the shard whose range that is in

    --shard 3/8         the third of eight ranges of equal length
    --shard 2f3a..5b    positions from 0.2f3a up to 0.5b, in hexadecimal; an end that is left out is 0 or 1

A variant's position depends on nothing else: not on the other variants, the sources, the compiler or the machine.
So ranges that cover everything from 0 to 1 have each variant exactly once, also after the manifest has changed, and
adding a variant moves no other one.  `kbuild ci` cuts ranges that cost the same; those of `i/N` have about equal
numbers of variants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from kbuild.aot.identity import bytes_digest
from kbuild.aot.manifest.expand import Expansion, Variant
from kbuild.errors import UsageError

DIGITS = 16
"""Hexadecimal digits of a position."""
SPACE = 1 << (4 * DIGITS)
"""Positions are whole numbers below this."""
MOST = 100_000
"""Shards of one project."""


@dataclass(frozen=True)
class Shard:
    """The variants whose positions are in a range."""

    first: int
    """The first position."""
    end: int
    """The position after the last."""

    @staticmethod
    def of(number: int, count: int) -> Shard:
        """One of `count` ranges of equal length, the first being number 1."""
        return Shard(-(-(number - 1) * SPACE // count), -(-number * SPACE // count))

    @staticmethod
    def parse(text: str) -> Shard:
        """The shard that a command line names: `3/8`, or `2f3a..5b`.  Raises UsageError for other text."""
        if counted := re.fullmatch(r"(\d{1,6})/(\d{1,6})", text):
            number, count = int(counted[1]), int(counted[2])
            if 1 <= number <= count <= MOST:
                return Shard.of(number, count)
            if 1 <= count <= MOST:
                raise UsageError(f"--shard {text}: there are shards 1/{count} to {count}/{count}")
        elif found := re.fullmatch(rf"([0-9a-f]{{0,{DIGITS}}})\.\.([0-9a-f]{{0,{DIGITS}}})", text):
            first = int(found[1].ljust(DIGITS, "0"), 16)
            end = int(found[2].ljust(DIGITS, "0"), 16) if found[2] else SPACE
            if first < end:
                return Shard(first, end)
            raise UsageError(f"--shard {text}: the range ends before it begins")
        raise UsageError(
            f"--shard {text}: expected a number of a count, or a range",
            help=f"such as 3/8, up to {MOST:,} of them, or 2f3a..5b as kbuild ci prints it",
        )

    def holds(self, variant: Variant) -> bool:
        """Whether the variant is in this shard."""
        return self.first <= position(variant) < self.end

    def of_expansion(self, expansion: Expansion) -> Expansion:
        """The expansion with those variants alone that are in this shard, in its order."""
        if self == WHOLE:
            return expansion
        return replace(expansion, variants=tuple(filter(self.holds, expansion.variants)))

    @cached_property
    def text(self) -> str:
        """What `parse` reads: a number of a count where the range is one, otherwise a range."""
        count = round(SPACE / (self.end - self.first))
        number = self.first * count // SPACE + 1
        if number <= count <= MOST and Shard.of(number, count) == self:
            return f"{number}/{count}"
        first, end = (f"{place:0{DIGITS}x}".rstrip("0") for place in (self.first, self.end % SPACE))
        return f"{first}..{end}"

    @property
    def label(self) -> str:
        """The text as part of a file's name."""
        first, dots, end = self.text.partition("..")
        return f"{first or '0'}-{end or 'end'}" if dots else first.replace("/", "of")


WHOLE = Shard(0, SPACE)
"""The shard that has everything."""


def position(variant: Variant) -> int:
    """Where a variant is among all that there may be, below `SPACE`; those that share a cubin are at one position."""
    code = replace(variant, guards=(), cost="")
    return int(bytes_digest(str(code).encode())[:DIGITS], 16)


def gaps(shards: Iterable[Shard]) -> Iterator[Shard]:
    """The ranges that none of these shards covers, in order."""
    covered = 0
    for shard in sorted(shards, key=lambda one: one.first):
        if shard.first > covered:
            yield Shard(covered, shard.first)
        covered = max(covered, shard.end)
    if covered < SPACE:
        yield Shard(covered, SPACE)
