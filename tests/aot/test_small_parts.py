"""Parts that stand alone: the line that shows how far a build is, files that are written whole, values in
messages, doc strings, and when two results of a kernel agree."""

from __future__ import annotations

import ast
import inspect
import io
import os
from pathlib import Path

import numpy as np
import pytest

from kbuild.aot.artifact.rendering import _map_context, python_doc
from kbuild.aot.build import progress
from kbuild.aot.files import write_atomic, write_if_changed
from kbuild.aot.manifest.reader import described
from kbuild.aot.tune.differences import difference


def test_a_bar_is_as_full_as_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_BARS", 0.0)
    stream = io.StringIO()
    bar = progress.Bar(stream)
    for done in (0, 1, 2, 4):
        bar.step(done, 4, f"variant {done}")
    bar.finish()
    lines = stream.getvalue().split("\r")[1:5]
    assert [line.count("=") for line in lines] == [0, 6, 12, 24]
    for done, line in zip((0, 1, 2, 4), lines):
        assert (
            f"] {done}/4 " in line
            and line.rstrip().endswith(f"variant {done}")
            and len(line.rstrip("\n")) == 79
        )


def test_writing_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    path.parent.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    write_atomic(path, b"one")
    assert not write_if_changed(path, b"one") and write_if_changed(path, b"two")
    assert path.read_bytes() == b"two" and os.listdir(path.parent) == ["file"]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("type_", "expected", "found", "wrong"),
    [
        ("*fp32", [1.0, 2.0], [1.0, 2.0], 0),
        ("*fp32:16", [1.0, np.nan, np.inf], [1.0, np.nan, np.inf], 0),
        ("*fp32", [1.0, np.nan, 3.0], [1.0, 2.0, 3.0], 1),
        ("*fp32", [1.0, 2.0, 3.0], [1.0, np.nan, 3.0], 1),
        ("*fp32", [1.0, 2.0, 3.0], [1.0, 2.0, np.inf], 1),
        ("*fp32", [1.0, 2.0], [1.0 + 1e-7, 2.0], 0),
        ("*fp32", [1.0, 2.0], [2.0, 1.0], 2),
        ("*i32", [1, 2, 3], [1, 2, 4], 1),
    ],
)
def test_results_that_differ_are_counted(
    type_: str, expected: list[float], found: list[float], wrong: int
) -> None:
    dtype = np.float32 if "fp32" in type_ else np.int32
    text = difference(type_, np.array(expected, dtype), np.array(found, dtype))
    assert text == (f"{wrong} of {len(expected)} elements differ from those of the default" if wrong else "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "a table"),
        ([1], "a list"),
        (True, "true"),
        (4, "the int 4"),
        (1.5, "the float 1.5"),
        ("a", '"a"'),
        ("\n", '"\\n"'),
        ("x" * 58, f'"{"x" * 58}"'),
        ("x" * 59, f'"{"x" * 56}..."'),
        (10**59, f"the int {10**59}"),
        (10**60, f"the int 1{'0' * 56}..."),
    ],
)
def test_values_of_a_manifest_in_messages(value: object, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize(
    "text",
    [
        "one line",
        "two\nlines",
        "a\n\nb",
        'ends with "',
        'three """ quotes',
        "back\\slash",
        "a bell \a",
        'a "word" in quotes',
    ],
)
def test_a_doc_string_means_its_text(text: str) -> None:
    code = python_doc(text, 4)
    assert inspect.cleandoc(ast.literal_eval(code)) == inspect.cleandoc(text)
    plain = not any(part in text for part in ('"""', "\\", "\a")) and not text.endswith('"')
    assert code.startswith('"""') == plain


@pytest.mark.parametrize(("swizzle", "code"), [(0, 0), (32, 1), (64, 2), (128, 3)])
def test_swizzles_are_numbered_as_the_driver_does(swizzle: int, code: int) -> None:
    """CUtensorMapSwizzle: NONE, 32B, 64B, 128B."""
    assert _map_context(f"tensormap f16 64x32 {swizzle} #0 #1,#2 #3")["swizzle"] == code
