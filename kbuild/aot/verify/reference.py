"""The expected results of a launch: the interpreter runs the kernel's ttir, with f32 computed in float64.

The run also shows which bytes the kernel reads and writes, so that everything else can be poisoned, and
whether any result needed rounding: where none did, the order of sums is of no consequence, and the code has
to give the very same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.aot.verify.cases import LaunchCase
from kbuild.aot.verify.data import numbers, poisoned
from kbuild.compiler.interp import Trace, run, wide_f32
from kbuild.compiler.interp.loaded import Module, Type, is_float, is_pointer, pointee_of
from kbuild.compiler.interp.programs import DeadlockError
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
    given: dict[str, Any] = {
        name: numbers(kind, pointee_of(type_), sizes[name], random)
        if is_pointer(type_)
        else dict(case.scalars)[name]
        for name, type_ in types.items()
    }
    for name in case.zeros:
        given[name][...] = 0
    try:
        computed, trace, rounded = _interpreted(module, given, case)
    except DeadlockError as error:
        if case.sizes is None:
            raise UnguessedError(error.message, error.arrays) from None
        raise
    if rounded and any(is_pointer(type_) and not is_float(pointee_of(type_)) for type_ in types.values()):
        narrow = _copied(given)
        run(module, narrow, case.grid)  # Integers derived from f32 numbers must be those of f32.
        computed |= {
            name: narrow[name]
            for name, type_ in types.items()
            if is_pointer(type_) and not is_float(pointee_of(type_))
        }
    arguments, expected, written = dict(given), {}, {}
    for name in trace.read:
        element = pointee_of(types[name])
        shape = sizes[name], given[name].itemsize
        read, was_written = (
            marks.reshape(shape).any(axis=1) for marks in (trace.read[name], trace.written[name])
        )
        poison = poisoned(element, sizes[name])
        arguments[name] = np.where(read, given[name], poison)
        expected[name] = np.where(was_written, computed[name], arguments[name])
        written[name] = was_written
    unread = frozenset(name for name, marks in trace.read.items() if not marks.any())
    return Reference(arguments, expected, written, unread, not rounded)


def _copied(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}


def _interpreted(
    module: Module, given: Mapping[str, Any], case: LaunchCase
) -> tuple[dict[str, Any], Trace, bool]:
    """The arguments after the launch, what it did to memory, and whether there were results that f32 cannot
    hold."""
    computed, trace = _copied(given), Trace()
    with wide_f32() as wide:
        run(module, computed, case.grid, trace)
    return computed, trace, wide.rounded


def _sizes(module: Module, types: Mapping[str, Type], case: LaunchCase) -> dict[str, int]:
    """The elements of each array that a launch touches, as the interpreter finds with arrays that are larger."""
    random = np.random.default_rng(0)
    given: dict[str, Any] = {
        name: numbers("whole", pointee_of(type_), _LARGE, random)
        if is_pointer(type_)
        else dict(case.scalars)[name]
        for name, type_ in types.items()
    }
    try:
        _, trace, _ = _interpreted(module, given, case)
    except InterpretError as error:
        raise UnguessedError(error.message, getattr(error, "arrays", ())) from None
    if trace.conflict:
        raise UnguessedError(trace.conflict)
    extents = {}
    for name in trace.read:
        touched = np.flatnonzero(trace.read[name] | trace.written[name])
        extents[name] = int(touched[-1]) // given[name].itemsize + 1 if touched.size else 0
    return extents
