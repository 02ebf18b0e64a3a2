"""Plants mistakes in kbuild's own modules, one at a time, in a copy of the tree, and runs the tests that lie beside the module.

    python bench/mutate_self.py [--count 300] [--seed 0] [--area compiler ...] [--part 1/3] [--jobs 2] [--timeout 600] [--list]

A mistake is an edit of one line (`self_mutants.py`); which ones are planted follows from the seed, as many in each area.  It is
caught when a test fails that passes without it, or when tests do not end within --timeout that do without it.  Survivors are
listed with their line and the tests that were run.  `mutate_self.marks.toml` names mistakes that change no result, with reasons:
they are not planted.  The exit status is 1 when less than 90 % were caught, 2 when tests fail without a mistake.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import tomli

sys.path.insert(0, str(Path(__file__).parent))

from self_mutants import Mutant, of_c, of_python, parses

ROOT = Path(__file__).parents[1]
MARKS = Path(__file__).with_suffix(".marks.toml")
BAR = 0.9
COPIED = ("kbuild", "tests", "bench", "templates", "kernels", "docs", "kernels.toml", "pyproject.toml", "setup.py", "README.md",
          "Makefile")  # fmt: skip

ZOO = ("tests/test_zoo.py::test_source_means_what_numpy_says", "tests/test_zoo.py::test_passes_keep_the_meaning")
EMULATED = ("tests/emulator/test_zoo_emulated.py::test_case_is_right_in_lockstep",)
RANDOM = ("tests/test_random_programs.py",)


class Area(NamedTuple):
    """Modules, and which tests lie beside them: those of the longest path that a module's begins with, the fastest first."""

    files: tuple[str, ...]
    """Globs below the root; those of other areas that are below are left out by `without`."""
    tests: dict[str, tuple[str, ...]]
    without: tuple[str, ...] = ()


_C = "kbuild/compiler/"
_E = "kbuild/emulator/"
_A = "kbuild/aot/"
AREAS: dict[str, Area] = {
    "compiler": Area(
        (f"{_C}**/*.py",),
        {
            _C: (*ZOO, *EMULATED, *RANDOM),
            f"{_C}analysis/": ("tests/analysis", "tests/gpu_ir", *EMULATED, *RANDOM),
            f"{_C}analysis/axis_info/": ("tests/analysis/test_axis_info.py", "tests/gpu_ir", *EMULATED, *RANDOM),
            f"{_C}backend/": ("tests/backend", "tests/lower/test_math.py", *EMULATED),
            f"{_C}frontend/": ("tests/frontend", "tests/semantic", "tests/interp", *ZOO, *RANDOM),
            f"{_C}ir/": ("tests/ir", "tests/common", "tests/tensor", "tests/gpu_ir", *ZOO),
            f"{_C}layout/": ("tests/layout", "tests/gpu_ir", "tests/lower", *EMULATED),
            f"{_C}library/": ("tests/semantic", "tests/interp", *ZOO),
            f"{_C}lower/": ("tests/lower", *EMULATED, *RANDOM),
            f"{_C}ops/": ("tests/ir", "tests/common", "tests/tensor", "tests/gpu_ir", "tests/lower", *ZOO),
            f"{_C}semantic/": ("tests/semantic", "tests/frontend", "tests/interp", *ZOO, *RANDOM),
            f"{_C}targets/": ("tests/gpu_ir", "tests/backend", *EMULATED),
            f"{_C}transforms/common/": ("tests/common", "tests/frontend", *ZOO, *RANDOM),
            f"{_C}transforms/gpu/": ("tests/gpu_ir", "tests/lower", *ZOO, *EMULATED, *RANDOM),
            f"{_C}transforms/tensor/": ("tests/tensor", "tests/gpu_ir", *ZOO, *EMULATED, *RANDOM),
        },
        (f"{_C}interp/",),
    ),
    "interpreter": Area(
        (f"{_C}interp/**/*.py",), {_C: ("tests/interp", "tests/semantic", *ZOO, "tests/aot/test_verify_waiting.py")}
    ),
    "emulator": Area(
        (f"{_E}**/*.py",),
        {
            _E: ("tests/emulator",),
            f"{_E}driver/": ("tests/driver",),
            f"{_E}mutate/": ("tests/emulator/test_mutate.py", "tests/aot/test_mutate.py"),
            f"{_E}race/": ("tests/emulator/test_race.py", "tests/emulator/test_race_maps.py",
                           "tests/emulator/test_race_scopes.py", "tests/emulator/test_missing_waits.py", "tests/emulator"),
            f"{_E}tensor/": ("tests/emulator/test_tensor.py", "tests/emulator/test_tensor_wgmma.py", "tests/emulator"),
        },
    ),
    "aot": Area(
        (f"{_A}**/*.py",),
        {
            _A: ("tests/aot", "tests/launcher", "tests/cli"),
            f"{_A}verify/": ("tests/aot/test_verify.py", "tests/aot/test_verify_limits.py", "tests/aot/test_verify_waiting.py",
                             "tests/aot/test_mutate.py"),
        },
    ),
    "launcher": Area(("templates/*.h", "templates/*.c", "templates/*.c.j2"), {"templates/": ("tests/launcher", "tests/driver")}),
}  # fmt: skip


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
        return f"{self.file}:{self.mutant.line}  {self.mutant.kind}\n    - {self.line.strip()}\n    + {changed}"


