"""What a served launch returns in the place of Triton's compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any


class Compiled:
    """A kernel of the package, with what callers ask of a compiled one."""

    def __init__(
        self, name: str, config: Mapping[str, Any], entry: Callable[[], Any], run: Callable[..., Any]
    ) -> None:
        self.name = name
        self._config = config
        self._read = entry
        self._run = run

    @cached_property
    def _entry(self) -> Any:
        """What the package's table has of it, which is large: most callers never ask."""
        return self._read()

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self._entry.registers

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
        """What launches it again, with all arguments of the kernel."""
        return lambda *args, **kwargs: self._run(*args, grid=grid, **kwargs)

    @property
    def asm(self) -> Any:
        """There is none: raises AttributeError."""
        raise AttributeError(f"{self.name} was compiled ahead of time, and its package has no assembly of it")
