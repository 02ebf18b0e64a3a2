"""Plants mistakes in kbuild's own modules, one at a time, in a copy of the tree, and runs the tests that lie
beside the module.

    python bench/mutate/mutate_self.py [--count 300] [--seed 0] [--area compiler ...] [--part 1/3] [--jobs 2]
    [--notes FILE] [--list]

A mistake is an edit of one line (`self_mutants.py`); which ones are planted follows from the seed, as many in
each area and of each kind, whatever stands in other lines.  `mutate_self.marks.toml` names mistakes that
change no result, with reasons: they are not planted.

First the tests beside the modules run on the right tree, which notes what each costs and which lines it
executes (--notes keeps that for the next time).  Then, for each mistake, those that execute its line run, the
shortest first, up to --most seconds of the processor altogether (`self_tests.py`; before Python 3.12 all of
them: lines are not known).

A mistake is caught when a test fails that passes without it, or takes ten times as long.  Survivors are
listed with their line and the number of tests that were run.  The exit status is 1 when less than 90 % were
caught, 2 when tests fail without a mistake.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest
import tomli

sys.path.insert(0, str(Path(__file__).parent))

from self_areas import AREAS, Area, beside, files_of
from self_mutants import Mutant, of_c, of_python, parses
from self_tests import in_order, reaching, write_chosen
from self_tests_plugin import Note, file_of, read_notes, running_of

ROOT = Path(__file__).parents[2]
MARKS = Path(__file__).with_suffix(".marks.toml")
BAR = 0.9
COPIED = (
    "kbuild",
    "tests",
    "bench",
    "templates",
    "kernels",
    "docs",
    "kernels.toml",
    "pyproject.toml",
    "Makefile",
    "LICENSE",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)


class Planted(NamedTuple):
    """A mutant of a file, and the tests to be run."""

    area: str
    file: str
    line: str
    """The line as it stands in the file."""
    mutant: Mutant
    tests: tuple[str, ...]

    def __str__(self) -> str:
        changed = self.mutant.changed(self.line).strip()
        return (
            f"{self.file}:{self.mutant.line}  {self.mutant.kind}\n    - {self.line.strip()}\n    + {changed}"
        )


class Outcome(NamedTuple):
    planted: Planted
    caught: bool | None
    """None where undecided: the tests fail, or do not end, without the mistake, too."""
    how: str
    """The test that failed or did not end; of survivors which tests were run."""
    seconds: float


def chosen(root: Path, areas: dict[str, Area], count: int, seed: int, marks: Iterable[dict]) -> list[Planted]:
    """As many mistakes in each area, of all kinds alike and at most one for a line; in the order of the areas
    and files."""
    marked = {(mark["file"], mark["line"], mark["becomes"]) for mark in marks}
    picked: list[Planted] = []
    for number, (name, area) in enumerate(areas.items()):
        share = count // len(areas) + (number < count % len(areas))
        kinds: dict[str, list[Planted]] = defaultdict(list)
        for file in files_of(root, area):
            text = (root / file).read_text()
            lines, tests = text.split("\n"), beside(root, area, file)
            for mutant in of_python(text) if file.endswith(".py") else of_c(text):
                line = lines[mutant.line - 1]
                if (file, line.strip(), mutant.changed(line).strip()) not in marked:
                    kinds[mutant.kind].append(Planted(name, file, line, mutant, tests))
        picked += _spread(root, kinds, share, seed)
    return picked


def _spread(root: Path, kinds: dict[str, list[Planted]], count: int, seed: int) -> list[Planted]:
    """Takes from the kinds in turn.  The order in a kind is that of digests of the lines: another line
    changes nothing in it."""

    def digest(planted: Planted) -> bytes:
        return sha256(
            f"{seed} {planted.file} {planted.line.strip()} {planted.mutant.changed(planted.line)}".encode()
        ).digest()

    found: dict[tuple[str, int], Planted] = {}
    left = {kind: sorted(all_, key=digest, reverse=True) for kind, all_ in sorted(kinds.items())}
    while len(found) < count and any(left.values()):
        for kind in [kind for kind in left if left[kind]][: count - len(found)]:
            planted = left[kind].pop()
            text = planted.mutant.planted((root / planted.file).read_text())
            if not planted.file.endswith(".py") or parses(text):
                found.setdefault((planted.file, planted.mutant.line), planted)
    return [found[key] for key in sorted(found)]


class Tree:
    """A copy of the tree in which mistakes are planted."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source, target = root / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "build"))
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def write(self, file: str, text: str) -> None:
        """Removes the bytecode of the other text, which may have the same length and time."""
        path = self.folder / file
        path.write_text(text)
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            stale.unlink()

    def noted(self, notes: Path, tests: Sequence[str], jobs: int) -> None:
        """Runs the tests of which nothing is noted yet, and shows how they go."""
        several = ["-n", str(jobs)] if jobs > 1 else []
        status = self._pytest([*several, f"--note={notes}", *tests], None)
        if status not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            sys.exit(f"error: pytest ends with status {status} where nothing is wrong")

    def tested(self, tests: Sequence[Note], limit: float, collected: Sequence[Note] = ()) -> Tested:
        """Runs tests until one fails, with the files of `collected` read as well; `limit` is in seconds."""
        list_ = self.folder.with_name(f"{self.folder.name}.chosen")
        write_chosen(list_, tests)
        running_of(list_).unlink(missing_ok=True)
        files = dict.fromkeys(file_of(note.test) for note in [*tests, *collected])
        started = time.monotonic()
        status = self._pytest(["-x", f"--chosen={list_}", *files], limit)
        running = running_of(list_).read_text() if running_of(list_).exists() else "collection"
        return Tested(status, "" if status == 0 else running, time.monotonic() - started)

    def _pytest(self, arguments: Sequence[str], limit: float | None) -> int | None:
        """Its exit status, below 0 a signal, None where the limit was reached.  Without one its output is
        shown."""
        scratch = self.folder.with_name(
            f"{self.folder.name}.scratch"
        )  # beside: messages shorten paths below the current folder
        scratch.mkdir()
        path = f"{self.folder}:{Path(__file__).parent}"
        own = {"PYTHONPATH": path, "KBUILD_CACHE_DIR": f"{scratch}/cache", "TMPDIR": str(scratch)}
        plugins = ["-p", "no:cacheprovider", "-p", "self_tests_plugin"]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--rootdir=.",
                *plugins,
                "--no-header",
                "--tb=line",
                *arguments,
            ],
            cwd=self.folder,
            env={**os.environ, **own},
            start_new_session=True,
            stdout=subprocess.DEVNULL if limit else None,
            stderr=subprocess.STDOUT if limit else None,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):  # those that it left behind, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(scratch, ignore_errors=True)


