"""One launch of a package as an answer to a call of a library's kernel: whether it fits, and with which row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.aot.capture.serving.facts import ServedArgument, ServedLaunch, Value
from kbuild.aot.capture.serving.values import NoArray, described, element_type, is_of, is_same, is_type, word

SPEED = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options that change how fast a kernel is and nothing else: where no row has the value that a call gives, another serves."""


@dataclass(frozen=True)
class Dispatch:
    """What a package's own modules have for serving."""

    package: str
    launcher: Any
    """The module `_launcher`, in C."""
    kernels: Sequence[str]
    """The names of its launches, in the order of their numbers."""
    error: type[Exception]
    """Its `NoVariantError`."""
    refuse: Callable[[int, int, tuple[int, ...], tuple[object, ...]], None]
    """Raises that for a launch, a device, facts and arguments."""
    preload: Callable[..., int]
    table: Callable[[], Sequence[Any]]
    """The tables of its launches, which are read when they are needed."""
    defaults: Mapping[str, Value]
    """Options of Triton's and what they are where a package's kernels do not say otherwise."""


class Misfit(Exception):
    """A call that a launch does not take; the text says why."""


@dataclass(frozen=True)
class Row:
    """A row of a launch that a call takes."""

    launch: Launch
    config: Mapping[str, Value]
    """Compile-time values and options by name."""
    number: int
    """Its place among the rows of the launch."""
    is_exact: bool
    """Whether all options are those that were asked for."""


@dataclass(frozen=True)
class Found:
    """A call that a launch takes."""

    row: Row
    given: Sequence[Any]
    keywords: Mapping[str, Any]

    def __call__(self, grid: tuple[int, ...]) -> None:
        """Launches it."""
        self.row.launch.function(*self.given, **self.keywords, grid=grid)


