"""Calls that were answered, as the launcher remembers them: what differs from them in arrays and numbers alone is answered in C.

The launcher (`answers.h`) reads the arguments of such a call and selects its row as for any other.  What it is told here follows
from compile-time values, options and the kinds of arguments alone: which launches may take the call, in their order, and for each
row whether it was built with these values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.aot.capture.serving.guards import Guard
from kbuild.aot.capture.serving.launches import Launch, Misfit, Row
from kbuild.aot.capture.serving.values import is_array, word

_KINDS = ("none", "pointer", "integer", "float", "bool")
"""Of run-time arguments, in the order of the launcher's `ValueKind`: None comes where compile-time values do, as one of which it
counts."""
_NUMBERS = {bool: "bool", int: "integer", float: "float"}


@dataclass(frozen=True)
class _Taker:
    """A launch that may take the calls of a form."""

    launch: Launch
    taken: Sequence[str]
    """Its arguments."""
    keywords: Mapping[str, Any]
    chosen: Mapping[str, Any]
    """The compile-time values of these calls."""
    asked: Mapping[str, Any]
    """These, and options."""


class Remembered:
    """The calls of a function of the package by one kernel, a tuner of it, or its own name, for as long as some guards hold.

    `result` says what the launcher has to know of a row: a tuple of what the launch returns, and its compile-time values and
    options by name.  A tuner's has two more: a guard, and (object, attribute, value) to be set before a launch.  None leaves
    calls that take the row to the slower way.
    """

    def __init__(
        self,
        function: Any,
        kernel: Any,
        result: Callable[[Row], tuple[Any, ...] | None],
        guards: Sequence[Guard] = (),
    ) -> None:
        self.answers = function.dispatch.launcher._Answers(kernel, tuple(guards))
        """The launcher's own: `at(kernel, grid)` and `launch(kernel, grid, *args, **kwargs)`."""
        self._function = function
        self._result = result
        self._seen: set[Any] = set()
        self._has_room = True

    def add(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        values: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        """Remembers a call that was answered, given what it binds, if the kinds of its arguments are known at a glance."""
        if not self._has_room:
            return
        function = self._function
        names = (*function.arg_names[: len(args)], *kwargs)
        runtime = {name: _kind(value) for name, value in values.items() if name not in function.constexprs}
        constants = [
            (name, value) for name, value in (*values.items(), *options.items()) if name not in runtime
        ]
        if "" in runtime.values() or not all(_is_constant(value) for _, value in constants):
            return
        key = (len(args), names, *runtime.values(), *(_typed(value) for _, value in constants))
        if key in self._seen:
            return
        self._seen.add(key)
        # Values that the call leaves out follow those that it gives; arrays and numbers stay with their owners.
        given = {
            name: value if runtime.get(name, "none") == "none" else None
            for name, value in zip(names, (*args, *kwargs.values()))
        }
        every = {**given, **{name: value for name, value in values.items() if name not in given}}
        places = {name: place for place, name in enumerate(every)}
        takers = list(self._takers(values, options, runtime))
        self._has_room = self.answers.add(
            names[len(args) :],
            tuple(_KINDS.index(runtime.get(name, "none")) for name in names),
            tuple(every.values()),
            tuple((name, places[name]) for name in values),
            tuple(
                (one.launch.index, tuple(places[name] for name in one.taken), one.keywords) for one in takers
            ),
            self._resolver(takers),
        )

    def _takers(
        self, values: Mapping[str, Any], options: Mapping[str, Any], runtime: Mapping[str, str]
    ) -> Iterator[_Taker]:
        """The launches that may take such calls: `Launch.find` refuses the others whatever their arrays and numbers are."""
        for launch in self._function.launches:
            taken = launch.places(runtime)
            if taken is None:
                continue
            chosen = launch.chosen(values)
            asked = {**dict(chosen), **{name: word(value) for name, value in options.items()}}
            try:
                yield _Taker(launch, taken, launch.keywords(chosen), dict(chosen), asked)
            except Misfit:
                continue

    def _resolver(self, takers: Sequence[_Taker]) -> Callable[[int, int], tuple[Any, ...] | bool | None]:
        """What says of a launch's row how it answers the calls of a form: None where it does not, False where the slower way
        has to."""

        def resolve(number: int, row: int) -> tuple[Any, ...] | bool | None:
            one = takers[number]
            try:
                found = one.launch.row(row, one.chosen, one.asked)
            except Misfit:
                return None
            return self._result(found) or False

        return resolve


def _kind(value: Any) -> str:
    """Of a run-time argument; empty where it is of none that the launcher knows."""
    if value is None:
        return "none"
    if type(value) in _NUMBERS:
        return _NUMBERS[type(value)]
    return "pointer" if is_array(value) and not isinstance(value, int | float | type) else ""


def _is_constant(value: Any) -> bool:
    """Whether a compile-time value stays what it is."""
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return value is None or type(value) in (bool, int, float, str) or type(value).__name__ == "dtype"


def _typed(value: Any) -> Any:
    """A compile-time value, told from others that are equal, as True is to 1."""
    return tuple(map(_typed, value)) if type(value) is tuple else (type(value), value)
