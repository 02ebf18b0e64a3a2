"""Layouts of kernels whose author chooses them (Gluon): with the words that he used, or not yet known.

A `WrittenLayout` is a linear layout like any other, and equal to it; it remembers what it was written as, for
messages and for kernels that ask.  A `PendingLayout` stands for what the pass `resolve_layouts` finds out:
`auto`, from the other operands and the users of a value, or `coalesced`, from its accesses to global memory.
What is derived from a pending layout is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from kbuild.compiler.layout.linear import IN_DIMS, Basis, LinearLayout


class WrittenLayout(LinearLayout):
    """A layout and how its author wrote it."""

    author: object
    """The value of the kernel: `BlockedLayout(…)`."""

    @staticmethod
    def of(layout: LinearLayout, author: object) -> WrittenLayout:
        """A linear layout that was written as `author`."""
        made = WrittenLayout(layout.shape, layout.bases)
        object.__setattr__(made, "author", author)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearLayout) or isinstance(other, PendingLayout):
            return NotImplemented
        return self.shape == other.shape and self.bases == other.bases

    __hash__ = LinearLayout.__hash__


class PendingLayout(LinearLayout):
    """A layout that is not known yet."""

    kind: str
    """`auto` or `coalesced`."""

    @staticmethod
    def of(shape: Sequence[int], kind: str) -> PendingLayout:
        made = PendingLayout(tuple(shape), tuple((dim, ()) for dim in IN_DIMS))
        object.__setattr__(made, "kind", kind)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingLayout) and self.shape == other.shape and self.kind == other.kind

    def __hash__(self) -> int:
        return hash((self.shape, self.kind))

    def reshape(self, shape: Sequence[int]) -> LinearLayout:
        assert prod(shape) == self.numel
        return PendingLayout.of(shape, self.kind)

    def with_bases(self, dim: str, bases: Iterable[Basis]) -> LinearLayout:
        return self

    def _rewrite(
        self, shape: tuple[int, ...], change: Callable[[tuple[int, ...]], Sequence[int]]
    ) -> LinearLayout:
        return PendingLayout.of(shape, self.kind)
