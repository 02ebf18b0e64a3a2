"""Accesses of some threads that others may not have seen yet, at one point of a program: the state that
`barriers` follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kbuild.compiler.analysis.slots import BufferSlot
from kbuild.compiler.ir.core import Op, Value


class SharedBytes(NamedTuple):
    """Bytes of shared memory that an operation touches."""

    start: int
    end: int
    owner: Op
    """The allocation, or the operation whose scratch it is."""
    slot: BufferSlot | None
    """The buffer; None when unknown, or when there is one only."""
    division: object = None
    """The key of how these bytes are divided among warps, each of which touches only its own; None where they
    are not."""
    repeats: tuple[int, int] | None = None
    """Where these are not all bytes from `start` on: how far apart the parts begin, and the size of one."""


def may_conflict(first: SharedBytes, second: SharedBytes) -> bool:
    """Whether two accesses may touch the same bytes."""
    if first.start >= second.end or second.start >= first.end:
        return False
    if first.division is not None and (first.start, first.division) == (second.start, second.division):
        return False
    if first.owner is not second.owner and _interleave(first, second):
        return False
    a, b = first.slot, second.slot
    if first.owner is not second.owner or a is None or b is None:
        return True
    return a.may_equal(b)


def _interleave(first: SharedBytes, second: SharedBytes) -> bool:
    """Whether each lies in the gaps of the other."""
    if first.repeats is None or second.repeats is None or first.repeats[0] != second.repeats[0]:
        return False
    distance = (second.start - first.start) % first.repeats[0]
    return first.repeats[1] <= distance <= first.repeats[0] - second.repeats[1]


def surely_same(first: SharedBytes, second: SharedBytes) -> bool:
    return first.owner is second.owner and first.slot is not None and first.slot == second.slot


@dataclass
class State:
    """The accesses that other threads may not have seen yet, at one point of the program."""

    reads: set[SharedBytes] = field(default_factory=set)
    writes: set[SharedBytes] = field(default_factory=set)
    flight: dict[SharedBytes, int] = field(default_factory=dict)
    """Asynchronous copies not waited for: how many groups were committed after theirs; -1 while it is open."""
    dots: dict[SharedBytes, int] = field(default_factory=dict)
    """What pending asynchronous dots read: how many were issued after them."""
    unfenced: dict[SharedBytes, frozenset[Op]] = field(default_factory=dict)
    """All writes that asynchronous dots may read, with the operations at which the first barrier after
    them is."""
    loaded: dict[SharedBytes, frozenset[Op]] = field(default_factory=dict)
    """The same for what threads have read and TMA copies may overwrite."""
    loads: set[SharedBytes] = field(default_factory=set)
    """What threads have read since they met; dots, which need no fence, may have read the same."""
    outgoing: set[SharedBytes] = field(default_factory=set)
    """What pending TMA stores read."""
    unshown: set[Op] = field(default_factory=set)
    """The barriers that one thread has made and no fence has made visible yet."""
    has_accessed: bool = False
    """Whether threads have accessed global memory since they met, where that counts."""
    has_acquired: bool = False
    """Whether a thread has acquired since they met, by an atomic whose result nothing uses."""
    stored: set[Value | None] = field(default_factory=set)
    """Bases of what threads have stored since they met, where atomics of tensors come after stores; None is any."""
    updated: set[Value | None] = field(default_factory=set)
    """Bases of what such atomics have updated since then."""

    def copy(self) -> State:
        return State(
            set(self.reads),
            set(self.writes),
            dict(self.flight),
            dict(self.dots),
            dict(self.unfenced),
            dict(self.loaded),
            set(self.loads),
            set(self.outgoing),
            set(self.unshown),
            self.has_accessed,
            self.has_acquired,
            set(self.stored),
            set(self.updated),
        )

    def clear(self, barrier: Op) -> None:
        """A barrier: what was done before it is seen by all; copies and dots stay in flight."""
        for access in self.writes:
            self.unfenced[access] = self.unfenced.get(access, frozenset()) | {barrier}
        for access in self.loads:
            self.loaded[access] = self.loaded.get(access, frozenset()) | {barrier}
        for accesses in (self.reads, self.writes, self.loads):
            accesses.clear()
        for met in (self.unshown, self.stored, self.updated):
            met.clear()
        self.has_accessed = self.has_acquired = False

    def write(self, accesses: Iterable[SharedBytes]) -> None:
        """Writes that have happened."""
        for access in accesses:
            self.writes.add(access)
            self.unfenced[access] = frozenset()

    def load(self, accesses: Iterable[SharedBytes]) -> None:
        """Reads by threads."""
        for access in accesses:
            self.reads.add(access)
            self.loads.add(access)
            self.loaded[access] = frozenset()

    def add(self, other: State) -> bool:
        """Join with the state of another way to the same point; true when that changed anything."""
        before = self._size()
        self.reads |= other.reads
        self.writes |= other.writes
        self.loads |= other.loads
        self.outgoing |= other.outgoing
        self.unshown |= other.unshown
        self.stored |= other.stored
        self.updated |= other.updated
        self.has_accessed |= other.has_accessed
        self.has_acquired |= other.has_acquired
        for mine, others in ((self.flight, other.flight), (self.dots, other.dots)):
            for access, age in others.items():
                mine[access] = min(age, mine.get(access, age))
        for known, others in ((self.unfenced, other.unfenced), (self.loaded, other.loaded)):
            for access, places in others.items():
                known[access] = places | known.get(access, frozenset())
        return before != self._size()

    def _size(self) -> tuple[int, ...]:
        counted = (
            self.reads,
            self.writes,
            self.flight,
            self.dots,
            self.unfenced,
            self.loaded,
            self.loads,
            self.outgoing,
            self.unshown,
            self.stored,
            self.updated,
        )
        places = (sum(map(len, known.values())) for known in (self.unfenced, self.loaded))
        ages = sum(self.flight.values()), sum(self.dots.values())
        return (*map(len, counted), *ages, *places, self.has_accessed, self.has_acquired)

    def map(self, change: Callable[[SharedBytes], SharedBytes]) -> State:
        """The state with every access replaced."""
        aged: list[dict[SharedBytes, int]] = []
        for ages in (self.flight, self.dots):
            aged.append({})
            for access, age in ages.items():
                aged[-1][change(access)] = min(age, aged[-1].get(change(access), age))
        fences: list[dict[SharedBytes, frozenset[Op]]] = []
        for known in (self.unfenced, self.loaded):
            fences.append({})
            for access, places in known.items():
                fences[-1][change(access)] = places | fences[-1].get(change(access), frozenset())
        sets = [
            set(map(change, accesses)) for accesses in (self.reads, self.writes, self.loads, self.outgoing)
        ]
        flags = self.has_accessed, self.has_acquired
        shown = set(self.unshown), *flags, set(self.stored), set(self.updated)
        return State(sets[0], sets[1], aged[0], aged[1], fences[0], fences[1], sets[2], sets[3], *shown)
