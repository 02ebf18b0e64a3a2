"""A shared cache as builds use it: it gives right entries or none, in limited time, and never fails.

Requests are repeated while that may help, after pauses of random length, within the time that one may take in all.
Where the server is away, refuses, is full, or fails again and again, it is left alone, and one warning says so.  One that
was away is tried again with a single request after half a minute, and after ever longer pauses.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kbuild.aot.build.cache import decode
from kbuild.aot.environment import Remote
from kbuild.aot.remote.store import Fault, Found, Store, StoreError

T = TypeVar("T")
Warn = Callable[[str], None]

_TRIES = 4
_PAUSE = 0.2
"""Seconds; the longest pause before the second try, which doubles with each."""
_FAILURES = 5
"""Requests that fail in a row before no more are made."""
_AWAY = 30.0
"""Seconds that a server which is away is left alone at first."""
_SLOWEST = 100_000
"""Bytes a second that a connection has to move for large entries to arrive."""


@dataclass
class Tally:
    """What came of the requests."""

    found: int = 0
    missing: int = 0
    wrong: int = 0
    """Entries that were not what they should be, and were not used."""
    sent: int = 0


class Gate:
    """One of the ways to a server, reading or writing, which closes when it does not lead there."""

    def __init__(self, name: str, instead: str, warn: Warn) -> None:
        """`name` is the server's, and `instead` what is done without it."""
        self._name, self._instead, self._warn = name, instead, warn
        self._failures = 0
        self._noted: set[Fault] = set()
        self._closed_until = 0.0
        """By the clock that only goes forwards."""
        self._pause = _AWAY
        self._is_tried = False
        """Whether a request is under way that shows if the server is back."""

    @property
    def is_open(self) -> bool:
        """Whether a request may pass."""
        return time.monotonic() >= self._closed_until

    def enters(self) -> bool:
        """Whether a request may pass now; where the server was away, one at a time does."""
        if not self.is_open:
            return False
        if self._closed_until:
            self._is_tried = True
            self._closed_until = time.monotonic() + self._pause
        return True

    def passed(self) -> None:
        """An entry went through."""
        self._failures = 0
        if self._closed_until:
            self._closed_until, self._pause, self._is_tried = 0.0, _AWAY, False
            self._warn(f"{self._name} answers again")

    def failed(self, error: StoreError) -> None:
        """A request failed, all tries included."""
        self._failures += 1
        if self._is_tried:
            self._is_tried = False
            self._pause *= 2
            self.close(error.fault)
        elif self._closed_until:
            return  # It was under way when the others failed.
        elif error.fault.is_final or self._failures >= _FAILURES:
            self._warn(f"warning: {self._name}: {error}; {self._instead}")
            self.close(error.fault)
        elif error.fault not in self._noted:
            self._noted.add(error.fault)
            self._warn(f"warning: {self._name}: {error}")

    def close(self, fault: Fault = Fault.REFUSED) -> None:
        """Lets nothing pass: for a while, or for good where time does not help."""
        self._closed_until = time.monotonic() + self._pause if fault.may_help else math.inf


async def attempted(seconds: float, request: Callable[[], Awaitable[T]], tries: int = _TRIES) -> T:
    """The answer to a request, which is repeated as long as that may help and time is left.  Raises
    `StoreError`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    for number in range(tries):
        try:
            return await asyncio.wait_for(request(), max(end - loop.time(), 0.001))
        except asyncio.TimeoutError:
            raise StoreError(f"no answer within {seconds:.3g} seconds", Fault.UNREACHABLE) from None
        except StoreError as error:
            pause = max(error.after, random.uniform(0, _PAUSE * 2**number))
            if not error.fault.may_help or number + 1 == tries or loop.time() + pause > end:
                raise
        except Exception as error:  # Of a library: whatever happens there, the build goes on.
            raise StoreError(f"{type(error).__name__}: {error}", Fault.BUSY) from None
        await asyncio.sleep(pause)
    raise AssertionError("the last try returns or raises")


def seconds_for(size: int, timeout: float) -> float:
    """The time in which a number of bytes has to be moved."""
    return timeout + size / _SLOWEST


class Shared:
    """A shared cache, whatever it speaks."""

    def __init__(
        self, store: Store, remote: Remote, warn: Warn, instead: str = "building without it"
    ) -> None:
        """`instead` is what is done where it cannot be read."""
        self.store = store
        self.tally = Tally()
        self.reading = Gate(store.name, instead, warn)
        self.writing = Gate(store.name, "nothing more is sent there", warn)
        if remote.is_read_only:
            self.writing.close()
        self._timeout = remote.timeout

    async def find(self, key: str) -> Found | None:
        """Whether there is an entry; None also where the server cannot say."""
        return await self._asked(self.reading, self._timeout, lambda: self.store.find(key))

    async def get(self, key: str) -> bytes | None:
        """The bytes of an entry, which are right; None where there is none, or none to be had."""
        found = await self.find(key)
        if found is None:
            self.tally.missing += 1
            return None
        data = found.contents
        if data is None or not is_right(key, found, data):
            seconds = seconds_for(found.size, self._timeout)
            data = await self._asked(self.reading, seconds, lambda: self._right(key, found))
        if data is None:
            self.tally.missing += 1
            return None
        self.reading.passed()  # Only now: a server may know entries that it cannot give.
        self.tally.found += 1
        return data

    async def put(self, key: str, entry: bytes) -> bool:
        """Stores an entry; returns whether it succeeded."""

        async def written() -> bool:
            await self.store.write(key, entry)
            return True

        is_stored = await self._asked(self.writing, seconds_for(len(entry), self._timeout), written)
        if is_stored:
            self.writing.passed()
            self.tally.sent += 1
        return bool(is_stored)

    async def holds(self, key: str, entry: bytes) -> bool:
        """Whether it has this very entry under a key."""

        async def held() -> bool:
            found = await self.store.find(key)
            is_it = found is not None and found.size == len(entry) and is_right(key, found, entry)
            return is_it and found is not None and await self.store.holds(found)

        return bool(await self._asked(self.reading, self._timeout, held))

    async def _right(self, key: str, found: Found) -> bytes | None:
        data = await self.store.read(key, found)
        if data is not None and not is_right(key, found, data):
            self.tally.wrong += 1
            raise StoreError(f"entry {key[:12]} is not what its name says, and is not used", Fault.WRONG)
        return data

    async def _asked(self, gate: Gate, seconds: float, request: Callable[[], Awaitable[T]]) -> T | None:
        if not gate.enters():
            return None
        try:
            return await attempted(seconds, request)
        except StoreError as error:
            gate.failed(error)
            if error.fault is Fault.UNREACHABLE:  # Both ways lead to one server; one warning does.
                for other in (self.reading, self.writing):
                    if other.is_open:
                        other.close(error.fault)
            return None


def is_right(key: str, found: Found, data: bytes) -> bool:
    """Whether bytes are those of an entry that was found, and the entry is that of the key."""
    if found.hash and hashlib.sha256(data).hexdigest() != found.hash:
        return False
    return decode(key, data) is not None
