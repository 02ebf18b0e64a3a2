"""The launch that a variant is verified with where its kernel was captured: a recorded one, of which some programs run.

Sizes stay what they were, for compile-time values depend on them; so do the numbers of the grid, which a kernel may ask for.  Of
a large grid the first two programs run and the last two, which have the edges; the first alone where arrays are too large for
that, or where programs wait for others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbuild.aot.manifest.descriptors import expanded, hint_of
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.launches.recorded import RecordedLaunch
from kbuild.aot.manifest.model import Kernel

LARGEST = 1 << 22
"""Elements of all arrays of a launch of which the last programs run, too; of larger arrays the beginning is made."""
_ENDS = 2
"""Programs that run at each end of a grid."""

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Recorded:
    """What is known of a recorded launch besides its numbers."""

    extents: tuple[tuple[str, int], ...]
    """Elements of the arrays."""
    flat: tuple[str, ...]
    """Arrays with one axis."""
    least: int
    """The smallest size along an axis of an array that is not one: positions below it are in all arrays."""
    programs: tuple[Index, ...]
    """Those that run; all where it is empty."""

    def __str__(self) -> str:
        return " ".join(f"({', '.join(map(str, index))})" for index in self.programs)

    def begun(self) -> Recorded:
        """The same with the first programs alone."""
        return replace(self, programs=self.programs[:_ENDS])

    def alone(self) -> Recorded:
        """The same with the first program alone."""
        return replace(self, programs=((0, 0, 0),))


def launches_of(kernel: Kernel, variant: Variant, exactly: bool = False) -> list[RecordedLaunch]:
    """The recorded launches of a variant, the smallest first: those with its values and its hints, or else with its values
    unless that is asked for `exactly`."""
    known = variant.values
    alike = [
        launch
        for launch in kernel.recorded
        if all(name in known and _same(known[name], value) for name, value in launch.at)
    ]
    hints = {name: hint_of(type_) for name, type_ in variant.signature}
    exact = [launch for launch in alike if all(hints.get(name, "") == hint for name, hint in launch.hints)]
    return sorted(exact if exact or exactly else alike, key=lambda launch: launch.elements)


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def numbers_of(
    kernel: Kernel, variant: Variant, launch: RecordedLaunch
) -> dict[str, int | float | str] | None:
    """The launch's numbers by argument, sizes and strides of tensors that are passed as descriptors among them; None where
    one is missing."""
    values: dict[str, int | float | str] = dict(launch.values)
    arrays = {array.name: array for array in launch.arrays}
    for name, _, extent in expanded(variant.signature):
        if extent is not None and extent.tensor in arrays:
            array = arrays[extent.tensor]
            if len(array.shape) != extent.rank:
                return None
            values[name] = (array.strides if extent.stride_bytes else array.shape)[extent.axis]
    wanted = [name for name, type_, _ in expanded(variant.signature) if not type_.startswith("*")]
    wanted += [argument.name for argument in kernel.grid_args]
    return {name: values[name] for name in wanted} if values.keys() >= set(wanted) else None


def recorded_of(launch: RecordedLaunch, grid: Sequence[int]) -> Recorded:
    """What is known of a launch with a grid."""
    sizes = [size for array in launch.arrays for size in array.shape if size > 1]
    extents = tuple((array.name, array.elements) for array in launch.arrays)
    is_large = launch.elements > LARGEST
    flat = tuple(array.name for array in launch.arrays if len(array.shape) <= 1)
    return Recorded(extents, flat, min(sizes, default=1), _some(grid, 0 if is_large else _ENDS))


def _some(grid: Sequence[int], last: int) -> tuple[Index, ...]:
    """The first programs of a grid and `last` of the others; none for all of them."""
    total = math.prod(grid)
    if total <= 2 * _ENDS:
        return ()
    x, y, _ = (*grid, 1, 1, 1)[:3]
    places = [*range(_ENDS), *range(total - last, total)]
    return tuple((place % x, place // x % y, place // (x * y)) for place in places)
