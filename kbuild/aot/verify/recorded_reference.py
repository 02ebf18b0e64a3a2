"""The expected results of a launch that was captured.

Its arrays are as large as they were, and those beyond some millions of elements as large as what the programs that run touch.
What arrays of integers held is not in a capture, and others may be looked up by it: they get small ascending numbers, which may
be positions, classes or offsets; where the kernel cannot be run with these, 0, 1, 2, …, and then zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kbuild.aot.verify.cases import LaunchCase
from kbuild.aot.verify.data import numbers
from kbuild.aot.verify.recorded import LARGEST, Recorded
from kbuild.aot.verify.reference import Reference, given_of, interpreted, types_of
from kbuild.compiler.interp import encode
from kbuild.compiler.interp.loaded import Module, Type, bit_width, is_float, is_pointer, pointee_of
from kbuild.errors import InterpretError, UsageError

_ROOM = 1 << 20
"""Elements of an array whose shape is not known."""
_CONTENTS = ("ascending", "places", "zeros")
_POSITIONS = 4
"""Small numbers in arrays of integers are below this."""


class UnrecordedError(UsageError):
    """A captured launch that cannot be made again from what is known of it."""


def recorded_reference(module: Module, case: LaunchCase, kind: str, seed: int) -> Reference:
    """The expected results with data of a kind.  Raises UnrecordedError where none of the ways to make arrays works."""
    recorded = case.recorded
    assert recorded is not None
    types = types_of(module)
    looked_up = [
        name for name, type_ in types.items() if is_pointer(type_) and _is_position(pointee_of(type_))
    ]
    why = ""
    for some, sizes, contents in _ways(recorded, types, bool(looked_up)):
        make = _Maker(kind, contents, recorded, np.random.default_rng(seed))
        given = given_of(types, case, sizes, make)
        try:
            found, conflict = interpreted(module, given, case.grid, some.programs, is_recorded=True)
        except InterpretError as error:
            why = why or f"{error.loc}: {error.message}"
            continue
        if conflict and looked_up:
            why = why or conflict
            continue
        note = ""
        if some is not recorded:
            note = f"runs with its first programs and larger arrays alone: as captured, {why}"
            if looked_up:
                note += f"; made-up numbers in {', '.join(looked_up)} may be why"
        return replace(found, note=note)
    held = f"\ncaptures do not have what {', '.join(looked_up)} held, and small numbers are in their place"
    raise UnrecordedError(f"the captured launch cannot be made again: {why}{held if looked_up else ''}")


def _ways(
    recorded: Recorded, types: dict[str, Type], has_positions: bool
) -> Iterator[tuple[Recorded, dict[str, int], str]]:
    """What to try: programs, sizes of arrays, and contents of those of integers."""
    extents = dict(recorded.extents)
    is_large = sum(extents.values()) > LARGEST
    most = LARGEST // 2 if is_large else LARGEST
    exact = {name: min(extents.get(name, _ROOM), most) for name in types}
    roomy = {
        name: min(max(size, _ROOM), LARGEST) for name, size in {**dict.fromkeys(types, 0), **extents}.items()
    }
    contents = _CONTENTS if has_positions else _CONTENTS[:1]
    for some, sizes in ((recorded, exact), (recorded.begun(), roomy)):
        yield from ((some, sizes, one) for one in contents)


def _is_position(element: Type) -> bool:
    """Whether numbers of a type may be positions in arrays."""
    return not is_float(element) and not is_pointer(element) and bit_width(element) >= 16


@dataclass(frozen=True)
class _Maker:
    """Makes the arrays of a launch."""

    kind: str
    contents: str
    """What arrays of positions hold."""
    recorded: Recorded
    random: np.random.Generator

    def __call__(self, name: str, element: Type, count: int) -> np.ndarray:
        if not _is_position(element):
            return numbers(self.kind, element, count, self.random)
        values = np.zeros(count, np.int64)
        if self.contents == "places":
            values = np.arange(count) % (1 << min(bit_width(element) - 1, 32))
        elif self.contents == "ascending":
            values = self.random.integers(0, max(1, min(_POSITIONS, self.recorded.least)), count)
            values = np.sort(values) if name in self.recorded.flat else values
        return np.atleast_1d(encode(values, element))
