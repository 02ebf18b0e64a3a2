"""The progress of a build: a bar on a terminal, plain lines elsewhere, nothing with `-q`."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

_SECONDS_BETWEEN_BARS = 0.05
_SECONDS_OF_SILENCE = 2.0
"""Seconds after which a log gets a line on what is under way."""


class Progress:
    """Shows messages only, for `-q`; the base of the other two."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def step(self, done: int, total: int, description: str) -> None:
        """One step of `total` is done."""

    def busy(self, description: str) -> None:
        """How far the current step has come."""

    def message(self, text: str) -> None:
        """Lines that stay."""
        print(text, file=self.stream, flush=True)

    def finish(self) -> None:
        """Nothing more will come."""


class Lines(Progress):
    """One line per step, and one where a step takes long, for logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._spoke = time.monotonic()

    def busy(self, description: str) -> None:
        if time.monotonic() - self._spoke >= _SECONDS_OF_SILENCE:
            self.message(f"  … {description}")

    def message(self, text: str) -> None:
        super().message(text)
        self._spoke = time.monotonic()

    def step(self, done: int, total: int, description: str) -> None:
        self.message(f"[{done}/{total}] {description}")


class Bar(Progress):
    """One line that is drawn over: how much is done, how long it took, and what was done last."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._start = time.monotonic()
        self._drawn = 0.0
        self._shown = False
        self._done, self._total = 0, 0

    def step(self, done: int, total: int, description: str) -> None:
        now = time.monotonic()
        self._done, self._total = done, total
        if done < total and now - self._drawn < _SECONDS_BETWEEN_BARS:
            return
        self._drawn = now
        columns = shutil.get_terminal_size().columns - 1
        filled = 24 * done // max(total, 1)
        text = (
            f"[{'=' * filled}{' ' * (24 - filled)}] {done}/{total} {now - self._start:.1f} s  {description}"
        )
        self.stream.write("\r" + text[:columns].ljust(columns))
        self.stream.flush()
        self._shown = True

    def busy(self, description: str) -> None:
        self.step(self._done, self._total, description)

    def message(self, text: str) -> None:
        self.finish()
        super().message(text)

    def finish(self) -> None:
        if self._shown:
            self.stream.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            self.stream.flush()
        self._shown = False
