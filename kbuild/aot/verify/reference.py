"""The expected results of a launch: the interpreter runs the kernel's ttir, with f32 computed in float64.

The run also shows which bytes the kernel reads and writes, so that everything else can be poisoned, and
whether any result needed rounding: where none did, the order of sums is of no consequence, and the code has
to give the very same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbuild.aot.verify.cases import LaunchCase
from kbuild.aot.verify.compare import rounding
from kbuild.aot.verify.data import numbers, poisoned
from kbuild.compiler.interp import Trace, run, tf32_cut, wide_f32
from kbuild.compiler.interp.loaded import Module, Type, is_float, is_pointer, pointee_of
from kbuild.compiler.interp.programs import DeadlockError, Index
from kbuild.errors import InterpretError, UsageError

_LARGE = 1 << 20
"""Elements of the arrays with which a launch without sizes is tried."""


class UnguessedError(UsageError):
    """A launch that the manifest does not describe and that cannot be derived from what the kernel does."""

    def __init__(self, why: str, zeros: Sequence[str] = ()) -> None:
        super().__init__(f"the kernel's launches cannot be guessed from its types ({why})")
        self.zeros = tuple(zeros)
        """Arrays that may have to begin as zeros."""


@dataclass(frozen=True)
class Reference:
    """A launch's arguments and the expected contents of its arrays."""

    arguments: Mapping[str, Any]
    expected: Mapping[str, np.ndarray]
    written: Mapping[str, np.ndarray]
    """Which elements of each array the kernel writes."""
    unread: frozenset[str]
    """The arrays that the kernel does not read."""
    exact: bool
    """Whether no result in f32 needed rounding."""
    programs: tuple[Index, ...] = ()
    """The programs that run; all of the grid where it is empty."""
    roundings: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of arrays of a recorded launch, how far results are off in f32, as `rounding` says it."""
    note: str = ""
    """What is worth knowing of the launch."""


def types_of(module: Module) -> dict[str, Type]:
    """The types of the kernel's arguments, by name."""
    return {argument.name: argument.type for argument in module.kernel.arguments}


def reference(module: Module, case: LaunchCase, kind: str, seed: int) -> Reference:
    """The expected results of a launch with data of a kind.  Raises InterpretError where the kernel itself fails.

    Raises UsageError for a launch without sizes whose arrays cannot be derived from what the kernel does.
    """
    types = types_of(module)
    sizes = dict(case.sizes) if case.sizes is not None else _sizes(module, types, case)
    random = np.random.default_rng(seed)
    given = given_of(types, case, sizes, lambda _, type_, count: numbers(kind, type_, count, random))
    for name in case.zeros:
        given[name][...] = 0
    try:
        found, _ = interpreted(module, given, case.grid)
    except DeadlockError as error:
        if case.sizes is None:
            raise UnguessedError(error.message, error.arrays) from None
        raise
    return found


def given_of(
    types: Mapping[str, Type],
    case: LaunchCase,
    sizes: Mapping[str, int],
    made: Callable[[str, Type, int], np.ndarray],
) -> dict[str, Any]:
    """A launch's arguments: numbers, and arrays that are made from a name, the type of an element, and a size."""
    scalars = dict(case.scalars)
    return {
        name: made(name, pointee_of(type_), sizes[name]) if is_pointer(type_) else scalars[name]
        for name, type_ in types.items()
    }


def interpreted(
    module: Module,
    given: Mapping[str, Any],
    grid: Sequence[int],
    programs: Sequence[Index] = (),
    is_recorded: bool = False,
) -> tuple[Reference, str]:
    """What a launch gives, and where its result depends on the order of programs.  Of a recorded launch arrays end behind
    the last element that is touched, and it is known how much results depend on rounding.  Raises InterpretError where the
    kernel fails."""
    types = types_of(module)
    integers = [
        name for name, type_ in types.items() if is_pointer(type_) and not is_float(pointee_of(type_))
    ]
    computed, trace, rounded = _interpreted(module, given, grid, programs)
    narrow = _copied(given)
    if rounded and (integers or is_recorded):
        with tf32_cut() if is_recorded else nullcontext():
            run(module, narrow, grid, programs=programs)
        # Integers derived from f32 numbers must be those of f32.
        computed |= {name: narrow[name] for name in integers}
    arguments, expected, written, roundings = dict(given), {}, {}, {}
    for name in trace.read:
        element, first = pointee_of(types[name]), given[name]
        read, was_written = (
            marks.reshape(first.size, first.itemsize).any(axis=1)
            for marks in (trace.read[name], trace.written[name])
        )
        touched = np.flatnonzero(read | was_written)
        end = (int(touched[-1]) + 1 if touched.size else 0) if is_recorded else first.size
        read, was_written = np.asarray(read)[:end], np.asarray(was_written)[:end]
        arguments[name] = np.where(read, first[:end], poisoned(element, end))
        expected[name] = np.where(was_written, computed[name][:end], arguments[name])
        written[name] = was_written
        if rounded and is_recorded and is_float(element):
            roundings[name] = rounding(element, computed[name][:end], narrow[name][:end], was_written)
    unread = frozenset(name for name, marks in trace.read.items() if not marks.any())
    found = Reference(arguments, expected, written, unread, not rounded, tuple(programs), roundings)
    return found, trace.conflict


def _copied(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}


def _interpreted(
    module: Module, given: Mapping[str, Any], grid: Sequence[int], programs: Sequence[Index] = ()
) -> tuple[dict[str, Any], Trace, bool]:
    """The arguments after the launch, what it did to memory, and whether there were results that f32 cannot
    hold."""
    computed, trace = _copied(given), Trace()
    with wide_f32() as wide:
        run(module, computed, grid, trace, programs)
    return computed, trace, wide.rounded


def _sizes(module: Module, types: Mapping[str, Type], case: LaunchCase) -> dict[str, int]:
    """The elements of each array that a launch touches, as the interpreter finds with arrays that are larger."""
    random = np.random.default_rng(0)
    large = dict.fromkeys(types, _LARGE)
    given = given_of(types, case, large, lambda _, type_, count: numbers("whole", type_, count, random))
    try:
        _, trace, _ = _interpreted(module, given, case.grid)
    except InterpretError as error:
        raise UnguessedError(error.message, getattr(error, "arrays", ())) from None
    if trace.conflict:
        raise UnguessedError(trace.conflict)
    extents = {}
    for name in trace.read:
        touched = np.flatnonzero(trace.read[name] | trace.written[name])
        extents[name] = int(touched[-1]) // given[name].itemsize + 1 if touched.size else 0
    return extents
