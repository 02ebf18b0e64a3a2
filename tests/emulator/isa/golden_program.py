"""Golden programs: short PTX with inputs, and the outputs that the PTX ISA specifies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kbuild.emulator.engine.launch import Report, run
from tests.emulator.emulated import at, kernel

__all__ = ["Program", "at"]


@dataclass(frozen=True)
class Program:
    name: str
    body: str
    expected: Mapping[str, np.ndarray]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    threads: int = 32
    shared: int = 0
    module: str = ""
    grid: tuple[int, ...] = (1,)
    cluster: tuple[int, ...] = (1, 1, 1)

    @property
    def text(self) -> str:
        return kernel(self.body, tuple(self.arrays), self.module, self.threads)

    def run(self, schedule: str = "lockstep") -> Report:
        arrays = list(self.arrays.values())
        return run(
            self.text,
            "test",
            self.grid,
            -(-self.threads // 32),
            self.shared,
            arrays,
            cluster=self.cluster,
            schedule=schedule,
        )
