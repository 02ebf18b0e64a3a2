"""Programs whose warps do different things at once: the producer runs in a Python thread of its own, and the
two alternate, each running until it has to wait for the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from kbuild.compiler.interp.machine import Machine, means
from kbuild.compiler.ops.nvidia import WarpSpecialize
from kbuild.errors import InterpretError


class _PartitionAbandonedError(Exception):
    """The program has ended with an error: the producer stops."""


class Turns:
    """A producer that runs only while its program waits."""

    def __init__(self, producer: Callable[[], object]) -> None:
        self.producer = producer
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.go, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = self.is_abandoned = False
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.go.acquire()
            with np.errstate(all="ignore"):
                self.producer()
        except _PartitionAbandonedError:
            pass
        except BaseException as error:
            self.error = error
        self.is_done = True
        self.back.release()

    def give(self, is_waiting: Callable[[], bool]) -> bool:
        """Let the other side run until it waits too; False where this side would wait forever."""
        if threading.current_thread() is self.thread:
            self.back.release()
            self.go.acquire()
            if self.is_abandoned:
                raise _PartitionAbandonedError
            return True
        if self.is_done:
            return False
        if not self.thread.is_alive():
            self.thread.start()
        self.go.release()
        self.back.acquire()
        if self.error is not None:
            raise self.error
        return not is_waiting()

    def abandon(self) -> None:
        """Stop the producer."""
        if self.thread.is_alive():
            self.is_abandoned = True
            self.go.release()
            self.thread.join()


@means(WarpSpecialize)
def warp_specialize(machine: Machine, op: WarpSpecialize) -> None:
    turns = machine.turns = Turns(lambda: machine.run(op.producer))
    try:
        machine.run(op.default)
        if not turns.is_done and not turns.give(lambda: not turns.is_done):
            raise InterpretError("the producer waits for a buffer that is never released", op.loc)
    finally:
        turns.abandon()
        machine.turns = None
