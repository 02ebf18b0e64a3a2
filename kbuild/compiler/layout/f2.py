"""Vectors over F2 as plain integers: bit i of the integer is component i, and addition is XOR.

Everything that layouts need of linear algebra is here: spans, solving, intersections and complements.  The
vectors are short (a tensor of a million elements has 20 components), so elimination on Python integers beats
any array library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Span:
    """The span of the vectors added so far, which remembers how each member is made of them.

    Only vectors that enlarge the span take part in later combinations, so the answer of `combination` is
    unique, and a member of the span of the first n vectors is always expressed by those: earlier vectors are
    preferred.
    """

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, tuple[int, int]] = {}
        self._added = 0
        for vector in vectors:
            self.add(vector)

    def add(self, vector: int) -> bool:
        """Add a vector; true when it enlarged the span."""
        rest, combination = self._reduce(vector)
        if rest:
            self._rows[rest.bit_length()] = (rest, combination | 1 << self._added)
        self._added += 1
        return bool(rest)

    def combination(self, vector: int) -> int | None:
        """The added vectors that sum to `vector`, as a mask over the order of adding; None outside the span."""
        rest, combination = self._reduce(vector)
        return None if rest else combination

    def __contains__(self, vector: int) -> bool:
        return not self._reduce(vector)[0]

    @property
    def dimension(self) -> int:
        """Number of independent vectors."""
        return len(self._rows)

    def _reduce(self, vector: int) -> tuple[int, int]:
        combination = 0
        while vector:
            row = self._rows.get(vector.bit_length())
            if row is None:
                break
            vector ^= row[0]
            combination ^= row[1]
        return vector, combination


def apply(images: Sequence[int], index: int) -> int:
    """The sum of the images of the bits that are set in `index`: the linear map given by `images`."""
    result = 0
    for image in images:
        if index & 1:
            result ^= image
        index >>= 1
    return result


def independent(vectors: Iterable[int], modulo: Iterable[int] = ()) -> list[int]:
    """The vectors that are independent of `modulo` and of those before them, in order."""
    span = Span(modulo)
    return [vector for vector in vectors if span.add(vector)]


def reduced_basis(vectors: Iterable[int]) -> list[int]:
    """The reduced echelon basis of the span: sorted by lowest bit, which is set in no other vector of the
    basis."""
    basis: list[int] = []
    for vector in vectors:
        for other in basis:
            if vector & other & -other:
                vector ^= other
        if vector:
            low = vector & -vector
            basis = [other ^ vector if other & low else other for other in basis]
            basis.append(vector)
    return sorted(basis, key=lambda vector: vector & -vector)


def kernel(images: Sequence[int]) -> list[int]:
    """A basis of the indices that the linear map given by `images` sends to 0."""
    span = Span()
    result = []
    for position, image in enumerate(images):
        combination = span.combination(image)
        if combination is not None:
            result.append(combination | 1 << position)
        span.add(image)
    return result


def intersection(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The reduced basis of the vectors that lie in both spans."""
    first = independent(first)
    both = kernel([*first, *independent(second)])
    return reduced_basis(apply(first, index) for index in both)


def common_complement(space: Sequence[int], first: Sequence[int], second: Sequence[int]) -> list[int]:
    """A basis of the largest subspace of `space` found that meets neither span, `first` nor `second`, outside
    0.

    What the two share belongs to no complement; their remainders are paired up (a sum of one of each lies in
    neither); whatever of `space` is outside both is free.
    """
    shared = intersection(first, second)
    only_first = independent(first, shared)
    only_second = independent(second, shared)
    paired = [a ^ b for a, b in zip(only_first, only_second)]
    return paired + independent(space, [*shared, *only_first, *only_second])
