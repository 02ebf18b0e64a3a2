"""The script that plants mistakes in kbuild: the mistakes it plants, its report, and that it leaves the tree
unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mutate_self import Campaign, Outcome, chosen, read_marks, table
from self_areas import AREAS, Area, beside, files_of
from self_mutants import of_c, of_python
from self_tests import in_order, reaching
from self_tests_plugin import HAS_LINES, Note

ROOT = Path(__file__).parents[2]


def edits(text: str, kind: str = "") -> set[str]:
    """The first line with each mistake of a kind."""
    return {
        mutant.planted(text).split("\n")[mutant.line - 1].strip()
        for mutant in of_python(text)
        if kind in mutant.kind
    }


@pytest.mark.parametrize(
    ("text", "kind", "becomes"),
    [
        ("a < b", "comparison", {"a <= b"}),
        ("a is not None", "comparison", {"a is None"}),
        ("a + b * c", "operator", {"a - b * c", "a + b + c"}),
        ("a and b or c", "operator", {"a or b or c", "a and b and c"}),
        ("x -= 1", "operator", {"x += 1"}),
        ("x = not a", "guard negated", {"x = a"}),
        ("f(a, b)", "swapped", {"f(b, a)"}),
        ("max(a, b)", "swapped", set()),
        ("x = 7", "constant", {"x = 8"}),
        ("x = 7", "off by one", {"x = 6"}),
        ("x = True", "constant", {"x = False"}),
        ("range(n)", "off by one", {"range(n - 1)"}),
        ("f(a)", "dropped call", {"pass"}),
        ("x = {1: a, 2: b}", "dropped case", {"x = {2: b}"}),
        ("x = isinstance(a, B | C)", "dropped case", {"x = isinstance(a, B)"}),
        # Code that does not affect a result stays.
        ('"""1 < 2"""', "", set()),
        ("assert a < 1", "", set()),
        ("def f(x: 1 = a) -> 2: ...", "", set()),
        ("@f(1)\nclass A: ...", "", set()),
    ],
)
def test_mistakes_in_python(text: str, kind: str, becomes: set[str]) -> None:
    assert edits(text, kind) == becomes


def test_guards_and_cases() -> None:
    text = (
        "def f(x):\n    if x > 1:\n        return 1\n    match x:\n        case A():\n            return 2\n"
    )
    assert edits(text, "guard") == {"if not (x > 1):", "if False:"}
    assert edits(text, "dropped case") == {"case A() if False:"}


def test_mistakes_in_c() -> None:
    text = (
        '/* a < b */\n#define N 3\nif (a < b && !c) return 0; // 1 < 2\n    release("1 < 2");\n{{ a < b }}\n'
    )
    planted = {mutant.planted(text).split("\n")[mutant.line - 1] for mutant in of_c(text)}
    assert planted == {
        "if (a <= b && !c) return 0; // 1 < 2",
        "if (a < b || !c) return 0; // 1 < 2",
        "if (a < b && c) return 0; // 1 < 2",
        "if (a < b && !c) return 1; // 1 < 2",
        "if (0) return 0; // 1 < 2",
        "    ;",
    }


def test_every_area_has_files_and_every_file_tests_that_are_there() -> None:
    for name, area in AREAS.items():
        files = files_of(ROOT, area)
        assert files, name
        for test in {test for file in files for test in beside(ROOT, area, file)}:
            path, _, function = test.partition("::")
            assert (ROOT / path).exists() and f"def {function}" in (
                (ROOT / path).read_text() if function else "def "
            ), test


def test_mistakes_follow_from_the_seed_and_marked_ones_are_left_out() -> None:
    areas = {"compiler": AREAS["compiler"]._replace(files=("kbuild/compiler/analysis/liveness.py",))}
    planted = chosen(ROOT, areas, 8, 1, [])
    assert planted == chosen(ROOT, areas, 8, 1, []) != chosen(ROOT, areas, 8, 2, []) and len(planted) == 8
    first = planted[0]
    mark = {
        "file": first.file,
        "line": first.line.strip(),
        "becomes": first.mutant.changed(first.line).strip(),
    }
    assert first not in chosen(ROOT, areas, 1000, 1, [mark])
    assert len(chosen(ROOT, areas, 1000, 1, [])) > 20, "all lines that there are, once each"


def test_marks_stand_for_mistakes_that_can_be_planted() -> None:
    for mark in read_marks():
        text = (ROOT / mark["file"]).read_text()
        lines = text.split("\n")
        mutants = of_python(text) if mark["file"].endswith(".py") else of_c(text)
        found = {
            (lines[mutant.line - 1].strip(), mutant.changed(lines[mutant.line - 1]).strip())
            for mutant in mutants
        }
        assert mark["reason"] and (mark["line"], mark["becomes"]) in found, mark


LEAST = """def least(a, b):
    return a if a < b else b


def unused(a, b):
    return a + b


def until(n):
    while n > 0:
        n -= 1
    return n


FACTOR = 2


def twice(n):
    return FACTOR * n
"""
TESTS = """import sys, time
import pytest
sys.path.insert(0, 'kbuild')
import small