class Tested(NamedTuple):
    """How a run of tests ended."""

    status: int | None
    """That of pytest, below 0 a signal, None where the limit was reached."""
    last: str
    """The test that failed or did not end."""
    seconds: float

    @property
    def is_late(self) -> bool:
        return self.status in (None, -signal.SIGPROF)


class Campaign:
    """Runs the tests of planted mistakes, each in one of `jobs` copies of the tree."""

    def __init__(
        self, root: Path, folder: Path, jobs: int = 1, timeout: float = 600.0, most: float = 150.0
    ) -> None:
        self.timeout, self.most = timeout, most
        self.trees: Queue[Tree] = Queue()
        self.notes: dict[str, Note] = {}
        self.clean: dict[str, bool] = {}
        """Tests that failed with a mistake, files that could not be read, and whether they pass without."""
        for number in range(jobs):
            self.trees.put(Tree(root, folder / str(number)))
        self.jobs = jobs

    def learn(self, mutants: Sequence[Planted], notes: Path) -> list[str]:
        """Runs the tests on the right tree; returns those that fail."""
        tree, tests = self.trees.get(), sorted({test for planted in mutants for test in planted.tests})
        tree.noted(notes, tests, self.jobs)
        self.trees.put(tree)
        self.notes = read_notes(notes, tree.folder)
        return sorted(note.test for note in self.notes.values() if not note.passed)

    def run(self, mutants: Sequence[Planted], report: Callable[[Outcome], None]) -> list[Outcome]:
        with ThreadPoolExecutor(self.jobs) as pool:
            tasks = [pool.submit(self.outcome, planted) for planted in mutants]
            for task in as_completed(tasks):
                report(task.result())
            return [task.result() for task in tasks]

    def outcome(self, planted: Planted) -> Outcome:
        tree = self.trees.get()
        try:
            return self._outcome(tree, planted)
        finally:
            self.trees.put(tree)

    def _outcome(self, tree: Tree, planted: Planted) -> Outcome:
        right = (tree.folder / planted.file).read_text()
        first, then = reaching(self.notes, planted.tests, planted.file, right, planted.mutant.line)
        tests = in_order(first, then, self.most)
        if not tests:
            return Outcome(planted, False, "no test executes the line", 0.0)
        tree.write(planted.file, planted.mutant.planted(right))
        try:
            end = tree.tested(tests, self.timeout)
        finally:
            tree.write(planted.file, right)
        if end.status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return Outcome(
                planted,
                False,
                f"{len(tests)} tests, {sum(note.seconds for note in tests):.0f} s",
                end.seconds,
            )
        how = f"no end: {end.last}" if end.is_late else end.last
        return Outcome(planted, True if self._pass(tree, end.last, tests) else None, how, end.seconds)

    def _pass(self, tree: Tree, last: str, tests: Sequence[Note]) -> bool:
        """Whether a test passes alone where nothing is wrong; where none began, whether the first does, all
        files read."""
        began = last in self.notes
        key = last if began else " ".join(sorted({file_of(note.test) for note in tests}))
        if key not in self.clean:
            asked = [self.notes[last]] if began else tests[:1]
            self.clean[key] = tree.tested(asked, self.timeout, () if began else tests).status == 0
        return self.clean[key]


