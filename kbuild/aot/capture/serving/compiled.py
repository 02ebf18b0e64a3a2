"""What a served launch returns in the place of Triton's compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any


class Compiled:
    """A kernel of the package, with what callers ask of a compiled one."""

    def __init__(self, name: str, config: Mapping[str, Any], entry: Any, run: Callable[..., Any]) -> None:
        self.name = name
        self.n_regs: int = entry.registers
        """Registers of a thread."""
        self.n_max_threads: int = entry.block[0] * entry.block[1] * entry.block[2]
        options = {"num_ctas": 1, **config, "name": entry.entry, "shared": entry.shared}
        self.metadata = SimpleNamespace(**options)
        self._config = config
        self._run = run

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
