"""Prints a plan as ninja's text, with ninja's own writer, and runs ninja on it."""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ninja.ninja_syntax import Writer

from kbuild.aot.build.plan import STATE, STEP, Plan
from kbuild.aot.build.progress import Progress

_STATUS = "@kbuild %f %t "
_STATUS_LINE = re.compile(r"@kbuild (\d+) (\d+) (.*)")
_FAILED = re.compile(r"FAILED: (?:\[code=(\d+)\] )?(.*)")
_SECONDS_TO_STOP = 10


@dataclass(frozen=True)
class Failure:
    """An edge that failed."""

    output: str
    """The first file it was to make."""
    code: int
    """Exit code of its command, as the shell gives it."""
    text: str
    """What it printed."""


@dataclass(frozen=True)
class NinjaOutcome:
    """The outcome of running ninja."""

    code: int
    """Exit code of ninja."""
    steps: tuple[str, ...]
    """Descriptions of the edges that ran."""
    printed: tuple[str, ...]
    """Lines that successful edges printed."""
    failures: tuple[Failure, ...]
    """Edges that failed."""
    text: str = ""
    """What ninja itself printed."""
    said: tuple[tuple[str, str], ...] = ()
    """The steps that printed, and their lines."""
    ended: Mapping[str, float] = field(default_factory=dict)
    """When each step was done, seconds since ninja began."""

    def after(self, first: NinjaOutcome) -> NinjaOutcome:
        """The outcome of both runs, this one being the second."""
        steps = (*first.steps, *(step for step in self.steps if step not in first.steps))
        return replace(
            self,
            steps=steps,
            printed=first.printed + self.printed,
            said=first.said + self.said,
            ended={**first.ended, **self.ended},
        )


def text(plan: Plan) -> str:
    """The plan as `build.ninja`."""
    stream = io.StringIO()
    writer = Writer(stream, width=120)  # type: ignore[arg-type]
    writer.comment("Written by kbuild build; changes are lost.")
    writer.variable("ninja_required_version", "1.10")
    writer.variable("builddir", STATE)
    writer.newline()
    writer.rule("step", f". ./{STEP} < $in", description="$what", restat=True)
    for edge in plan.edges:
        writer.newline()
        outputs, implicit = ([escape(path) for path in paths] for paths in (edge.outputs, edge.implicit))
        variables = {"what": escape(edge.description)}
        writer.build(outputs, "step", [escape(edge.job)], implicit=implicit, variables=variables)  # type: ignore[arg-type]
    return stream.getvalue()


def escape(word: str) -> str:
    """A word with ninja's `$` doubled; the writer escapes spaces and colons in paths."""
    return word.replace("$", "$$")


def run(
    ninja: str,
    build: Path,
    targets: Sequence[str],
    environment: Mapping[str, str],
    progress: Progress,
    jobs: int = 0,
    keep_going: bool = False,
    inherit: Sequence[int] = (),
) -> NinjaOutcome:
    """Runs ninja in the build directory until all targets are made or a step fails.

    `jobs` 0 leaves the number to ninja.  `inherit` are file descriptors that ninja keeps open: a lock is thus
    held until the last process of the build ends.  If this one is killed, ninja ends its steps and itself.
    """
    command = [
        ninja,
        "-f",
        f"{STATE}/build.ninja",
        "-k",
        "0" if keep_going else "1",
        *(("-j", str(jobs)) if jobs else ()),
        *targets,
    ]
    with _life() as life:
        process = subprocess.Popen(
            command,
            cwd=build,
            env={**environment, "NINJA_STATUS": _STATUS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(*inherit, life),
        )
        _bind(process.pid, life)
        reader = _Reader(progress.step)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                reader.line(line.decode(errors="replace").rstrip("\n"))
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        finally:
            process.stdout.close()
            progress.finish()
    return reader.outcome(code)


@contextmanager
def _life() -> Iterator[int]:
    """The read end of a pipe that only this process could write to: it closes however this process ends."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _bind(process: int, life: int) -> None:
    """Has the kernel interrupt ninja, which has the pipe open too, when its other end closes."""
    with suppress(OSError):  # Without that, the steps of a build that was killed run to their end.
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(life, fcntl.F_SETOWN, process)
        fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC)


def step_times(build: Path) -> dict[str, tuple[float, float]]:
    """When the steps that made files began and ended, by file: seconds since the ninja that ran them did.

    Of each file it is the last step that made it, in whichever build.  Lines of another form are left out.
    """
    found: dict[str, tuple[float, float]] = {}
    with suppress(OSError):
        for line in (build / STATE / ".ninja_log").read_text(errors="replace").splitlines():
            words = line.split("\t")
            if len(words) == 5 and words[0].isdigit() and words[1].isdigit():
                found[words[3]] = int(words[0]) / 1000, int(words[1]) / 1000
    return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupts ninja, which ends its commands and removes what they left half done."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Reader:
    """Sorts ninja's lines: steps, failures with their text, what steps print, and ninja's own messages."""

    def __init__(self, step: Callable[[int, int, str], None]) -> None:
        self._step = step
        self._steps: list[str] = []
        self._printed: list[str] = []
        self._failures: list[Failure] = []
        self._own: list[str] = []
        self._failing: tuple[str, int] | None = None
        self._skip = 0
        self._text: list[str] = []
        self._began = time.monotonic()
        self._said: list[tuple[str, str]] = []
        self._ended: dict[str, float] = {}

    def line(self, line: str) -> None:
        status, failed = _STATUS_LINE.match(line), _FAILED.match(line)
        if status or failed or line.startswith("ninja: "):
            self._end_failure()
        if status:
            self._steps.append(status[3])
            self._ended[status[3]] = time.monotonic() - self._began
            self._step(int(status[1]), int(status[2]), status[3])
        elif failed:
            self._failing = (failed[2].split(" ")[0], int(failed[1] or 1))
            self._skip = 1  # The line after it repeats the command.
        elif line.startswith("ninja: "):
            self._own.append(line)
        elif self._skip:
            self._skip = 0
        elif self._failing:
            self._text.append(line)
        else:
            self._printed.append(line)
            if self._steps:
                self._said.append((self._steps[-1], line))

    def _end_failure(self) -> None:
        if self._failing:
            self._failures.append(Failure(*self._failing, "\n".join(self._text).strip("\n")))
        self._failing, self._text = None, []

    def outcome(self, code: int) -> NinjaOutcome:
        self._end_failure()
        return NinjaOutcome(
            code,
            tuple(self._steps),
            tuple(self._printed),
            tuple(self._failures),
            "\n".join(self._own),
            tuple(self._said),
            self._ended,
        )
