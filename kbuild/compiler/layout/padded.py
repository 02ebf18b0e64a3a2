"""Shared memory with gaps: after every so many elements, some places stay empty.

    intervals [4, 8], paddings [1, 2]:    0 1 2 3 . 4 5 6 7 . . . 8 9 …

The bases say where an element would be without gaps; the gaps then move it up, by the sum of all that lie below.
Gaps keep the threads of a warp out of each other's banks where rows would begin in the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kbuild.compiler.layout.linear import Basis, LinearLayout

Gaps = tuple[tuple[int, int], ...]
"""Pairs of an interval and the padding after it, in elements: powers of two."""


class PaddedLayout(LinearLayout):
    """A layout of shared memory with gaps."""

    gaps: Gaps

    @staticmethod
    def of(layout: LinearLayout, gaps: Gaps) -> PaddedLayout:
        """A layout of shared memory with gaps between its elements."""
        made = PaddedLayout(layout.shape, layout.bases)
        object.__setattr__(made, "gaps", gaps)
        return made

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PaddedLayout)
            and self.gaps == other.gaps
            and (self.shape, self.bases) == (other.shape, other.bases)
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.bases, self.gaps))

    def find(self, flat: int) -> dict[str, int]:
        return {dim: moved_up(index, self.gaps) for dim, index in super().find(flat).items()}

    def reshape(self, shape: Sequence[int]) -> LinearLayout:
        return PaddedLayout.of(super().reshape(shape), self.gaps)

    def with_bases(self, dim: str, bases: Iterable[Basis]) -> LinearLayout:
        return PaddedLayout.of(super().with_bases(dim, bases), self.gaps)

    def _rewrite(
        self, shape: tuple[int, ...], change: Callable[[tuple[int, ...]], Sequence[int]]
    ) -> LinearLayout:
        return PaddedLayout.of(super()._rewrite(shape, change), self.gaps)


def gaps_of(layout: LinearLayout) -> Gaps:
    """The gaps of a layout; none for others than padded ones."""
    return layout.gaps if isinstance(layout, PaddedLayout) else ()


def moved_up(offset: int, gaps: Gaps) -> int:
    """The place of an element whose offset would be this one without gaps."""
    return offset + sum(offset // interval * padding for interval, padding in gaps)


def together(gaps: Gaps) -> int:
    """The most neighbours of which all groups stay together, and begin at a multiple of their number."""
    return min((min(pair) for pair in gaps), default=1 << 30)
