"""`mbarrier` objects: phases that end when all arrivals have come and all announced bytes have landed.

The 8 bytes in shared memory hold an encoding of the state, so that a barrier overwritten by ordinary stores
is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import POISON, Space

LIMIT = (1 << 20) - 1
"""The most arrivals a barrier can expect, and the most bytes it can be short of or ahead by."""


@dataclass
class Mbarrier:
    """The state of one object."""

    expected: int
    """Arrivals that each phase needs."""
    pending: int
    """Arrivals that the current phase still needs."""
    transactions: int = 0
    """Bytes announced and not landed yet; negative when they landed first."""
    phase: int = 0
    """How many phases are complete."""

    @property
    def word(self) -> int:
        """The state as the 8 bytes in memory."""
        return (
            1 << 62
            | (self.phase & 1) << 61
            | (self.transactions & 0x1FFFFF) << 40
            | self.expected << 20
            | self.pending
        )


class Barriers:
    """The mbarriers in the shared memory of one CTA, by the offset of their 8 bytes."""

    def __init__(self, shared: Space) -> None:
        self.shared = shared
        self._live: dict[int, Mbarrier] = {}

    def init(self, offset: int, count: int) -> bool:
        """`mbarrier.init`; returns whether a barrier was there that has been used and not invalidated, but
        stands between phases.

        Raises Fault for a count out of range, and where a phase of that barrier has begun.
        """
        self.shared.check(np.array([offset]), 8)
        if not 1 <= count <= LIMIT:
            raise Fault(
                "mbarrier-misuse", f"an mbarrier cannot expect {count} arrivals; 1 to {LIMIT} are possible"
            )
        old = self._live.get(offset)
        again = old is not None and self._word(offset) == old.word
        if again and old is not None and (old.pending != old.expected or old.transactions):
            raise Fault(
                "mbarrier-misuse",
                f"the mbarrier at {offset:#x} is initialised again while a phase is under way",
            )
        self._live[offset] = Mbarrier(count, count)
        self._keep(offset)
        return again and old is not None and old.phase > 0

    def invalidate(self, offset: int) -> None:
        """`mbarrier.inval`: the bytes are free for other use."""
        self.at(offset)
        del self._live[offset]
        self.shared.data[offset : offset + 8] = POISON

    def unbalanced(self) -> list[tuple[int, int]]:
        """Offset and missing bytes of each barrier that waits for bytes, or has got too many (negative)."""
        return [
            (offset, barrier.transactions)
            for offset, barrier in self._live.items()
            if barrier.transactions and self._word(offset) == barrier.word
        ]

    def at(self, offset: int) -> Mbarrier:
        """The barrier there.  Raises Fault where none was initialised, or its bytes were overwritten."""
        barrier = self._live.get(offset)
        if barrier is None:
            self.shared.check(np.array([offset]), 8)
            raise Fault("mbarrier-misuse", f"no initialised mbarrier at shared address {offset:#x}")
        if self._word(offset) != barrier.word:
            raise Fault("mbarrier-misuse", f"the mbarrier at shared address {offset:#x} was overwritten")
        return barrier

    def arrive(self, offset: int, count: int = 1, drop: bool = False, completes: bool = True) -> int:
        """Subtract arrivals from the current phase and return its number.  `drop` lowers what later phases expect
        too.

        Raises Fault for more arrivals than the phase needs, or as many where they must not be the last ones
        (not `completes`).
        """
        barrier = self.at(offset)
        if not completes and count == barrier.pending:
            raise Fault(
                "mbarrier-misuse",
                f"the last arrival of a phase at the mbarrier at {offset:#x} must not be it",
            )
        if not 1 <= count <= barrier.pending:
            raise Fault(
                "mbarrier-misuse",
                f"{count} arrivals at the mbarrier at {offset:#x}: its phase needs {barrier.pending} more of {barrier.expected}",
            )
        phase = barrier.phase
        barrier.pending -= count
        barrier.expected -= count if drop else 0
        self._advance(offset, barrier)
        return phase

    def expect(self, offset: int, size: int) -> int:
        """Announce bytes for the current phase and return its number."""
        return self._transfer(offset, size)

    def complete(self, offset: int, size: int) -> int:
        """Bytes have landed; returns the phase that they count for."""
        return self._transfer(offset, -size)

    def more(self, offset: int, count: int) -> None:
        """The current phase needs this many arrivals more."""
        barrier = self.at(offset)
        barrier.pending += count
        if barrier.pending > LIMIT:
            raise Fault(
                "mbarrier-misuse",
                f"the mbarrier at {offset:#x} waits for {barrier.pending} arrivals, more than {LIMIT}",
            )
        self._keep(offset)

    def passed(self, offset: int, parity: int) -> bool:
        """`test_wait.parity`: whether the phase of this parity (the current or the one before it) is
        complete."""
        return self.at(offset).phase & 1 != parity

    def passed_token(self, offset: int, phase: int) -> bool:
        """`test_wait` with the phase that an arrival returned.  Raises Fault for a phase that is
        neither current nor the one before."""
        current = self.at(offset).phase
        if not current - 1 <= phase <= current:
            raise Fault(
                "mbarrier-misuse",
                f"waits at {offset:#x} for phase {phase} while phase {current} is under way",
            )
        return current > phase

    def describe(self, offset: int) -> str:
        barrier = self._live.get(offset)
        if barrier is None:
            return f"at shared address {offset:#x}, which is not an mbarrier any more"
        return (
            f"at the mbarrier at shared address {offset:#x} (phase {barrier.phase}: {barrier.pending} of {barrier.expected}"
            f" arrivals and {barrier.transactions} bytes to come)"
        )

    def _transfer(self, offset: int, size: int) -> int:
        barrier = self.at(offset)
        barrier.transactions += size
        if not -LIMIT <= barrier.transactions <= LIMIT:
            raise Fault(
                "mbarrier-misuse",
                f"the mbarrier at {offset:#x} is {barrier.transactions} bytes short, beyond {LIMIT}",
            )
        phase = barrier.phase
        self._advance(offset, barrier)
        return phase

    def _advance(self, offset: int, barrier: Mbarrier) -> None:
        if barrier.pending == 0 and barrier.transactions == 0:
            barrier.phase += 1
            barrier.pending = barrier.expected
        self._keep(offset)

    def _word(self, offset: int) -> int:
        return int(self.shared.view(8)[offset // 8])

    def _keep(self, offset: int) -> None:
        self.shared.view(8)[offset // 8] = self._live[offset].word
