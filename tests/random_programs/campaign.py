"""Checks many seeds in parallel processes, which may hang or die, and shrinks what they find."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from random_programs.compare import Checker, Finding, Kernel
from random_programs.generator import program
from random_programs.saved import saved
from random_programs.shrink import shrink

Task = tuple[str, int, Finding | None]
"""What to do, with which seed, and of what finding."""
BATCH = 8
"""Seeds that a process gets at a time."""
LIFE = 400
"""Seeds after which a process gives way to a fresh one."""
GRACE = 45
"""Seconds that a process may be silent beyond the limit of a program before it is killed: a hang outside
Python."""
FAULTS = ("pass", "emulator", "race", "broke", "crash", "timeout")
"""Kinds of findings that are bugs of the compiler, or of the emulator."""


@dataclass(frozen=True)
class Settings:
    """What a campaign is to do."""

    checker: Checker
    limit: float = 60
    """Seconds for one program."""
    shrink_seconds: float = 120
    """For shrinking one finding; 0 leaves them as they are."""
    shrink_trials: int = 100_000
    """Kernels that are tried to shrink one finding."""
    shrunk_each: int = 3
    """How many findings of one kind are shrunk."""
    folder: Path | None = None
    """Where kernels are saved."""
    stops: bool = False
    """Whether the first finding is the end."""


def check_seed(seed: int, settings: Settings) -> Finding | None:
    """The finding of one seed."""
    try:
        drawn = program(seed)
    except Exception:
        return Finding("invalid", "", "generator", traceback.format_exc(limit=-2))
    return settings.checker.check(Kernel.of(drawn, seed), settings.limit)


def kind_of(finding: Finding) -> str:
    """What findings of one cause most likely share."""
    if finding.kind in ("broke", "refused", "invalid"):
        line = next(
            (text for text in finding.message.splitlines() if "error" in text.lower()),
            finding.message.splitlines()[0],
        )
        line = re.sub(r"^\S+:\d+:\d+: |`[^`]*`|\d+|%\w+|0x\w+", "*", line)[:110]
        return f"{finding.kind} {finding.place}: {line}"
    return f"{finding.kind} {finding.arch} {finding.place}"


def shrunk(seed: int, finding: Finding, settings: Settings) -> tuple[Kernel, Finding]:
    """The smallest kernel that shows the finding of a seed, and the finding with its guilty pass."""
    stages = ("passes",) if finding.kind == "pass" else ("emulator",)
    if finding.kind == "broke":
        stages = ("passes", "emulator")
    checker = Checker((finding.arch,) if finding.arch else settings.checker.archs, stages=stages)

    def same(kernel: Kernel) -> bool:
        found = checker.check(kernel, settings.limit)
        return found is not None and kind_of(found) == kind_of(finding)

    kernel = Kernel.of(program(seed), seed)
    if settings.shrink_seconds and same(kernel):
        kernel = shrink(program(seed), seed, same, settings.shrink_seconds, settings.shrink_trials)
    again = checker.check(kernel, settings.limit) or finding
    return kernel, checker.localized(kernel, again)


@dataclass
class Campaign:
    """The tally of a run."""

    settings: Settings
    tally: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, list[int]] = field(default_factory=dict)
    """By the kind of finding."""
    checked: int = 0
    report: Callable[[str], None] = print

    def run(self, seeds: Iterator[int], jobs: int, end: float) -> None:
        """Check seeds until there are none left, or the time is over."""
        workers = [_Worker(self.settings) for _ in range(jobs)]
        queue: list[Task] = []
        last = time.monotonic()
        while True:
            for number, worker in enumerate(workers):
                if worker.is_idle:
                    if worker.done >= LIFE:
                        worker.stop()
                        worker = workers[number] = _Worker(self.settings)
                    if queue:
                        worker.give([queue.pop(0)])
                    elif time.monotonic() < end and not (self.settings.stops and self.tally):
                        batch: list[Task] = [("check", seed, None) for _, seed in zip(range(BATCH), seeds)]
                        if batch:
                            worker.give(batch)
            busy = [worker for worker in workers if not worker.is_idle]
            if not busy or (self.settings.stops and self.tally):
                break
            multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=1)
            for number, worker in enumerate(workers):
                for task, outcome in worker.reported():
                    queue += self.note(task, outcome)
                if worker.is_lost(self.settings):
                    task, *remaining = worker.waiting
                    kind = "crash" if not worker.process.is_alive() else "timeout"
                    queue += self.note(
                        task, Finding(kind, "", "process", f"exit status {worker.process.exitcode}")
                    )
                    worker.stop(kill=True)
                    workers[number] = _Worker(self.settings)
                    if remaining:
                        workers[number].give(remaining)
            if time.monotonic() - last > 20:
                last = time.monotonic()
                self.report(
                    f"{self.checked} programs, {sum(self.tally.values())} findings of {len(self.tally)} kinds"
                )
        for worker in workers:
            worker.stop(kill=self.settings.stops)

    def note(self, task: Task, outcome: Any) -> list[Task]:
        """Count an outcome; the tasks that follow from it."""
        verb, seed, _ = task
        if verb == "shrink":
            if isinstance(outcome, tuple):
                self.show(seed, *outcome)
            return []
        self.checked += 1
        if outcome is None:
            return []
        kind = kind_of(outcome)
        self.tally[kind] += 1
        self.seeds.setdefault(kind, []).append(seed)
        if self.tally[kind] > self.settings.shrunk_each:
            return []
        self.report(f"seed {seed}: {outcome}")
        return (
            [("shrink", seed, outcome)]
            if outcome.kind in FAULTS and outcome.kind not in ("crash", "timeout")
            else []
        )

    def show(self, seed: int, kernel: Kernel, finding: Finding) -> None:
        """Print a shrunk kernel, and save it."""
        notes = f"seed {seed}\n{finding}"
        if self.settings.folder is None:
            self.report(f"---- {notes}\n{kernel.source}")
            return
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        path = (
            self.settings.folder
            / f"{finding.kind}_{finding.arch}_{re.sub(r'[^a-zA-Z_]+', '_', finding.place)}_{seed}.py"
        )
        path.write_text(saved(kernel, notes))
        self.report(
            f"---- {notes}\n{kernel.source}repeat with: python bench/fuzz/fuzz_programs.py --repeat {path}\n"
        )


class _Worker:
    """A process that does one task after another and reports the outcome of each."""

    def __init__(self, settings: Settings) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, settings), daemon=True)
        self.process.start()
        other.close()
        self.waiting: list[Task] = []
        self.since = time.monotonic()
        self.done = 0

    @property
    def is_idle(self) -> bool:
        return not self.waiting

    def give(self, tasks: list[Task]) -> None:
        self.waiting = list(tasks)
        self.since = time.monotonic()
        self.pipe.send(tasks)

    def reported(self) -> Iterator[tuple[Task, Any]]:
        """The outcomes that the process has reported since the last call."""
        try:
            while self.waiting and self.pipe.poll():
                outcome = self.pipe.recv()
                self.since = time.monotonic()
                self.done += 1
                yield self.waiting.pop(0), outcome
        except EOFError:
            return

    def is_lost(self, settings: Settings) -> bool:
        """Whether the process has died, or hangs, with tasks undone."""
        if not self.waiting:
            return False
        patience = settings.limit + GRACE
        if self.waiting[0][0] == "shrink":
            patience += 2 * settings.shrink_seconds + 3 * settings.limit
        return (
            not self.process.is_alive() and not self.pipe.poll()
        ) or time.monotonic() - self.since > patience

    def stop(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        else:
            self.pipe.close()
            self.process.terminate()
        self.process.join()


def _work(pipe: multiprocessing.connection.Connection, settings: Settings) -> None:
    """What a process does.  Garbage is collected between batches: within a program that takes a third of the
    time."""
    gc.freeze()
    gc.disable()
    while True:
        try:
            tasks = pipe.recv()
        except (EOFError, OSError):
            return
        for verb, seed, finding in tasks:
            try:
                outcome = check_seed(seed, settings) if verb == "check" else shrunk(seed, finding, settings)
            except Exception:
                outcome = Finding("invalid", "", "checker", traceback.format_exc(limit=-4))
            pipe.send(outcome)
        gc.collect()