def table(outcomes: Sequence[Outcome]) -> str:
    """Caught and planted by area, then the survivors, and what is undecided."""
    lines = []
    decided = [outcome for outcome in outcomes if outcome.caught is not None]
    for area in dict.fromkeys(outcome.planted.area for outcome in decided):
        of_area = [outcome for outcome in decided if outcome.planted.area == area]
        late = sum(outcome.how.startswith("no end") for outcome in of_area)
        caught = sum(bool(outcome.caught) for outcome in of_area)
        lines.append(
            f"{area:12} {caught} of {len(of_area)} caught"
            + (f", {late} by running out of time" if late else "")
        )
    survivors = [outcome for outcome in decided if not outcome.caught]
    lines += [f"survived: {outcome.planted}\n    {outcome.how}" for outcome in survivors]
    lines += [
        f"not decided, fails without it, too, {o.how}: {o.planted}" for o in outcomes if o.caught is None
    ]
    caught = len(decided) - len(survivors)
    return "\n".join([*lines, f"{caught} of {len(decided)} caught ({caught / max(len(decided), 1):.1%})"])


def read_marks(path: Path = MARKS) -> list[dict]:
    """Mistakes that change no result: tables `mark` with file, line, becomes, reason."""
    return tomli.loads(path.read_text()).get("mark", []) if path.exists() else []


def _part(text: str) -> tuple[int, int]:
    part, parts = (int(number) for number in text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError
    return part, parts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=300, help="mistakes, in all areas together (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--area", choices=AREAS, action="append", help="only there; may be given again")
    parser.add_argument(
        "--part",
        type=_part,
        default=(1, 1),
        metavar="I/N",
        help="every N-th from the I-th on, for N machines",
    )
    parser.add_argument("--file", default="", help="only in files whose path holds this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--timeout", type=float, default=600.0, help="seconds by the clock that they may take (%(default)s)"
    )
    parser.add_argument(
        "--most", type=float, default=150.0, help="seconds of tests that are run for a mistake (%(default)s)"
    )
    parser.add_argument(
        "--notes", type=Path, metavar="FILE", help="what is known of the tests; made or added to"
    )
    parser.add_argument("--list", action="store_true", help="show the mistakes, plant none")
    options = parser.parse_args()
    areas = {name: area for name, area in AREAS.items() if not options.area or name in options.area}
    if options.file:
        held = {
            name: tuple(file for file in files_of(ROOT, area) if options.file in file)
            for name, area in areas.items()
        }
        areas = {name: areas[name]._replace(files=files) for name, files in held.items() if files}
    part, parts = options.part
    mutants = chosen(ROOT, areas, options.count, options.seed, read_marks())[part - 1 :: parts]
    if options.list:
        print("\n".join(f"{planted}\n    tests: {' '.join(planted.tests)}" for planted in mutants))
        return 0
    started = time.monotonic()

    def report(outcome: Outcome) -> None:
        what = {True: "caught  ", False: "SURVIVED", None: "not decided"}[outcome.caught]
        print(f"[{time.monotonic() - started:5.0f} s] {outcome.planted}", flush=True)
        print(f"    {what} {outcome.how} ({outcome.seconds:.0f} s)", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutate_self_") as folder:
        campaign = Campaign(ROOT, Path(folder), options.jobs, options.timeout, options.most)
        broken = campaign.learn(mutants, options.notes.absolute() if options.notes else Path(folder, "notes"))
        outcomes = campaign.run(mutants, report)
    print("\n".join([*(f"fails without a mistake: {test}" for test in broken), table(outcomes)]))
    decided = [outcome.caught for outcome in outcomes if outcome.caught is not None]
    return 2 if broken or len(decided) < len(outcomes) else int(sum(decided) < BAR * len(decided))


if __name__ == "__main__":
    sys.exit(main())
