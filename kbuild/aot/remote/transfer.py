"""Entries moved between the cache on this machine and a shared one, without a build.

Each entry is moved by itself and gets its name last, so that a transfer may be cut off anywhere and started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from kbuild.aot.build.cache import Cache, decode
from kbuild.aot.build.progress import Progress
from kbuild.aot.environment import Remote
from kbuild.aot.remote.shared import Shared, attempted, is_right, seconds_for
from kbuild.aot.remote.store import Fault, Store, StoreError
from kbuild.aot.remote.stores import open_store

T = TypeVar("T")

_AT_A_TIME = 16


@dataclass
class Moved:
    """What a transfer did, in entries."""

    moved: int = 0
    there: int = 0
    """That were there already."""
    absent: int = 0
    """That are at neither end."""
    failed: int = 0
    bytes: int = 0
    """Moved, as they were on the wire."""


def push(
    keys: Sequence[str], local: Cache, remote: Remote, progress: Progress, dry_run: bool = False
) -> Moved:
    """Sends entries that are here and not there, or not the same."""

    async def one(key: str, shared: Shared, moved: Moved) -> None:
        data = local.raw(key)
        if data is None or decode(key, data) is None:
            moved.absent += 1
            return
        if await shared.holds(key, data):
            moved.there += 1
        elif dry_run or await shared.put(key, data):
            moved.moved += 1
        else:
            moved.failed += 1

    return asyncio.run(_moved(keys, remote, progress, one, "sent"))


def pull(
    keys: Sequence[str], local: Cache, remote: Remote, progress: Progress, dry_run: bool = False
) -> Moved:
    """Fetches entries that are there and not here."""

    async def one(key: str, shared: Shared, moved: Moved) -> None:
        if local.get(key) is not None:
            moved.there += 1
            return
        found = await shared.find(key)
        if found is None:
            moved.absent += shared.reading.is_open
            moved.failed += not shared.reading.is_open
        elif dry_run or ((data := await shared.get(key)) is not None and local.put_raw(key, data)):
            moved.moved += 1
        else:
            moved.failed += 1

    return asyncio.run(_moved(keys, remote, progress, one, "fetched"))


def wrong(keys: Sequence[str], remote: Remote, progress: Progress) -> tuple[list[str], int]:
    """The keys under which a shared cache has something else than their entries, and how many are right.  Raises
    `StoreError` where it cannot be read."""

    async def all_() -> tuple[list[str], int]:
        found: list[str] = []
        right = 0
        async with _opened(remote) as store:

            async def one(key: str) -> None:
                nonlocal right
                is_right_there = await _is_right(store, key, remote.timeout)
                right += is_right_there is True
                found.extend([key] if is_right_there is False else [])

            await _each(keys, one, progress, "read")
        return sorted(found), right

    return asyncio.run(all_())


def describe(remote: Remote) -> dict[str, str]:
    """What a shared cache says of itself.  Raises `StoreError`."""

    async def asked() -> dict[str, str]:
        async with _opened(remote) as store:
            return await attempted(remote.timeout, store.describe)

    return asyncio.run(asked())


async def _is_right(store: Store, key: str, timeout: float) -> bool | None:
    """Whether a store has the right entry under a key; None where it has none."""
    try:
        found = await attempted(timeout, lambda: store.find(key))
        if found is None:
            return None
        data = await attempted(seconds_for(found.size, timeout), lambda: store.read(key, found))
    except StoreError as error:
        if error.fault in (Fault.WRONG, Fault.REJECTED):
            return False
        raise
    return data is not None and is_right(key, found, data)


async def _moved(
    keys: Sequence[str],
    remote: Remote,
    progress: Progress,
    one: Callable[[str, Shared, Moved], Awaitable[None]],
    what: str,
) -> Moved:
    moved = Moved()
    async with _opened(remote) as store:
        shared = Shared(store, remote, progress.message, "no more is tried")
        await _each(keys, lambda key: one(key, shared, moved), progress, what)
        moved.bytes = store.traffic.sent if what == "sent" else store.traffic.received
    return moved


async def _each(
    keys: Sequence[str], one: Callable[[str], Awaitable[None]], progress: Progress, what: str
) -> None:
    """Does something for all keys, several at a time."""
    waiting = list(reversed(keys))
    done = 0

    async def some() -> None:
        nonlocal done
        while waiting:
            await one(waiting.pop())
            done += 1
            progress.busy(f"{done} of {len(keys)} entries {what}")

    try:
        await asyncio.gather(*(some() for _ in range(_AT_A_TIME)))
    finally:
        progress.finish()


@asynccontextmanager
async def _opened(remote: Remote) -> AsyncIterator[Store]:
    store = open_store(remote)
    try:
        yield store
    finally:
        with suppress(Exception):  # What is over need not end well.
            await asyncio.wait_for(store.close(), 1)
