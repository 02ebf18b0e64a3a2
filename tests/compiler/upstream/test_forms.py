"""Operations in Triton's words, and what they are in kbuild's: the pairs of `forms.txt`, each a fragment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.upstream import is_upstream, read_upstream

FILE = Path(__file__).with_name("forms.txt")
PAIRS = [pair.splitlines() for pair in FILE.read_text().strip().split("\n\n")]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair[0][:60] for pair in PAIRS])
def test_an_operation(pair: list[str]) -> None:
    text, *expected = pair
    printed = print_module(read_upstream(text, "text", {"num_warps": 4}))
    body = printed.partition("{\n")[2].removesuffix("  tt.return\n}\n").splitlines()
    assert [line.strip() for line in body if line] == [line.strip() for line in expected if line]
    # One without values could be of either kind.
    assert is_upstream(text) == (text != "gpu.barrier")
    assert not is_upstream(printed)
