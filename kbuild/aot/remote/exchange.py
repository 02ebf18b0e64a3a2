"""What a build does with other machines while ninja runs: it fetches what a shared cache has, has steps executed
elsewhere, and sends what was made here.

    step ── want KEY ──▶ exchange ──▶ shared cache, engine ──▶ the cache on this machine
    step ◀── have, or compile ──┘
    step ── made KEY ──▶ exchange ──▶ shared cache

All of it happens in one thread of the build, so that there is one set of connections, one place that knows a server
to be away, and one warning.  It begins before the first step asks.  Steps and engine share the work by claims: steps
take the variants from the front, the engine from the back, so that neither waits for the other but at the end.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from kbuild.aot.build.ask import COMPILE, HAVE, SOCKET
from kbuild.aot.build.cache import Cache, decode
from kbuild.aot.build.progress import Progress
from kbuild.aot.environment import Remote
from kbuild.aot.remote.shared import Shared
from kbuild.aot.remote.store import Traffic

_LOOKUPS = 32
_SENDERS = 8
_SECONDS_BETWEEN_WORDS = 3.0
_GLANCE = 0.5
"""Seconds between two looks at whether an engine is away, or back."""
_LINE = re.compile(rb"(want|made) ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class Wanted:
    """An entry that the build needs."""

    key: str
    execute: Callable[[], Awaitable[bytes | None]] | None = None
    """Has it made elsewhere; its bytes, None where that failed.  None where it cannot be."""
    is_certain: bool = True
    """Whether it is needed in any case, so that it may be made before it is asked for."""


class Engine(Protocol):
    """Where steps are executed, as far as the exchange has to know."""

    name: str
    traffic: Traffic

    @property
    def is_open(self) -> bool:
        """Whether it works, or is to be tried again."""
        ...

    def enters(self) -> bool:
        """Whether one more step may be executed now."""
        ...

    def close(self) -> Awaitable[None]:
        """Ends its connections."""
        ...


class _Item:
    """The state of one entry."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.lookup: asyncio.Task[bool] | None = None
        """Whether it has come from the shared cache."""
        self.is_made_here = False
        """Whether a step makes it, so that nobody else need."""
        self.execution: asyncio.Future[bool] | None = None
        """Whether the engine has made it; None where it is not to."""
        self.is_executing = False
        """Whether the engine is at it."""


@dataclass
class Exchanged:
    """What came of it all: entries, and bytes on the wire without headers."""

    fetched: int = 0
    """From the shared cache."""
    sent: int = 0
    """There."""
    executed: int = 0
    """By the engine."""
    received_bytes: int = 0
    sent_bytes: int = 0


