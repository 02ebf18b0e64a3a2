"""What commands share that time an operator against one peer: `layers.py` and `lengths.py`.

A row has the `shape`, `us`, microseconds by contender, the `error` of ours, and whether that is `right`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

Row = dict[str, Any]


class Peer(NamedTuple):
    """Whom ours is timed against."""

    key: str
    """Under which its times are."""
    name: str

    @property
    def heading(self) -> str:
        """Of the table."""
        return f"| shape | µs | {self.name}'s | ratio | error |\n|---|--:|--:|--:|--:|"

    def ratio(self, row: Row) -> float:
        """Its time over ours."""
        return row["us"][self.key] / row["us"]["kbuild"]

    def line_of(self, row: Row) -> str:
        """One row of the table."""
        us, mark = row["us"], "" if row["right"] else "  WRONG"
        times = f"{us['kbuild']:.1f} | {us[self.key]:.1f} | {self.ratio(row):.3f}"
        return f"| {row['shape']} | {times} | {row['error']:.1e} |{mark}"

    def add(self, found: list[Row], row: Row, file: Path | None) -> None:
        """Keep a row: print it, and write all into a file."""
        found.append(row)
        print(self.line_of(row), flush=True)
        if file:
            file.write_text(json.dumps({"device": torch.cuda.get_device_name(), "rows": found}))

    def conclude(self, found: list[Row], mean_of: Callable[[Iterable[float]], float]) -> int:
        """Print the mean of the ratios and the least; the exit code, which is 1 where a result is wrong."""
        ratios = [self.ratio(row) for row in found]
        wrong = sum(not row["right"] for row in found)
        mean, least = mean_of(ratios), min(ratios)
        print(f"\n{len(found)} rows, {wrong} wrong; mean {mean:.3f}, least {least:.3f} of {self.name}")
        return int(wrong > 0)