class Outcome(NamedTuple):
    planted: Planted
    caught: bool | None
    """None where nothing follows: the tests fail, or do not end, without the mistake, too."""
    how: str
    """The test that failed, or that time ran out."""
    seconds: float


def files_of(root: Path, area: Area) -> list[str]:
    """The modules of an area, with tests."""
    found = sorted({path.relative_to(root).as_posix() for pattern in area.files for path in root.glob(pattern)})
    return [file for file in found if not file.startswith(area.without) or not area.without]


def beside(root: Path, area: Area, file: str) -> tuple[str, ...]:
    """The tests that lie beside a module: one of its own name first, then those of its folder."""
    prefix = max((prefix for prefix in area.tests if file.startswith(prefix)), key=len)
    stem = Path(file).stem
    named = [path.relative_to(root).as_posix() for folder in area.tests[prefix] if (root / folder).is_dir()
             for path in sorted((root / folder).glob(f"*{stem}.*")) if path.stem in (stem, f"test_{stem}")]  # fmt: skip
    return tuple(dict.fromkeys([*named, *area.tests[prefix]]))


def chosen(root: Path, areas: dict[str, Area], count: int, seed: int, marks: Iterable[dict]) -> list[Planted]:
    """As many mistakes in each area, of all kinds alike and at most one for a line; in the order of the areas and files."""
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
        picked += _spread(root, kinds, share, random.Random(f"{seed} {name}"))
    return picked


def _spread(root: Path, kinds: dict[str, list[Planted]], count: int, rng: random.Random) -> list[Planted]:
    found: dict[tuple[str, int], Planted] = {}
    left = {kind: rng.sample(all_, len(all_)) for kind, all_ in sorted(kinds.items())}
    while len(found) < count and left:
        kind = rng.choice(sorted(left))
        planted = left[kind].pop()
        text = planted.mutant.planted((root / planted.file).read_text())
        if not planted.file.endswith(".py") or parses(text):
            found.setdefault((planted.file, planted.mutant.line), planted)
        if not left[kind]:
            del left[kind]
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
        """Bytecode of the other text goes: it may be as long, and of the same second."""
        path = self.folder / file
        path.write_text(text)
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            stale.unlink()

    def tested(self, tests: Sequence[str], limit: float) -> tuple[int | None, str, float]:
        """Exit status of pytest (None: no end within the limit), what it printed, and the seconds."""
        scratch = self.folder.with_name(f"{self.folder.name}.scratch")  # beside: messages shorten paths below the current folder
        scratch.mkdir()
        own = {"PYTHONPATH": str(self.folder), "KBUILD_CACHE_DIR": f"{scratch}/cache", "TMPDIR": str(scratch)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", *tests]
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, **own}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            text, _ = process.communicate(timeout=limit)
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, status = process.communicate()[0], None
        shutil.rmtree(scratch, ignore_errors=True)
        return status, text, time.monotonic() - started


