"""The texts after every pass survive being told as differences, and say where their lines come from."""

from __future__ import annotations

import random
from pathlib import Path

from kbuild.aot.report.pipeline import Place, Stage, applied, difference, encoded, stages_of
from kbuild.compiler import driver
from tests.aot.report.library import MULTIPLY


def test_one_operation_less_is_one_line_and_other_numbers() -> None:
    before = ["%0 = a", "%1 = b", "%2 = c %0", "%3 = d %2, %0"]
    after = ["%0 = a", "%1 = c %0", "%2 = d %1, %0"]
    entry = difference(before, after)
    assert entry == {"edits": [(1, 1, [])], "numbers": {"2": "1", "3": "2"}}
    assert applied(before, entry) == after


def test_a_value_that_is_another_one_is_a_change() -> None:
    """The text differs in a number alone, but that is not what the value is called now."""
    before = ["%0 = a", "%1 = b", "store %0", "store %1"]
    after = ["%0 = a", "%1 = b", "store %1", "store %1"]
    entry = difference(before, after)
    assert entry == {"edits": [(2, 1, ["store %1"])]} and applied(before, entry) == after


def test_any_texts() -> None:
    chance = random.Random(7)

    def text() -> list[str]:
        words = ("a", "b", "c")
        return [
            f"%{chance.randrange(9)} = {chance.choice(words)} %{chance.randrange(9)}, %x{chance.randrange(3)}"
            for _ in range(chance.randrange(12))
        ]

    for _ in range(500):
        before, after = text(), text()
        assert applied(before, difference(before, after)) == after
    assert applied(["%0 = a"], {}) == ["%0 = a"]


def test_the_passes_of_a_kernel(tmp_path: Path) -> None:
    file = tmp_path / "multiply.py"
    file.write_text(MULTIPLY)
    signature = dict.fromkeys("abc", "*fp16:16")
    driver.compile(
        f"{file}:multiply_kernel",
        signature=signature,
        constexprs={"SIZE": 64},
        stop="ttgir",
        dump=tmp_path / "dump",
    )
    stages = stages_of(tmp_path / "dump")
    assert stages[0].name == "start" and {stage.stage for stage in stages} == {"ttir", "ttgir"}
    assert stages[-1].lines == tuple((tmp_path / "dump/kernel.ttgir").read_text().rstrip("\n").split("\n"))
    entries, text = encoded(stages), []
    for stage, entry in zip(stages, entries):
        text = applied(text, entry)
        assert tuple(text) == stage.lines
    assert any("edits" not in entry for entry in entries[1:]), "some passes change nothing, and take no room"
    (dot,) = (place for line, place in zip(stages[1].lines, stages[1].places) if " = tt.dot " in line)
    assert dot == (Place(str(file), 9, 12), Place(str(file), 16, 56))


def test_a_line_without_a_location(tmp_path: Path) -> None:
    (tmp_path / "00_start.ttir").write_text('  %0 = a loc("k\\"1.py":3:5)\n}\n')
    (tmp_path / "kernel.ttir").write_text("not a pass\n")
    assert stages_of(tmp_path) == [
        Stage("start", "ttir", ("  %0 = a", "}"), ((Place('k\\"1.py', 3, 5),), ()))
    ]
