"""Calls that a package does not serve, in the format of `kbuild capture`: what they are, for the next build of it."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.aot.capture.hook.recorder import MOST_VARIANTS, Recorder
from kbuild.aot.capture.serving.specialize import specialized


class Misses:
    """Where this process records calls that are not served."""

    def __init__(self, folder: str) -> None:
        triton = sys.modules.get("triton")
        facts = {"triton": getattr(triton, "__version__", ""), "python": sys.version.split()[0], "device": ""}
        self._recorder = Recorder(folder, facts)
        atexit.register(self._recorder.close)
        self._made: dict[str, Any] = {}

    def note(
        self,
        function: Any,
        values: Mapping[str, Any],
        launch: tuple[Any, Sequence[Any], Mapping[str, Any]],
        decorators: Sequence[Any] = (),
        kernel: Any = None,
        near: bool = False,
    ) -> None:
        """Records a call of a live function: its values by parameter, its grid (None for a compilation alone), arguments and
        keywords, what Triton compiled for it, where it did, and whether it got the choice of a tuner for another size."""
        try:
            grid, args, kwargs = launch
            if callable(grid):
                grid = grid(dict(values))
            made = kernel if hasattr(kernel, "src") else self._specialized(function, values, kwargs)
            self._recorder.note(made, function, (grid, args, kwargs), decorators, near)
        except Exception as error:  # A call that cannot be recorded is launched, or refused, all the same.
            self._recorder.failed(function, error)

    def _specialized(self, function: Any, values: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Any:
        """One object for all calls that are alike, as Triton has one kernel."""
        found = specialized(function, values)
        source = found.src
        options = sorted(
            (name, repr(value)) for name, value in kwargs.items() if name not in source.signature
        )
        key = repr((id(function), source.signature, source.constants, source.attrs, options))
        if len(self._made) < MOST_VARIANTS:
            return self._made.setdefault(key, found)
        return self._made.get(key, found)
