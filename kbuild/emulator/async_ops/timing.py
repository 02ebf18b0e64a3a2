"""When asynchronous operations take effect: the adversary.

PTX guarantees only that an operation takes effect between its issue and the wait for it.  A correct kernel
is correct for every choice; `early` hides missing waits, `late` exposes them, `random` mixes.
"""

from __future__ import annotations

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.seeded import Seeded, name_and_number


class Timing:
    """All at once, when issued."""

    name = "early"
    adversarial = False
    """Whether operations under way must be kept apart from those that have taken effect."""

    def lands_at_issue(self) -> bool:
        """Whether an operation just issued takes effect right away."""
        return True

    def choose(self, count: int) -> int:
        """Which of several operations (oldest first, at least one) lands next."""
        return 0

    def start(self) -> None:
        """A new launch begins."""


class Late(Timing):
    """Not before a thread must wait; the last one issued first."""

    name, adversarial = "late", True

    def lands_at_issue(self) -> bool:
        return False

    def choose(self, count: int) -> int:
        return count - 1


class RandomTiming(Seeded, Timing):
    """At issue, or later in any order."""

    adversarial = True

    def lands_at_issue(self) -> bool:
        return bool(self.random.integers(2))

    def choose(self, count: int) -> int:
        return int(self.random.integers(count))


def timing_named(text: str) -> Timing:
    """`early`, `late` or `random(seed)`.  Raises EmulationError for others."""
    if text in ("early", "late"):
        return Timing() if text == "early" else Late()
    name, number = name_and_number(text)
    if name == "random" and number is not None:
        return RandomTiming(number)
    raise EmulationError(f"unknown timing {text!r}", help="known are early, late and random(SEED)")