class Campaign:
    """Runs the tests of planted mistakes, each in one of `jobs` copies of the tree."""

    def __init__(self, root: Path, folder: Path, jobs: int, timeout: float) -> None:
        self.timeout = timeout
        self.trees: Queue[Tree] = Queue()
        self.clean: set[tuple[str, ...]] = set()
        """Tests that pass without a mistake."""
        for number in range(jobs):
            self.trees.put(Tree(root, folder / str(number)))
        self.jobs = jobs

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
        tree.write(planted.file, planted.mutant.planted(right))
        try:
            status, text, seconds = tree.tested(planted.tests, self.timeout)
        finally:
            tree.write(planted.file, right)
        failed = [line.split(" ", 1)[1].split(" - ")[0] for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        how = "no end" if status is None else failed[0] if failed else "" if status == 0 else f"pytest exits with {status}"
        asked = (failed[0],) if failed else planted.tests if status is None else planted.tests[:1]
        if status == 0:
            self.clean.add(planted.tests)
        caught = None if status != 0 and not self._pass(tree, asked) else status != 0
        return Outcome(planted, caught, how, seconds)

    def _pass(self, tree: Tree, tests: tuple[str, ...]) -> bool:
        """Whether tests pass where nothing is wrong, and within the time."""
        if tests not in self.clean:
            status, _, _ = tree.tested(tests, self.timeout)
            if status == 4:  # a name that the command line does not take: its file
                status, _, _ = tree.tested((tests[0].split("::")[0],), self.timeout)
            if status == 0:
                self.clean.add(tests)
        return tests in self.clean


def table(outcomes: Sequence[Outcome]) -> str:
    """Caught and planted by area, then the survivors, and what can't be told."""
    lines = []
    decided = [outcome for outcome in outcomes if outcome.caught is not None]
    for area in dict.fromkeys(outcome.planted.area for outcome in decided):
        of_area = [outcome for outcome in decided if outcome.planted.area == area]
        late = sum(outcome.how == "no end" for outcome in of_area)
        caught = sum(bool(outcome.caught) for outcome in of_area)
        lines.append(f"{area:12} {caught} of {len(of_area)} caught" + (f", {late} by running out of time" if late else ""))
    survivors = [outcome.planted for outcome in decided if not outcome.caught]
    lines += [f"survived: {planted}\n    tests: {' '.join(planted.tests)}" for planted in survivors]
    lines += [f"not decided, {o.how} without it, too: {o.planted}" for o in outcomes if o.caught is None]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="mistakes, in all areas together (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--area", choices=AREAS, action="append", help="only there; may be given again")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="I/N", help="every N-th of them from the I-th on, for N machines")
    parser.add_argument("--file", default="", help="only in files whose path holds this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that the tests of a mistake may take (%(default)s)")
    parser.add_argument("--list", action="store_true", help="show the mistakes, plant none")
    options = parser.parse_args()
    areas = {name: area for name, area in AREAS.items() if not options.area or name in options.area}
    if options.file:
        held = {name: tuple(file for file in files_of(ROOT, area) if options.file in file) for name, area in areas.items()}
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
        outcomes = Campaign(ROOT, Path(folder), options.jobs, options.timeout).run(mutants, report)
    print(table(outcomes))
    decided = [outcome.caught for outcome in outcomes if outcome.caught is not None]
    return 2 if len(decided) < len(outcomes) else int(sum(decided) < BAR * len(decided))


if __name__ == "__main__":
    sys.exit(main())
