"""Kernels of a library that are there as objects of Triton's: whether a package serves them, and their calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.aot.capture.serving.functions import Function, Grid
from kbuild.aot.capture.serving.guards import Guard
from kbuild.aot.capture.serving.launches import Found, Row
from kbuild.aot.capture.serving.remembered import Remembered


@dataclass(frozen=True)
class Call:
    """A call as Triton's `run` gets it."""

    grid: Grid
    warmup: bool
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def all_kwargs(self) -> dict[str, Any]:
        """Its keywords with those that say how it is launched."""
        return {**self.kwargs, "grid": self.grid, "warmup": self.warmup}


_MOST_TRIES = 8
"""Times that a kernel's calls are remembered anew, since what guarded them has changed for good."""


class Live:
    """A function of a package in the place of a live one, whose digest is that of what the package was built of."""

    def __init__(self, function: Function, kernel: Any) -> None:
        self.function = function
        self.kernel = kernel
        """Triton's object."""
        self._defaults = {one.name: one.default for one in kernel.params if one.has_default}
        self.kept: dict[Any, bool] = {}
        """By configuration and key of a tuner, whether it keeps that for these arguments."""
        self._remembered: dict[int, tuple[Any, Remembered, int]] = {}

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], open_names: Collection[str] = ()
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values and options of a call, as `Function.bind` finds them; a tuner chooses the open names."""
        defaults = self._defaults
        if open_names:
            defaults = {name: value for name, value in defaults.items() if name not in open_names}
        return self.function.bind(args, kwargs, defaults)

    def remembered(
        self,
        holder: Any,
        guards: Callable[[], Sequence[Guard]],
        result: Callable[[Row], tuple[Any, ...] | None],
    ) -> Remembered:
        """The calls of `holder`, the kernel or a tuner of it, that the launcher answers while the guards hold."""
        _, found, tries = self._remembered.get(id(holder), (holder, None, 0))
        if found is None or (tries < _MOST_TRIES and not found.answers.holds()):
            found = Remembered(self.function, holder, result, guards())
            self._remembered[id(holder)] = (holder, found, tries + 1)
        return found

    def launch(self, found: Found, values: Mapping[str, Any], call: Call) -> Any:
        """Launches a call, with the hooks that Triton calls around it."""
        for hook in getattr(self.kernel, "pre_run_hooks", ()):
            hook(*call.args, **call.kwargs)
        if call.warmup:
            return self.function.warm(found)
        enter, leave = _launch_hooks()
        if enter is None and leave is None:
            return self.function.launch(found, values, call.grid)
        grid = call.grid({**found.row.config, **values}) if callable(call.grid) else call.grid
        facts = _LaunchFacts(self, found, values, grid)
        if enter is not None:
            enter(facts)
        made = self.function.launch(found, values, grid)
        if leave is not None:
            leave(facts)
        return made


class _LaunchFacts:
    """What hooks of launches get: `get()` makes a dictionary."""

    def __init__(self, live: Live, found: Found, values: Mapping[str, Any], grid: Any) -> None:
        self.data: dict[str, Any] = {"name": live.function.__name__, "function": None, "stream": None}
        self._more = getattr(live.kernel, "launch_metadata", None)
        self._call = (grid, found, values)
        self._live = live

    def get(self) -> dict[str, Any]:
        """The facts of the launch, with those that the kernel's own `launch_metadata` adds."""
        if self._more is not None:
            grid, found, values = self._call
            more, self._more = self._more, None
            metadata = self._live.function.compiled(found.row).metadata
            self.data |= more(grid, metadata, {**found.row.config, **values})
        return self.data


def _launch_hooks() -> tuple[Any, Any]:
    """Those that are set: Triton 3.4 has chains of them among its knobs, and versions before that one of its class."""
    knobs = sys.modules.get("triton.knobs")
    if knobs is not None:
        holder: Any = knobs.__dict__.get("runtime")
    else:
        holder = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
    found = (getattr(holder, "launch_enter_hook", None), getattr(holder, "launch_exit_hook", None))
    enter, leave = (hook if hook is not None and getattr(hook, "calls", True) else None for hook in found)
    return enter, leave