@pytest.fixture(scope="module")
def least():
    return small.least(3, 4)

def test_slow_least():
    assert small.least(1, 2) + sum(0 for _ in range(300_000)) == 1

def test_least():
    assert small.least(1, 2) == small.least(2, 1) == 1

def test_least_of_a_fixture(least):
    assert least == 3

def test_until():
    assert small.until(2) == 0

def test_twice():
    assert small.twice(3) == 6

def test_wrong():
    assert small.twice(3) == 7
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a module and tests."""
    root = tmp_path / "root"
    (root / "kbuild").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "kbuild/small.py").write_text(LEAST)
    (root / "kbuild/__init__.py").write_text("")
    (root / "tests/test_small.py").write_text(TESTS)
    return root


def test_a_campaign_says_what_was_caught_and_what_was_not_and_leaves_the_tree_alone(
    root: Path, tmp_path: Path
) -> None:
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()
    }
    area = Area(("kbuild/small.py",), {"kbuild/": ("tests",)})
    first = chosen(root, {"small": area}, 1, 0, [])[0]
    assert first.tests == ("tests/test_small.py", "tests")
    wanted = [("guard negated", 2), ("operator", 6), ("constant", 15), ("operator", 11)]
    found = {
        (m.kind, m.line): first._replace(mutant=m, line=LEAST.split("\n")[m.line - 1])
        for m in of_python(LEAST)
    }
    mutants = [found[key] for key in wanted]
    reported: list[Outcome] = []
    campaign = Campaign(root, tmp_path / "copies")
    assert campaign.learn(mutants, tmp_path / "notes") == ["tests/test_small.py::test_wrong"], (
        "which fails without a mistake"
    )
    outcomes = campaign.run(mutants[:3], reported.append)
    campaign.timeout = 5.0
    outcomes += campaign.run(mutants[3:], reported.append)
    assert outcomes == reported
    assert [(o.planted.mutant.line, o.caught) for o in outcomes] == [
        (2, True),
        (6, False),
        (15, True),
        (11, True),
    ]
    assert (
        outcomes[0].how.startswith("tests/test_small.py::test_least")
        and outcomes[2].how == "tests/test_small.py::test_twice"
    )
    assert outcomes[3].how == "no end: tests/test_small.py::test_until"
    assert outcomes[1].how.startswith("no test executes the line" if HAS_LINES else "5 tests")
    text = table(outcomes)
    assert "3 of 4 caught, 1 by running out of time" in text and text.endswith("3 of 4 caught (75.0%)")
    assert "survived: kbuild/small.py:6" in text and f"    + return a - b\n    {outcomes[1].how}" in text
    assert before == {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()
    }
    assert (tmp_path / "copies/0/kbuild/small.py").read_text() == LEAST, (
        "the next one starts from what is right"
    )


def note(test: str, seconds: float, *lines: int, file: str = "kbuild/a.py", **others: Any) -> Note:
    values = {"stamp": "", "passed": True, "shared": {}, "spawned": False, **others}
    return Note(test=test, seconds=seconds, lines={file: f"{sum(1 << line for line in lines):x}"}, **values)


@pytest.mark.skipif(not HAS_LINES, reason="lines are known from Python 3.12 on")
def test_the_tests_of_a_mistake_are_those_that_execute_its_statement() -> None:
    text = "TABLE = {\n  1: 2,\n}\ndef f(x):\n    return g(\n        x,\n    )\ndef g(x):\n    return x\n"
    notes = [
        note("imports", 0, 1, 4, 8),
        note("tests/t.py::f", 3, 5, 6, 9),
        note("tests/t.py::g", 1, 9),
        note("tests/t.py::process", 0.1, spawned=True),
        note("tests/t.py::fails", 1, 5, passed=False),
        note("tests/t.py::other", 1, 5, file="kbuild/b.py"),
        note("tests/elsewhere.py::f", 1, 5),
    ]

    def asked(line: int) -> list[str]:
        exact, others = reaching({n.test: n for n in notes}, ["tests/t.py"], "kbuild/a.py", text, line)
        return [n.test.split("::")[1] for n in in_order(exact, others, 100)]

    assert asked(7) == ["f", "process"]
    assert asked(9) == ["g", "f", "process"]
    assert asked(2) == ["process", "g", "f"], "a table: everything that uses the module"


def test_short_tests_come_first_those_of_a_fixture_together_and_time_is_bounded() -> None:
    shared = {"slow": 4.0}
    notes = [
        note("a", 5),
        note("b", 3),
        note("c", 1, shared=shared),
        note("d", 3, shared=shared),
        note("e", 6),
    ]
    assert [n.test for n in in_order(notes, [], 100)] == ["b", "a", "c", "d", "e"]
    assert [n.test for n in in_order(notes, [], 13)] == ["b", "a", "c"], "and the fixture is paid for once"
    assert [n.test for n in in_order(notes[4:], notes[:2], 100)] == ["e", "b", "a"]
    assert [n.test for n in in_order(notes, [], 1)] == ["b"], "one at least"
