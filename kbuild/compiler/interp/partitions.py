"""Programs whose warps do different things at once.  Each of these parts has a Python thread of its own, of
which one runs at a time, until it has to wait for another."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kbuild.compiler.interp.machine import Machine, means
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ops.gpu import WarpDismiss, WarpPartition, WarpPartitions
from kbuild.compiler.ops.nvidia import WarpSpecialize
from kbuild.errors import InterpretError


class _PartitionAbandonedError(Exception):
    """Another part of the program has ended with an error: this one stops."""


class _Part:
    """A part of a program: what it does, and what it waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.go = threading.Semaphore(0)
        self.thread: threading.Thread | None = None
        self.is_done = False
        self.is_waiting: Callable[[], bool] | None = None
        """Whether what it waits for has not come; None where it waits for nothing."""
        self.place: Op | None = None
        """The operation at which it waits."""

    def may_run(self) -> bool:
        return not self.is_done and (self.is_waiting is None or not self.is_waiting())


class Turns:
    """The parts of a program, which take turns.  The first runs in the caller's thread."""

    def __init__(self, works: Sequence[Callable[[], Any]]) -> None:
        self._parts = [_Part(work) for work in works]
        self._current = self._parts[0]
        self._error: BaseException | None = None

    def run(self) -> Any:
        """Run all parts to their ends; what the first returns.  Raises what one of them raises, and
        InterpretError where none can go on."""
        outcome = None
        try:
            outcome = self._parts[0].work()
            for part in self._parts[1:]:
                self._give(lambda part=part: not part.is_done, None)
        except BaseException as error:
            self._fail(error)
        for part in self._parts[1:]:
            if part.thread is not None:
                part.thread.join()
        if self._error is not None:
            raise self._error
        return outcome

    def wait(self, is_waiting: Callable[[], bool], op: Op) -> None:
        """Let others run while the part that runs has to wait."""
        if is_waiting():
            self._give(is_waiting, op)

    def _give(self, is_waiting: Callable[[], bool], op: Op | None) -> None:
        """Resume another part until `is_waiting` does not hold any more."""
        mine = self._current
        mine.is_waiting, mine.place = is_waiting, op
        while is_waiting():
            self._resume(self._next(mine))
            mine.go.acquire()
            self._current = mine
            if self._error is not None:
                raise _PartitionAbandonedError
        mine.is_waiting = None

    def _next(self, mine: _Part) -> _Part:
        """The part after the current one that can go on.  Raises InterpretError where none can."""
        number = self._parts.index(mine)
        for part in (*self._parts[number + 1 :], *self._parts[:number]):
            if part.may_run():
                return part
        raise self._deadlock()

    def _resume(self, part: _Part) -> None:
        if part.thread is None and part is not self._parts[0]:
            # The context has the precision in which f32 is computed.
            run = contextvars.copy_context().run
            part.thread = threading.Thread(target=run, args=(self._serve, part), daemon=True)
            part.thread.start()
        part.go.release()

    def _serve(self, part: _Part) -> None:
        """The body of a part's thread."""
        part.go.acquire()
        self._current = part
        try:
            if self._error is None:
                with np.errstate(all="ignore"):
                    part.work()
            part.is_done = True
            self._resume(self._next(part))
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The program ends with an error: all parts end."""
        if self._error is None and not isinstance(error, _PartitionAbandonedError):
            self._error = error
        self._current.is_done = True
        for part in self._parts:
            part.go.release()

    def _deadlock(self) -> InterpretError:
        places = [part.place for part in self._parts if not part.is_done and part.place is not None]
        where = "; ".join(dict.fromkeys(f"{op.op_name}{f' at {op.loc}' if op.loc else ''}" for op in places))
        return InterpretError(
            f"a wait that never ends: no warp can go on{f', they are at {where}' if where else ''}",
            places[0].loc if places else None,
            "each wait needs its arrivals, and a barrier with bytes to come needs as many copied",
        )


@means(WarpSpecialize)
def warp_specialize(machine: Machine, op: WarpSpecialize) -> None:
    _run_parts(machine, [lambda one: one.run(op.default), lambda one: one.run(op.producer)])


@means(WarpPartitions)
def warp_partitions(machine: Machine, op: WarpPartitions) -> tuple[Any, ...]:
    works: list[Callable[[Machine], Any]] = [lambda one: one.run(op.default)]
    works += [lambda one, part=part: warp_partition(one, part) for part in op.workers]
    return _run_parts(machine, works)


@means(WarpPartition)
def warp_partition(machine: Machine, op: WarpPartition) -> None:
    assert isinstance(op.parent_op, WarpPartitions)
    machine.run(op.body, [machine[value] for value in op.parent_op.captures])


def _run_parts(machine: Machine, works: Sequence[Callable[[Machine], Any]]) -> Any:
    """Run parts of a program by machines of their own, the first of them by the program's."""
    machines = [machine, *(machine.part() for _ in works[1:])]
    turns = Turns([lambda work=work, one=one: work(one) for work, one in zip(works, machines)])
    for one in machines:
        one.turns = turns
    try:
        outcome = turns.run()
    finally:
        machine.turns = None
    for one in machines[1:]:
        one.finish()
    return outcome


@means(WarpDismiss)
def warp_dismiss(machine: Machine, op: WarpDismiss) -> None:
    pass
