"""Functions of libraries, answered by a package: what a call binds, which launch takes it, and how it is launched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from kbuild.aot.capture.serving.compiled import Compiled
from kbuild.aot.capture.serving.facts import ServedFunction
from kbuild.aot.capture.serving.launches import Dispatch, Found, Launch, Misfit, Row
from kbuild.aot.capture.serving.refusal import refusal_text
from kbuild.aot.capture.serving.remembered import Remembered

Grid = Any
"""One to three sizes, or a function that makes them of the values of all parameters by name."""


class Function:
    """A kernel of a library, launched as Triton would: `function[grid](*args, **kwargs)`."""

    def __init__(self, facts: ServedFunction, dispatch: Dispatch) -> None:
        self.facts = facts
        self.__name__ = facts.name.rpartition(".")[2]
        self.__qualname__ = facts.name
        self.__module__ = facts.module
        self.arg_names = [name for name, *_ in facts.parameters]
        self._names = frozenset(self.arg_names)
        self.dispatch = dispatch
        parameters = [(name, is_constexpr) for name, is_constexpr, *_ in facts.parameters]
        self.launches = [Launch(one, parameters, dispatch) for one in facts.launches]
        self._parameters = dict(parameters)
        self.constexprs = frozenset(name for name, is_constexpr in parameters if is_constexpr)
        self._defaults = {name: default for name, _, has_default, default in facts.parameters if has_default}
        self._remembered = Remembered(self, self, lambda row: (self.compiled(row), row.config))

    def __repr__(self) -> str:
        return f"<{self.dispatch.package}.triton.{self.__name__} of {self.facts.module}:{self.facts.name}>"

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        """What launches it on a grid."""
        return self._remembered.answers.at(self, grid)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{self.__name__} is a kernel: launch it as {self.__name__}[grid](…)")

    def run(self, *args: Any, grid: Grid, warmup: bool = False, **kwargs: Any) -> Compiled:
        """Launches it, or with `warmup` loads its code alone.  Raises the package's `NoVariantError` where no launch takes the
        call, and TypeError for arguments that it does not have."""
        values, options = self.bind(args, kwargs)
        try:
            found = self.find(values, options, is_warmup=warmup)
        except Misfit as misfit:
            raise self.refused(values, options, str(misfit)) from None
        if warmup:
            return self.warm(found)
        made = self.launch(found, values, grid)
        self._remembered.add(args, kwargs, values, options)
        return made

    def warmup(self, *args: Any, grid: Grid, **kwargs: Any) -> Compiled:
        """Loads its code for such a call; types may stand for arrays."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of parameters in their order, without compile-time ones that are left open, and the options of a call.
        Raises TypeError where a call gives too many arguments, one twice, or leaves one out."""
        names = self.arg_names
        if len(args) > len(names):
            raise TypeError(f"{self.__name__}() takes {len(names)} arguments, and {len(args)} were given")
        given = dict(zip(names, args))
        options: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in given:
                raise TypeError(f"{self.__name__}() got {name!r} twice")
            if name in self._names:
                given[name] = value
            else:
                options[name] = value
        values: dict[str, Any] = {}
        known = self._defaults if defaults is None else defaults
        for name in names:
            if name in given:
                values[name] = given[name]
            elif name in known:
                values[name] = known[name]
            elif name not in self.constexprs:
                raise TypeError(f"{self.__name__}() is missing the argument {name!r}")
        return values, options

    def find(self, values: Mapping[str, Any], options: Mapping[str, Any], is_warmup: bool = False) -> Found:
        """The launch that takes a call, and its row.  Raises Misfit."""
        reasons: list[str] = []
        for launch in self.launches:
            try:
                found = launch.find(values, options, is_warmup)
            except Misfit as misfit:
                reasons.append(str(misfit))
            except (TypeError, ValueError, OverflowError) as error:
                reasons.append(str(error))
            else:
                return found
        raise Misfit("; ".join(dict.fromkeys(filter(None, reasons))))

    def configs(self, names: Collection[str]) -> list[dict[str, Any]]:
        """The values of some compile-time parameters and options that were built, each set once."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for one in (launch.facts for launch in self.launches):
            for values in one.configs:
                config = {
                    name: value
                    for name, value in zip(one.columns, values)
                    if name in names and value is not None
                }
                found.setdefault(tuple((name, type(value), value) for name, value in config.items()), config)
        return [*found.values()]

    def has_config(self, given: Mapping[str, Any]) -> bool:
        """Whether any row has all of these values, of those that rows have."""
        return any(
            all(config[name] == value for name, value in given.items() if name in config)
            for one in (launch.facts for launch in self.launches)
            for config in (dict(zip(one.columns, values)) for values in one.configs)
        )

    def refused(self, values: Mapping[str, Any], options: Mapping[str, Any], reasons: str) -> Exception:
        """The error for a call that no launch takes."""
        return self.dispatch.error(refusal_text(self, values, options, reasons))

    def launch(self, found: Found, values: Mapping[str, Any], grid: Grid) -> Compiled:
        """Launches a call on a grid."""
        if callable(grid):
            grid = grid({**found.row.config, **values})
        sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
        found(sizes[:3])
        return self.compiled(found.row)

    def warm(self, found: Found) -> Compiled:
        """Loads the code of a call."""
        self.dispatch.preload(kernels=[found.row.launch.facts.name])
        return self.compiled(found.row)

    def compiled(self, row: Row) -> Compiled:
        """What a launch returns: one object for each row."""
        known = row.launch.compiled
        if row.number not in known:
            entry = partial(row.launch.entry, row.number)
            known[row.number] = Compiled(self.__name__, row.config, entry, self.__getitem__, self._parameters)
        return known[row.number]
