"""The script that plants mistakes in kbuild: what it plants, what it says of it, and that it leaves the tree alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutate_self import AREAS, Area, Campaign, Outcome, beside, chosen, files_of, read_marks, table
from self_mutants import of_c, of_python

ROOT = Path(__file__).parent.parent


def edits(text: str, kind: str = "") -> set[str]:
    """The first line with each mistake of a kind."""
    return {mutant.planted(text).split("\n")[mutant.line - 1].strip() for mutant in of_python(text) if kind in mutant.kind}


@pytest.mark.parametrize(
    ("text", "kind", "becomes"),
    [
        ("a < b", "comparison", {"a <= b"}), ("a is not None", "comparison", {"a is None"}),
        ("a + b * c", "operator", {"a - b * c", "a + b + c"}),
        ("a and b or c", "operator", {"a or b or c", "a and b and c"}), ("x -= 1", "operator", {"x += 1"}),
        ("x = not a", "guard negated", {"x = a"}), ("f(a, b)", "swapped", {"f(b, a)"}), ("max(a, b)", "swapped", set()),
        ("x = 7", "constant", {"x = 8"}), ("x = 7", "off by one", {"x = 6"}), ("x = True", "constant", {"x = False"}),
        ("range(n)", "off by one", {"range(n - 1)"}), ("f(a)", "dropped call", {"pass"}),
        ("x = {1: a, 2: b}", "dropped case", {"x = {2: b}"}),
        ("x = isinstance(a, B | C)", "dropped case", {"x = isinstance(a, B)"}),
        # What means nothing to a result stays.
        ('"""1 < 2"""', "", set()), ("assert a < 1", "", set()), ("def f(x: 1 = a) -> 2: ...", "", set()),
        ("@f(1)\nclass A: ...", "", set()),
    ],
)  # fmt: skip
def test_mistakes_in_python(text: str, kind: str, becomes: set[str]) -> None:
    assert edits(text, kind) == becomes


def test_guards_and_cases() -> None:
    text = "def f(x):\n    if x > 1:\n        return 1\n    match x:\n        case A():\n            return 2\n"
    assert edits(text, "guard") == {"if not (x > 1):", "if False:"}
    assert edits(text, "dropped case") == {"case A() if False:"}


def test_mistakes_in_c() -> None:
    text = '/* a < b */\n#define N 3\nif (a < b && !c) return 0; // 1 < 2\n    release("1 < 2");\n{{ a < b }}\n'
    planted = {mutant.planted(text).split("\n")[mutant.line - 1] for mutant in of_c(text)}
    assert planted == {
        "if (a <= b && !c) return 0; // 1 < 2", "if (a < b || !c) return 0; // 1 < 2", "if (a < b && c) return 0; // 1 < 2",
        "if (a < b && !c) return 1; // 1 < 2", "if (0) return 0; // 1 < 2", "    ;",
    }  # fmt: skip


def test_every_area_has_files_and_every_file_tests_that_are_there() -> None:
    for name, area in AREAS.items():
        files = files_of(ROOT, area)
        assert files, name
        for test in {test for file in files for test in beside(ROOT, area, file)}:
            path, _, function = test.partition("::")
            assert (ROOT / path).exists() and f"def {function}" in ((ROOT / path).read_text() if function else "def "), test


def test_mistakes_follow_from_the_seed_and_marked_ones_are_left_out() -> None:
    areas = {"compiler": AREAS["compiler"]._replace(files=("kbuild/compiler/analysis/liveness.py",))}
    planted = chosen(ROOT, areas, 8, 1, [])
    assert planted == chosen(ROOT, areas, 8, 1, []) != chosen(ROOT, areas, 8, 2, []) and len(planted) == 8
    first = planted[0]
    mark = {"file": first.file, "line": first.line.strip(), "becomes": first.mutant.changed(first.line).strip()}
    assert first not in chosen(ROOT, areas, 1000, 1, [mark])
    assert len(chosen(ROOT, areas, 1000, 1, [])) > 30, "all lines that there are, once each"


def test_marks_stand_for_mistakes_that_can_be_planted() -> None:
    for mark in read_marks():
        text = (ROOT / mark["file"]).read_text()
        lines = text.split("\n")
        mutants = of_python(text) if mark["file"].endswith(".py") else of_c(text)
        found = {(lines[mutant.line - 1].strip(), mutant.changed(lines[mutant.line - 1]).strip()) for mutant in mutants}
        assert mark["reason"] and (mark["line"], mark["becomes"]) in found, mark


LEAST = """def least(a, b):
    return a if a < b else b


def nobody_asks(a, b):
    return a + b


def until(n):
    while n > 0:
        n -= 1
    return n
"""
TESTS = """import small


def test_least():
    assert small.least(1, 2) == small.least(2, 1) == 1


def test_until():
    assert small.until(2) == 0
"""


def test_a_campaign_says_what_was_caught_and_what_was_not_and_leaves_the_tree_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "kbuild").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "kbuild/small.py").write_text(LEAST)
    (root / "tests/test_small.py").write_text("import sys\nsys.path.insert(0, 'kbuild')\n" + TESTS)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    area = Area(("kbuild/*.py",), {"kbuild/": ("tests",)})
    mutants = [planted for planted in chosen(root, {"small": area}, 100, 0, []) if planted.mutant.line in (2, 6)]
    assert [planted.tests for planted in mutants] == [("tests/test_small.py", "tests")] * 2
    loop = next(m for m in of_python(LEAST) if (m.kind, m.line) == ("operator", 11))
    told: list[Outcome] = []
    campaign = Campaign(root, tmp_path / "copies", 1, 60.0)
    outcomes = campaign.run(mutants, told.append)
    campaign.timeout = 2.0  # that the tests end by themselves is known by now
    outcomes += campaign.run([mutants[0]._replace(line=LEAST.split("\n")[10], mutant=loop)], told.append)
    assert outcomes == told
    assert [(outcome.planted.mutant.line, outcome.caught) for outcome in outcomes] == [(2, True), (6, False), (11, True)]
    assert "test_least" in outcomes[0].how and outcomes[2].how == "no end"
    text = table(outcomes)
    assert "2 of 3 caught, 1 by running out of time" in text and text.endswith("2 of 3 caught (66.7%)")
    assert "survived: kbuild/small.py:6" in text and "    + return a - b\n    tests: tests/test_small.py tests" in text
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    assert (tmp_path / "copies/0/kbuild/small.py").read_text() == LEAST, "the next one starts from what is right"
