"""The one interface of all shared caches: entries by key, moved as they are.

A store moves bytes and says what went wrong; it neither repeats nor judges.  `shared.py` does both.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Fault(Enum):
    """What kind of failure a request met: whether another try may help, and whether any other request would fare
    better."""

    BUSY = ("busy", True, False)
    """The server says so, or broke off."""
    UNREACHABLE = ("unreachable", True, True)
    """There is no server, or none that answers."""
    REFUSED = ("refused", False, True)
    """The server wants somebody else, or speaks something else."""
    FULL = ("full", False, True)
    """The server has no room."""
    REJECTED = ("rejected", False, False)
    """The server does not take this one entry."""
    WRONG = ("wrong", True, False)
    """What came is not what was asked for."""

    def __init__(self, word: str, may_help: bool, is_final: bool) -> None:
        self.word = word
        self.may_help = may_help
        self.is_final = is_final


class StoreError(Exception):
    """A request of a store that failed."""

    def __init__(self, text: str, fault: Fault, after: float = 0) -> None:
        super().__init__(text)
        self.fault = fault
        self.after = after
        """Seconds that the server asks to wait."""


@dataclass
class Traffic:
    """Bytes that were moved, as they were on the wire, without headers."""

    received: int = 0
    sent: int = 0


@dataclass(frozen=True)
class Found:
    """An entry that a store has."""

    hash: str
    """sha256 of its bytes in hexadecimal; empty where the store does not know it."""
    size: int
    contents: bytes | None = None
    """The bytes, where the store gave them at once."""


class Store(Protocol):
    """Somewhere else, where entries are.  All methods raise `StoreError`."""

    name: str
    """Its URL, without secrets."""
    traffic: Traffic

    def find(self, key: str) -> Awaitable[Found | None]:
        """Whether there is an entry of this key, and how large; None where there is none."""
        ...

    def holds(self, found: Found) -> Awaitable[bool]:
        """Whether the bytes of an entry that was found are there as well: a server may have forgotten them."""
        ...

    def read(self, key: str, found: Found) -> Awaitable[bytes | None]:
        """The bytes of an entry that was found; they need not be right.  None where they have gone."""
        ...

    def write(self, key: str, entry: bytes) -> Awaitable[None]:
        """Stores an entry under a key, instead of what is there."""
        ...

    def describe(self) -> Awaitable[dict[str, str]]:
        """What the store says of itself, for people."""
        ...

    def close(self) -> Awaitable[None]:
        """Ends its connections."""
        ...
