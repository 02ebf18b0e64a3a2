"""A pytest plugin for `mutate_self.py`: notes what each test costs and which lines it reaches; runs chosen
tests in an order.

    python -m pytest -p self_tests_plugin --note=FILE tests/…      what the file does not hold yet is run and noted there
    python -m pytest -p self_tests_plugin --chosen=FILE tests/…    only the tests that the file lists, in its order

The sign `=` matters: pytest takes another word that is a path for one of tests, and looks for its settings
there.

A note is a line of JSON (`Note`).  Lines are those of Python files in `kbuild/` below the current folder;
what a fixture of a wider scope reaches counts for every test that asks for it.  Before Python 3.12, which
reports them at no cost, none are noted.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

HAS_LINES = sys.version_info >= (3, 12)
IMPORTS = "imports"
"""Stands for a test in the note of what is reached before the first one."""


@dataclass(frozen=True)
class Note:
    """The record of a test that ran on the right tree."""

    test: str
    stamp: str
    """Digest of `kbuild/` and of the test's file: with another one the note is void."""
    passed: bool
    seconds: float
    """Of this process and those it waited for, without the fixtures that it shares with other tests."""
    shared: dict[str, float]
    """Those fixtures, with their seconds."""
    spawned: bool
    """Whether other processes of Python ran, whose lines are not known."""
    lines: dict[str, str]
    """By file a number in base 16 in which the bits of the lines are set."""

    def bits(self, file: str) -> int:
        return int(self.lines.get(file, "0"), 16)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note", metavar="FILE", help="append there what each test costs and reaches")
    parser.addoption("--chosen", metavar="FILE", help="run the tests that it lists, in that order")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before the first import of what is tested."""
    options = early_config.known_args_namespace
    if options.note:
        early_config.pluginmanager.register(_Notes(Path(options.note)))
    if options.chosen:
        early_config.pluginmanager.register(_Chosen(Path(options.chosen)))


def stamp_of(root: Path, files: Iterable[Path]) -> str:
    """A digest of files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def stamps(root: Path) -> Callable[[str], str]:
    """Gives the stamp of the notes of a test's file."""
    whole = stamp_of(root, (root / "kbuild").rglob("*.py"))
    found: dict[str, str] = {}

    def of(file: str) -> str:
        if file not in found:
            found[file] = f"{whole} {stamp_of(root, [root / file])}"
        return found[file]

    return of


