"""What a served launch returns in the place of Triton's compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any


class Compiled:
    """A kernel of the package, with what callers ask of a compiled one."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        entry: Callable[[], Any],
        at: Callable[[Any], Callable[..., Any]],
        parameters: Mapping[str, bool],
    ) -> None:
        self.name = name
        self._config = config
        self._read = entry
        self._at = at
        """What launches a kernel like this one on a grid."""
        self._names = [name for name, is_constexpr in parameters.items() if not is_constexpr]
        constants = {name for name in parameters if name not in self._names}
        self._options = {name: value for name, value in config.items() if name not in constants}
        self._constants = {name: value for name, value in config.items() if name in constants}
        self._count = len(parameters)

    @cached_property
    def _entry(self) -> Any:
        """What the package's table has of it, which is large: most callers never ask."""
        return self._read()

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self._entry.registers

    @property
    def n_spills(self) -> int:
        """Registers of a thread that are kept in memory."""
        return self._entry.spills

    @property
    def n_max_threads(self) -> int:
        """Threads of a block."""
        x, y, z = self._entry.block
        return x * y * z

    @cached_property
    def metadata(self) -> SimpleNamespace:
        """Options, the name of its code, and the bytes of its dynamic shared memory, `shared`."""
        own = {"name": self._entry.entry, "shared": self._entry.shared}
        return SimpleNamespace(**{"num_ctas": 1, **self._config, **own})

    def _init_handles(self) -> None:
        """Code is loaded by the launch that needs it first, or by `preload`."""

    def result(self) -> Compiled:
        """Itself: nothing is compiled in the background."""
        return self

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """What launches it again, with all arguments of the kernel, or as Triton had it before 3.3, with those that are not
        compile-time values."""
        launch = self._at(grid)

        def again(*args: Any, **kwargs: Any) -> Any:
            if len(args) == self._count or kwargs:
                return launch(*args, **{**self._options, **kwargs})
            return launch(**dict(zip(self._names, args)), **self._constants, **self._options)

        return again

    @property
    def asm(self) -> Any:
        """There is none: raises AttributeError."""
        raise AttributeError(f"{self.name} was compiled ahead of time, and its package has no assembly of it")
