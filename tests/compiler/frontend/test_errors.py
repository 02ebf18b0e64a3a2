"""Every mistake gets the message in `mistakes.txt`, `mistakes_of_functions.txt`: place, line, carets, names,
shapes, advice."""

import ast
import linecache
from pathlib import Path

import pytest

from kbuild.compiler.frontend import build_module
from kbuild.errors import KbuildError

PROLOGUE, *TEXTS = (Path(__file__).parent / "mistakes.txt").read_text().split("\n==== ")
TEXTS += (Path(__file__).parent / "mistakes_of_functions.txt").read_text().split("\n==== ")[1:]
PROLOGUE = PROLOGUE.split("this:\n\n")[1]
CASES = [text.split("\n", 2) for text in TEXTS]


def arguments(text):
    """`X=*fp32 BLOCK:=4`: types and constants."""
    signature, constexprs = {}, {}
    for item in text.split():
        if ":=" in item:
            name, value = item.split(":=")
            constexprs[name] = ast.literal_eval(value)
        else:
            name, value = item.split("=")
            signature[name] = value
    return signature, constexprs


@pytest.mark.parametrize(("title", "values", "rest"), CASES, ids=[case[0] for case in CASES])
def test_message(title, values, rest, tmp_path, monkeypatch):
    kernel, expected = rest.split("----\n")
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(PROLOGUE.rstrip("\n") + "\n@triton.jit\n" + kernel)
    linecache.clearcache()
    signature, constexprs = arguments(values)
    with pytest.raises(KbuildError) as caught:
        build_module("k.py:k", signature, constexprs)
    assert str(caught.value).replace(f"{tmp_path}/", "") == expected.strip("\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.py:k", "no file"),
        ("k.py:other", "has no function other"),
        ("k.py", "names no function"),
        ("broken.py:k", "invalid syntax|was never closed"),
        ("k.py:NUMBER", "is not a function"),
    ],
)
def test_a_source_that_cannot_be_read(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text("NUMBER = 4\ndef k(X):\n    pass\n")
    Path("broken.py").write_text("def k(X:\n    pass\n")
    with pytest.raises(KbuildError, match=message):
        build_module(source, {"X": "*fp32"}, {})