def read_notes(path: Path, root: Path) -> dict[str, Note]:
    """The notes of a file that hold for a tree."""
    stamp = stamps(root)
    notes = [Note(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    held: dict[str, Note] = {}
    for note in notes:
        if (root / file_of(note.test)).exists() and note.stamp == stamp(file_of(note.test)):
            held[note.test] = (
                note if note.test != IMPORTS or IMPORTS not in held else _joined(held[IMPORTS], note)
            )
    return held


def _joined(one: Note, other: Note) -> Note:
    files = one.lines.keys() | other.lines.keys()
    return replace(one, lines={file: f"{one.bits(file) | other.bits(file):x}" for file in files})


def file_of(test: str) -> str:
    """The file of a test by its name; for code reached by imports, one that never changes its meaning."""
    return "kbuild/__init__.py" if test == IMPORTS else test.split("::")[0]


@dataclass
class _Reached:
    """The cost of one test or fixture, and the lines it reaches."""

    begun: float
    others: float = 0.0
    """Seconds of the fixtures that were set up meanwhile."""
    spawned: bool = False
    lines: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, other: _Reached) -> None:
        self.spawned |= other.spawned
        for file, lines in other.lines.items():
            self.lines[file] |= lines


class _Notes:
    """Runs the tests that have no note, and notes them."""

    def __init__(self, path: Path) -> None:
        self.path, self.root = path, Path.cwd()
        self.stamp, self.known = stamps(self.root), read_notes(path, self.root)
        self.fixtures: dict[Any, tuple[float, _Reached]] = {}
        self.now = _Reached(_seconds())
        self.passed = True
        sys.addaudithook(self._audit)
        self._report_lines()

    def _report_lines(self) -> None:
        if sys.version_info < (3, 12):
            return
        monitoring, prefix = sys.monitoring, f"{self.root}/kbuild/"

        def reached(code: Any, line: int) -> Any:
            if code.co_filename.startswith(prefix):
                self.now.lines[code.co_filename].add(line)
            return monitoring.DISABLE

        monitoring.use_tool_id(monitoring.COVERAGE_ID, "reached")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, reached)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def _audit(self, event: str, details: tuple[Any, ...]) -> None:
        if event in ("os.fork", "os.forkpty"):
            self.now.spawned = True
        elif event in ("subprocess.Popen", "os.posix_spawn"):
            words = [details[0], *(details[1] if isinstance(details[1], (list, tuple)) else details[1:2])]
            names = [
                Path(os.fsdecode(word)).name for word in words if isinstance(word, (str, bytes, os.PathLike))
            ]
            self.now.spawned |= any(name.startswith(("python", "ninja", "kbuild")) for name in names)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.known])
        items[:] = [item for item in items if item.nodeid not in self.known]
        if items:
            self._write(IMPORTS, self.now, {})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.passed = True
        with self._noting() as reached:
            result = yield
        named = getattr(item, "_fixtureinfo", None)
        fixtures = [
            fixture for found in (named.name2fixturedefs if named else {}).values() for fixture in found
        ]
        shared = {}
        for fixture in fixtures:
            if fixture in self.fixtures:
                shared[f"{fixture.baseid}::{fixture.argname}"], of_fixture = self.fixtures[fixture]
                reached.add(of_fixture)
        self._write(item.nodeid, reached, shared)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        outer = self.now
        with self._noting() as reached:
            try:
                return (yield)
            finally:
                seconds = _seconds() - reached.begun
                self.fixtures[fixturedef] = seconds - reached.others, reached
                outer.others += seconds
                outer.add(reached)  # it may not ask for the fixture by a parameter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed &= not report.failed

    @contextmanager
    def _noting(self) -> Iterator[_Reached]:
        outer, self.now = self.now, _Reached(_seconds())
        try:
            self._restart()
            yield self.now
        finally:
            self.now = outer
            self._restart()

    def _restart(self) -> None:
        """Lines that were reported are reported again."""
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()

    def _write(self, test: str, reached: _Reached, shared: dict[str, float]) -> None:
        lines = {
            str(Path(file).relative_to(self.root)): f"{sum(1 << line for line in lines):x}"
            for file, lines in sorted(reached.lines.items())
        }
        seconds = _seconds() - reached.begun - reached.others
        note = Note(
            test, self.stamp(file_of(test)), self.passed, round(seconds, 3), shared, reached.spawned, lines
        )
        with open(self.path, "ab", buffering=0) as file:  # one write: several processes may note
            file.write(json.dumps(asdict(note)).encode() + b"\n")


class _Chosen:
    """Runs the tests of a list in its order; one that takes many times its seconds ends the process by
    SIGPROF."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds = {
            test: float(seconds)
            for seconds, test in (line.split(" ", 1) for line in path.read_text().splitlines())
        }
        signal.setitimer(signal.ITIMER_PROF, allowed(0))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        places = {test: place for place, test in enumerate(self.seconds)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in places])
        items[:] = sorted(
            (item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        running_of(self.path).write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, allowed(self.seconds[item.nodeid]))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def allowed(seconds: float) -> float:
    """Seconds of the processor that a test may take which takes `seconds` on the right tree."""
    return 30 + 10 * seconds


def running_of(chosen: Path) -> Path:
    """The file that names the test which runs."""
    return chosen.with_suffix(".running")


def _seconds() -> float:
    """Seconds of the processor: of this process, and of those that it waited for."""
    return time.process_time() + sum(os.times()[2:4])