class Exchange:
    """The exchange of one build; runs within its context."""

    def __init__(
        self,
        build: Path,
        local: Cache,
        wanted: Iterable[Wanted],
        remote: Remote,
        shared: Shared | None,
        engine: Engine | None,
        progress: Progress,
    ) -> None:
        self._local, self._remote, self._progress = local, remote, progress
        self._shared, self._engine = shared, engine
        self._items = {one.key: _Item(one) for one in wanted}
        self._directory = os.open(build, os.O_RDONLY | os.O_CLOEXEC)
        self._socket = f"/proc/self/fd/{self._directory}/{SOCKET}"
        self._waiting = 0
        self.outcome = Exchanged()

    def __enter__(self) -> Exchange:
        with suppress(FileNotFoundError):
            os.unlink(self._socket)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self._socket)
        listening.listen(1024)
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._is_whole = True
        self._thread = threading.Thread(target=self._run, args=(listening,), name="exchange", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_whole = kind is None
        with suppress(RuntimeError):  # It may have ended.
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        with suppress(FileNotFoundError):
            os.unlink(self._socket)
        os.close(self._directory)

    def _run(self, listening: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main(listening))
        finally:
            self._loop.close()  # Without waiting for threads: a file system may never answer one.

    async def _main(self, listening: socket.socket) -> None:
        self._made: asyncio.Queue[str] = asyncio.Queue()
        self._absent: deque[_Item] = deque()
        self._more = asyncio.Condition()
        self._todo = deque(self._items.values())
        server = await asyncio.start_unix_server(self._serve, sock=listening)
        work = [self._look_ahead() for _ in range(_LOOKUPS)]
        work += [self._send() for _ in range(_SENDERS)]
        work += [self._execute() for _ in range(self._remote.jobs if self._engine else 0)]
        tasks = [asyncio.create_task(one) for one in (*work, self._say())]
        await self._end.wait()
        server.close()
        if self._is_whole:
            await self._made.join()
        others = {*tasks, *asyncio.all_tasks()} - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._count()
        for end in (self._shared and self._shared.store, self._engine):
            if end:
                with suppress(Exception):  # What is over need not end well.
                    await asyncio.wait_for(end.close(), 1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one step."""
        answer = COMPILE
        # Cancelled, when the build is interrupted: Python 3.11 wants such a callback to end well all the same.
        with suppress(ValueError, ConnectionError, asyncio.CancelledError):
            line = _LINE.fullmatch(await reader.readline())
            if line and line[1] == b"made":
                if self._shared is not None:
                    self._made.put_nowait(line[2].decode())
            elif line:
                self._waiting += 1
                try:
                    answer = HAVE if await self._has(line[2].decode()) else COMPILE
                finally:
                    self._waiting -= 1
            writer.write(answer + b"\n")
            await writer.drain()
        writer.close()

    async def _has(self, key: str) -> bool:
        """Waits until an entry is in the cache; False where a step is to make it."""
        item = self._items.setdefault(key, _Item(Wanted(key)))
        with suppress(asyncio.TimeoutError):
            # The lookup goes on, for others that want it; this step has better things to do.
            if await asyncio.wait_for(asyncio.shield(self._looked_up(item)), self._remote.timeout):
                return True
        if self._remote.is_only:
            await self._leave_to_engine(item)
        if item.execution is not None and await self._executed(item, item.execution):
            return True
        item.is_made_here = True
        return False

    async def _executed(self, item: _Item, execution: asyncio.Future[bool]) -> bool:
        """Waits for the engine as long as that is better than doing the work here; returns whether it was done
        there."""
        assert self._engine is not None
        loop = asyncio.get_running_loop()
        end = loop.time() + self._remote.job_timeout
        while item.is_executing or (self._remote.is_only and self._engine.is_open):
            await asyncio.wait({execution}, timeout=_GLANCE)
            if execution.done() or loop.time() > end:
                break
        return execution.done() and execution.result()

    def _looked_up(self, item: _Item) -> asyncio.Task[bool]:
        if item.lookup is None:
            item.lookup = asyncio.create_task(self._look_up(item))
        return item.lookup

    async def _look_up(self, item: _Item) -> bool:
        key = item.wanted.key
        data = await self._shared.get(key) if self._shared is not None else None
        if data is not None and self._local.put_raw(key, data):
            return True
        if item.wanted.is_certain:
            await self._leave_to_engine(item)
        return False

    async def _look_ahead(self) -> None:
        """Looks up what no step has asked for yet, in the order in which they will."""
        while self._todo:
            await self._looked_up(self._todo.popleft())

    async def _leave_to_engine(self, item: _Item) -> None:
        """Lets the engine make an entry, unless it cannot, or somebody is at it."""
        can_be = self._engine is not None and item.wanted.execute is not None
        if can_be and item.execution is None and not item.is_made_here:
            item.execution = asyncio.get_running_loop().create_future()
            async with self._more:
                self._absent.append(item)
                self._more.notify()

    async def _execute(self) -> None:
        """Has one entry after another made by the engine."""
        assert self._engine is not None
        while True:
            async with self._more:
                await self._more.wait_for(lambda: self._absent)
                item = self._next() if self._engine.enters() else None
            if item is None:  # It is away, and may come back.
                await asyncio.sleep(_GLANCE)
                continue
            assert item.execution is not None and item.wanted.execute is not None
            is_there = False
            try:
                if not item.is_made_here:
                    item.is_executing = True
                    data = await item.wanted.execute()
                    is_there = data is not None and self._local.put_raw(item.wanted.key, data)
            finally:
                item.execution.set_result(is_there)
            if is_there:
                self.outcome.executed += 1
                if self._shared is not None:
                    self._made.put_nowait(item.wanted.key)

    def _next(self) -> _Item:
        """The entry that the engine makes next: the one that steps come to last, if they make entries as well."""
        return self._absent.popleft() if self._remote.is_only else self._absent.pop()

    async def _send(self) -> None:
        """Sends one entry after another that was made here."""
        while True:
            key = await self._made.get()
            try:
                data = self._local.raw(key)
                if self._shared is not None and data is not None and decode(key, data) is not None:
                    await self._shared.put(key, data)
            finally:
                self._made.task_done()

    async def _say(self) -> None:
        """Says what is being waited for."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_WORDS)
            names = " and ".join(
                end.name for end in (self._shared and self._shared.store, self._engine) if end
            )
            if self._end.is_set() and (left := self._made.qsize()):
                self._progress.busy(f"sending {left} more entries to {names}")
            elif self._waiting:
                self._progress.busy(f"{self._waiting} steps wait for {names}")

    def _count(self) -> None:
        if self._shared is not None:
            tally, traffic = self._shared.tally, self._shared.store.traffic
            self.outcome.fetched, self.outcome.sent = tally.found, tally.sent
            self.outcome.received_bytes += traffic.received
            self.outcome.sent_bytes += traffic.sent
        if self._engine is not None:
            self.outcome.received_bytes += self._engine.traffic.received
            self.outcome.sent_bytes += self._engine.traffic.sent
