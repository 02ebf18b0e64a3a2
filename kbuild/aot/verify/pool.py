"""Passes work to a few processes, so that what crashes or hangs costs only itself.

    jobs: groups of members    worker ── one message for each member that is done, then None ──▶ results, as they come

A worker that dies, or that is at one member for too long, is replaced; the members of its job that are left
are tried again.
"""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import IO, Any, Generic, NoReturn, TypeVar

Member = TypeVar("Member")
Result = TypeVar("Result")

_LARGEST_TEXT = 2000
"""Characters that are kept of the output of a process that crashed."""
_SECONDS_BETWEEN_NOTES = 0.2
_OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""As many as a few launches make; looking through them every 700, as Python does, takes a tenth of the time."""


@dataclass(frozen=True)
class Crash:
    """A member that cost its worker's life."""

    why: str
    is_late: bool = False
    """Whether it took too long."""


@dataclass(frozen=True)
class _Note:
    """The current work of a worker."""

    text: str


_speaking: list[tuple[Connection, float]] = []
"""In a worker: the connection for its notes, and when it sent the last one."""


def say(text: str) -> None:
    """Sends how far the work on a member has come to the process that waits for it, if there is one and it
    was not sent a note just before."""
    if _speaking and time.monotonic() - _speaking[0][1] > _SECONDS_BETWEEN_NOTES:
        connection, _ = _speaking[0]
        connection.send(_Note(text))
        _speaking[0] = connection, time.monotonic()


class _Worker(Generic[Member]):
    """A process, and the members that it works on."""

    def __init__(self, work: Callable[[Member], Any], others: Sequence[_Worker[Member]]) -> None:
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the worker.
        self.connection, theirs = multiprocessing.Pipe()
        ends, self.lifeline = os.pipe()  # It ends with this process, however that ends.
        self.members: deque[tuple[int, Member]] = deque()
        self.deadline = float("inf")
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            for worker in (self, *others):  # By their end a worker notices that its parent has ended.
                worker.connection.close()
                os.close(worker.lifeline)
            _serve(work, theirs, ends, self.output.fileno())
        theirs.close()
        os.close(ends)

    def give(self, members: Sequence[tuple[int, Member]], limit: float) -> None:
        """Pass it a job."""
        self.members, self.deadline = deque(members), time.monotonic() + limit
        with suppress(OSError):  # The connection shows if it has died.
            self.connection.send([member for _, member in members])

    def end(self) -> int:
        """Kill the process if it still runs; its exit code, negative for a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        self.connection.close()
        os.close(self.lifeline)
        return os.waitstatus_to_exitcode(status)

    def printed(self) -> str:
        """The end of what the process wrote to its outputs."""
        self.output.seek(0)
        text = self.output.read().decode(errors="replace").strip()
        return f"\n{text[-_LARGEST_TEXT:]}" if text else ""


def _end_with(lifeline: int) -> None:
    """Let the system kill this process when the writing end of a pipe is closed, whatever it does then."""
    with suppress(AttributeError):  # Not on Linux, it works on to the end of its job, and the result is lost.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # It was closed before.
        os._exit(0)


def _serve(work: Callable[[Any], Any], connection: Connection, lifeline: int, output: int) -> NoReturn:
    """The life of a worker: jobs in, results out, until the connection ends, or the process at its other end."""
    try:
        _end_with(lifeline)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # The parent gets keyboard interrupts, and ends its workers.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.putenv(
            "OPENBLAS_NUM_THREADS", "1"
        )  # numpy is imported after this; there are as many workers as processors.
        for standard in (1, 2):
            os.dup2(output, standard)
        _speaking[:] = [(connection, 0.0)]
        gc.freeze()
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        while True:
            for member in connection.recv():
                connection.send(work(member))
            connection.send(None)
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def run_jobs(
    jobs: Sequence[Sequence[Member]],
    work: Callable[[Member], Result],
    count: int,
    limit: float,
    note: Callable[[str], None] = lambda text: None,
) -> Generator[tuple[Member, Result | Crash], None, None]:
    """`work` of every member of every job, by up to `count` processes, as it comes; members of a job go to
    one process in order.

    `limit` is the longest time in seconds that a member may take; `note` gets the notes that work sends by `say`.
    Processes end with the iterator.
    """
    todo = deque([list(enumerate(job)) for job in jobs])
    workers: list[_Worker[Member]] = []

    def start() -> None:
        worker = _Worker(work, workers)
        workers.append(worker)
        worker.give(todo.popleft(), limit)

    try:
        while todo or workers:
            while todo and len(workers) < count:
                start()
            nearest = min(worker.deadline for worker in workers)
            ready = wait([worker.connection for worker in workers], max(0.0, nearest - time.monotonic()))
            for worker in list(workers):
                if worker.connection in ready:
                    yield from _receive(worker, workers, todo, limit, note)
                elif time.monotonic() > worker.deadline:
                    yield from _lost(worker, workers, todo, f"no end after {limit:g} seconds")
    finally:
        for worker in workers:
            worker.end()


def _receive(
    worker: _Worker[Member],
    workers: list[_Worker[Member]],
    todo: deque[list[tuple[int, Member]]],
    limit: float,
    note: Callable[[str], None],
) -> Iterator[tuple[Member, Any]]:
    """One message of a worker."""
    try:
        result = worker.connection.recv()
    except (EOFError, OSError):
        yield from _lost(worker, workers, todo, "")
        return
    if isinstance(result, _Note):
        note(result.text)
        if time.monotonic() > worker.deadline:  # Notes do not extend the time.
            yield from _lost(worker, workers, todo, f"no end after {limit:g} seconds")
    elif result is not None:
        worker.deadline = time.monotonic() + limit
        yield worker.members.popleft()[1], result
    elif todo:
        worker.give(todo.popleft(), limit)
    else:
        workers.remove(worker)
        worker.end()


def _lost(
    worker: _Worker[Member], workers: list[_Worker[Member]], todo: deque[list[tuple[int, Member]]], why: str
) -> Iterator[tuple[Member, Crash]]:
    """A worker that has died or is to be killed: the member it was at has no result, the others are for
    another worker."""
    workers.remove(worker)
    code, is_late = worker.end(), bool(why)
    if not why:
        why = (
            f"the process was ended by signal {-code}"
            if code < 0
            else f"the process ended with exit code {code}"
        )
    if worker.members:
        _, member = worker.members.popleft()
        if worker.members:
            todo.appendleft(list(worker.members))
        yield member, Crash(why + worker.printed(), is_late)
