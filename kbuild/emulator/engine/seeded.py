"""Schedules and timings that choose at random: the same every time for the same seed, which is part of their
name."""

from __future__ import annotations

import numpy as np


class Seeded:
    """A source of random choices; every launch restarts its sequence."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.name = f"random({seed})"
        self.start()

    def start(self) -> None:
        self.random = np.random.default_rng(self.seed)


def name_and_number(text: str) -> tuple[str, int | None]:
    """The two parts of `name(number)`; the text and None where it is something else."""
    name, _, rest = text.partition("(")
    return (name, int(rest[:-1])) if rest.endswith(")") and rest[:-1].isdigit() else (text, None)
