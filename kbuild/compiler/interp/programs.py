"""The programs of a grid: one after the other, or interleaved where they wait for each other.

A program whose loop finds nothing new in memory yields, first to programs that have not begun, then to those
that wait.  It keeps the Python thread in which it ran, because its place in the kernel is on that thread's
stack; only one thread runs at any time, and a grid whose programs do not wait needs only the caller's.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from kbuild.compiler.interp.memory import GlobalMemory
from kbuild.compiler.ir.core import Func, Op
from kbuild.compiler.ops.control import Call, While
from kbuild.compiler.ops.tensor import Atomic, DescriptorGather, DescriptorLoad, Load
from kbuild.errors import InterpretError, Loc

Index = tuple[int, int, int]

MAX_WAITING = 1024
"""Programs that may wait at the same time; the others begin when one of these has ended."""
_PATIENCE = 64
"""Rounds of a loop that reads memory, after which others run although it may still end by itself."""
_SHOWN = 3
"""Programs that a report of a deadlock shows."""
_LOOKS = (Atomic, Load, DescriptorLoad, DescriptorGather)
_PLAIN = ("tt.", "arith.", "math.", "scf.", "ttg.convert_layout", "ub.")
"""Prefixes of operations that depend only on their operands and global memory."""


class DeadlockError(InterpretError):
    """No program of a grid can go on."""

    def __init__(self, message: str, loc: Loc | None, arrays: Sequence[str]) -> None:
        help = (
            f"do locks, flags and counters begin as zeros? The programs read: {', '.join(arrays)}"
            if arrays
            else ""
        )
        super().__init__(message, loc, help)
        self.arrays = tuple(arrays)
        """The arrays that the programs read."""


class _ProgramAbandonedError(Exception):
    """Another program has failed: this one stops."""


class Spin:
    """Watches the rounds of a loop that reads memory."""

    def __init__(self, programs: Programs, op: While, body: Sequence[Op]) -> None:
        self.programs, self.op = programs, op
        self.is_plain = all(inner.op_name.startswith(_PLAIN) for inner in body)
        self.rounds = 0
        programs.memory.begin_watching()

    def round(self, before: Sequence[Any], after: Sequence[Any]) -> None:
        """A round is over: others run if it changed nothing.  Raises InterpretError where none can go on."""
        memory = self.programs.memory
        self.rounds += 1
        is_stuck = (
            self.is_plain and memory.changes == memory.changes_before and all(map(_is_same, before, after))
        )
        if is_stuck or self.rounds % _PATIENCE == 0:
            self.programs.give_way(self.op.loc, is_stuck)
        memory.begin_round()


def spin_of(programs: Programs | None, op: While, functions: dict[str, Func]) -> Spin | None:
    """The watcher of a loop; None for one that does not read memory, or whose program is alone."""
    body = list(_reached(op, functions, set()))
    return (
        Spin(programs, op, body)
        if programs is not None and any(isinstance(inner, _LOOKS) for inner in body)
        else None
    )


def _reached(op: Op | Func, functions: dict[str, Func], seen: set[str]) -> Iterator[Op]:
    """The operations inside of one, and of the functions that it calls."""
    for inner in op.walk():
        yield inner
        if isinstance(inner, Call) and inner.callee not in seen:
            seen.add(inner.callee)
            yield from _reached(functions[inner.callee], functions, seen)


def _is_same(before: Any, after: Any) -> bool:
    if before is after:
        return True
    if not isinstance(before, np.ndarray | np.generic):
        return type(before) is type(after) and not hasattr(before, "__dict__") and bool(before == after)
    return np.array_equal(before, after, equal_nan=np.asarray(before).dtype.kind == "f")


class _Waiting:
    """A program that has yielded."""

    def __init__(
        self, program: tuple[int, Index], loop: Loc | None, memory: GlobalMemory, is_stuck: bool
    ) -> None:
        (self.number, self.index), self.loop, self.seen = program, loop, memory.seen
        self.stuck_at = memory.changes if is_stuck else -1
        """How often memory had been changed when the program became stuck until the next change; -1 if it may
        go on."""
        self.go = threading.Semaphore(0)


class Programs:
    """The programs of a grid, `indices`, each of which `work` runs to its end."""

    def __init__(
        self, indices: Iterable[Index], work: Callable[[Programs, Index], None], memory: GlobalMemory
    ) -> None:
        self.memory = memory
        self._todo, self._work = deque(enumerate(indices)), work
        self._current: tuple[int, Index] = (0, (0, 0, 0))
        self._waiting: deque[_Waiting] = deque()
        self._threads: list[threading.Thread] = []
        self._over = threading.Semaphore(0)
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run all programs.  Raises what one of them raises, and InterpretError where all that are left wait
        forever."""
        try:
            self._begin()
            if self._hand_on():
                self._over.acquire()
        except BaseException as error:
            self._fail(error)
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def give_way(self, loop: Loc | None, is_stuck: bool) -> None:
        """Yield to others: the program is in a `loop`, and `is_stuck` there until memory changes.

        Raises InterpretError where no program can go on.
        """
        mine = self._current
        waiting = _Waiting(mine, loop, self.memory, is_stuck)
        self._waiting.append(waiting)
        if self._todo and len(self._waiting) <= MAX_WAITING:
            # The context has the precision in which f32 is computed.
            thread = threading.Thread(target=contextvars.copy_context().run, args=(self._serve,), daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            self._hand_on()
        waiting.go.acquire()
        if self._error is not None:
            raise _ProgramAbandonedError
        self._current = mine
        self.memory.begin(mine[0])

    def _begin(self) -> None:
        """Programs that have not begun, one after the other."""
        while self._todo and self._error is None:
            self._current = self._todo.popleft()
            self.memory.begin(self._current[0])
            self._work(self, self._current[1])

    def _serve(self) -> None:
        """The body of a further thread."""
        try:
            with np.errstate(all="ignore"):
                self._begin()
            if not self._hand_on():
                self._over.release()
        except BaseException as error:
            self._fail(error)

    def _hand_on(self) -> bool:
        """Resume the next program that can go on; False if none waits.  Raises InterpretError if none can."""
        for waiting in self._waiting:
            if waiting.stuck_at != self.memory.changes:
                self._waiting.remove(waiting)
                waiting.go.release()
                return True
        if self._waiting:
            raise self._deadlock()
        return False

    def _fail(self, error: BaseException) -> None:
        """The grid ends with an error: all waiting programs end, too."""
        if self._error is None and not isinstance(error, _ProgramAbandonedError):
            self._error = error
        while self._waiting:
            self._waiting.popleft().go.release()
        self._over.release()

    def _deadlock(self) -> DeadlockError:
        shown = list(self._waiting)[:_SHOWN]
        lines = [
            f"program {one.index}{'' if one.loop is None else f' in the loop at {one.loop}'}: {self.memory.description(one.seen)}"
            for one in shown
        ]
        more = [f"and {len(self._waiting) - _SHOWN} programs more"] if len(self._waiting) > _SHOWN else []
        message = "\n".join(
            ["no program can go on: these wait for values that are never written", *lines, *more]
        )
        arrays = dict.fromkeys(self.memory.array_of(one.seen) for one in self._waiting if one.seen)
        return DeadlockError(message, shown[0].loop, list(arrays))