class Launch:
    """A launch of the package."""

    def __init__(
        self, facts: ServedLaunch, parameters: Sequence[tuple[str, bool]], dispatch: Dispatch
    ) -> None:
        self.facts = facts
        self.function = getattr(dispatch.launcher, facts.name)
        self._dispatch = dispatch
        self.index = list(dispatch.kernels).index(facts.name)
        taken = {argument.name for argument in facts.arguments}
        self._absent = [name for name, is_constexpr in parameters if not is_constexpr and name not in taken]
        self._constexprs = [name for name, is_constexpr in parameters if is_constexpr]
        self._rows: dict[Any, Row | str] = {}
        self._devices: dict[int, tuple[int, int]] = {}
        self.compiled: dict[int, Any] = {}
        """What callers get of its rows, by number."""

    def find(self, values: Mapping[str, Any], options: Mapping[str, Any], is_warmup: bool = False) -> Found:
        """The row that a call takes, by the values of parameters, without those compile-time ones that are left open, and the
        options that it gives; with `is_warmup`, types may stand for arrays.  Raises `Misfit`, and TypeError where an argument is
        none that a launch could take."""
        types: dict[str, str] = {}
        if is_warmup:
            types = {name: element_type(values[argument]) for name, argument in self.facts.types}
            arrays = {argument.name for argument in self.facts.arguments}
            values = {
                name: NoArray() if name in arrays and is_type(value) else value
                for name, value in values.items()
            }
        given = self._given(values)
        chosen = self.chosen(values)
        keywords = self.keywords(chosen)
        ask = self._dispatch.launcher._facts
        ordinal, facts, _, _, costs = ask(self.index, 0, *given, **types, **keywords, grid=1)
        asked = (*chosen, *((name, word(value)) for name, value in options.items()))
        key = (ordinal, facts, costs, asked, tuple(type(value) for _, value in asked))
        row = self._rows.get(key)
        if row is None:
            try:
                row = self.row(self._select(ordinal, facts, costs), dict(chosen), dict(asked))
            except Misfit as misfit:
                row = str(misfit)
            if len(self._rows) < _MOST_ROWS:
                self._rows[key] = row
        if isinstance(row, str):
            raise Misfit(row)
        return Found(row, given, keywords)

    def chosen(self, values: Mapping[str, Any]) -> list[tuple[str, Value]]:
        """The compile-time values that a call gives."""
        return [(name, word(values[name])) for name in self._constexprs if name in values]

    def keywords(self, chosen: Sequence[tuple[str, Value]]) -> dict[str, Any]:
        """What the launch is told by keywords, for these compile-time values.  Raises Misfit."""
        found = {name: value for name, value in chosen if name in self.facts.axes and value is not None}
        return found if len(found) == len(self.facts.axes) else found | self._implied(chosen)

    def places(self, kinds: Mapping[str, str]) -> list[str] | None:
        """The run-time arguments that the launch takes, by name, for values of these kinds: `none`, or one of a `ServedArgument`.
        None where it takes no such call."""
        arguments = self.facts.arguments
        is_right = all(kinds[name] == "none" for name in self._absent) and all(
            argument.kinds == (kinds[argument.name],) and not argument.is_tuple and not argument.block
            for argument in arguments
        )
        return [argument.name for argument in arguments] if is_right else None

    def _given(self, values: Mapping[str, Any]) -> list[Any]:
        """The run-time arguments as the launch takes them."""
        for name in self._absent:
            if values[name] is not None:
                raise Misfit(f"{self.facts.name}() is for calls without {name}")
        given: list[Any] = []
        for argument in self.facts.arguments:
            value = values[argument.name]
            if value is None:
                raise Misfit(f"{self.facts.name}() is for calls with {argument.name}")
            if argument.is_tuple:
                if not isinstance(value, tuple | list) or len(value) != len(argument.kinds):
                    raise Misfit(f"{argument.name} is no tuple of {len(argument.kinds)}")
                given += value
            elif argument.block:
                given.append(_base(argument, value, values))
                continue
            else:
                given.append(value)
            for kind, one in zip(argument.kinds, given[-len(argument.kinds) :]):
                if not is_of(kind, one):
                    raise Misfit(f"{argument.name} is {described(one)}, and is built as a {kind}")
        return given

    def _implied(self, chosen: Sequence[tuple[str, Value]]) -> dict[str, Any]:
        """Axes that a call leaves open, where what was captured leaves one choice."""
        columns = self.facts.columns
        known = [(columns.index(name), value) for name, value in chosen]
        fitting = [
            config
            for config in self.facts.configs
            if all(is_same(config[place], value) for place, value in known)
        ]
        found: dict[str, Any] = {}
        for name in self.facts.axes:
            if name not in dict(chosen):
                values = list(
                    {(type(config[columns.index(name)]), config[columns.index(name)]) for config in fitting}
                )
                if len(values) != 1:
                    shown = ", ".join(sorted(str(value) for _, value in values)) or "no values for this call"
                    raise Misfit(f"{name} is not given, and was captured with {shown}")
                found[name] = values[0][1]
        return found

    def _select(self, ordinal: int, facts: tuple[int, ...], costs: tuple[int | None, ...]) -> int:
        """The row of a call on a device, by its facts and what it costs; below zero where there is none."""
        launcher = self._dispatch.launcher
        if ordinal < 0:
            ordinal = launcher._default_device()
        if ordinal not in self._devices:
            capability, shared_limit, *_ = launcher._device(ordinal)
            self._devices[ordinal] = launcher._device_facts(self.index, capability, shared_limit)
        return launcher._select(self.index, (*self._devices[ordinal], *facts[2:]), costs)[0]

    def row(self, number: int, chosen: Mapping[str, Value], asked: Mapping[str, Value]) -> Row:
        """A row, for a call with these compile-time values, and with these and its options.  Raises Misfit where the row was
        built with others."""
        if number < 0:
            raise Misfit("")
        config = dict(zip(self.facts.columns, self.facts.configs[self.facts.rows[number]]))
        is_exact = True
        for name, value in asked.items():
            if name in config:
                is_right = is_same(config[name], value)
            else:
                known = self._dispatch.defaults
                is_right = value is None or (name in known and is_same(known[name], value))
            if not is_right and (name not in SPEED or name in chosen):
                built = (
                    f"is built with {described(config[name])}" if name in config else "is none of the package"
                )
                raise Misfit(f"{name} = {described(value)} {built}")
            is_exact = is_exact and is_right
        return Row(self, config, number, is_exact)

    def entry(self, number: int) -> Any:
        """What the table has of a row: registers, shared memory."""
        return self._dispatch.table()[self.index].rows[number]

    def refusal(self, values: Mapping[str, Any]) -> str:
        """Why no row takes a call that `find` refuses without a text: the rows, and for each the fact that fails."""
        launcher = self._dispatch.launcher
        given = self._given(values)
        chosen = {name: word(values[name]) for name in self.facts.axes if name in values}
        ordinal, facts, arguments, _, _ = launcher._facts(self.index, 0, *given, **chosen, grid=1)
        ordinal = launcher._default_device() if ordinal < 0 else ordinal
        capability, shared_limit, *_ = launcher._device(ordinal)
        facts = (*launcher._device_facts(self.index, capability, shared_limit), *facts[2:])
        try:
            self._dispatch.refuse(self.index, ordinal, facts, arguments)
        except self._dispatch.error as error:
            return str(error)
        return ""


_MOST_ROWS = 4096
"""Answers that a launch remembers."""


def _base(argument: ServedArgument, value: Any, values: Mapping[str, Any]) -> Any:
    """The tensor of a host's tensor descriptor, which has to be all of it."""
    base, block = getattr(value, "base", None), getattr(value, "block_shape", None)
    if base is None or block is None:
        raise Misfit(f"{argument.name} is no tensor descriptor")
    sizes = [int(size) if size.isdigit() else word(values.get(size)) for size in argument.block]
    if list(block) != sizes:
        raise Misfit(f"{argument.name} has blocks of {list(block)}, and is built with {sizes}")
    strides = base.stride() if callable(getattr(base, "stride", None)) else getattr(base, "strides", ())
    if list(value.shape) != list(base.shape) or list(value.strides) != list(strides):
        raise Misfit(f"{argument.name} describes another shape than its tensor has")
    if getattr(value, "padding", "zero") != argument.padding:
        raise Misfit(f"{argument.name} is padded with {value.padding}, and is built with {argument.padding}")
    return base
