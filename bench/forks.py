"""Runs a function on each of many inputs, several at a time, each in a fork of this process: nothing that one does
stops the others.  No command of its own; `corpus.py` and `others/counts.py` use it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")

LINE_EVERY = 100
"""Inputs after which progress is printed without a terminal."""


def run_all(
    inputs: Sequence[Input],
    function: Callable[[Input], Output],
    died: Callable[[str], Output],
    jobs: int,
    seconds: float,
) -> list[Output]:
    """What the function returns for each input, which has to be picklable; where its process died, or took longer than
    `seconds` by the clock, what `died` makes of a sentence that says so."""
    outputs = [died("never ran") for _ in inputs]
    running: dict[int, tuple[int, int, float]] = {}
    waiting, shown = list(range(len(inputs)))[::-1], 0
    while waiting or running:
        while waiting and len(running) < jobs:
            index = waiting.pop()
            reader, pid = _start(inputs[index], function)
            running[reader] = index, pid, time.monotonic()
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for reader in list(running):
            index, pid, started = running[reader]
            if reader in ready:
                outputs[index] = _finish(reader, pid, died)
                del running[reader]
            elif time.monotonic() - started > seconds:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(reader)
                outputs[index] = died(f"took more than {seconds:g} s")
                del running[reader]
        done = len(inputs) - len(waiting) - len(running)
        if sys.stderr.isatty():
            print(f"\r{done}/{len(inputs)}", end="", file=sys.stderr)
        elif done >= shown + LINE_EVERY:
            print(f"{done}/{len(inputs)}", file=sys.stderr, flush=True)
            shown = done
    return outputs


def _start(given: Input, function: Callable[[Input], Output]) -> tuple[int, int]:
    """Fork a child for one input; the pipe that its output comes through, and its number."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        pickle.dump(function(given), pipe)
        pipe.flush()
        os._exit(0)


def _finish(reader: int, pid: int, died: Callable[[str], Output]) -> Output:
    """The output of a child."""
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    return pickle.loads(data) if data else died(f"died with status {status}")
