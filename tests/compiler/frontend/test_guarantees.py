"""`tl.multiple_of` and its like as statements: they say something of the name itself, as Triton has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import kbuild

HEAD = """\
import triton
import triton.language as tl


@triton.jit
def copy(x, out, n):
    p = x.to(tl.pointer_type(tl.float32)) + tl.arange(0, 512)
    q = out.to(tl.pointer_type(tl.float32)) + tl.arange(0, 512)
"""


def accesses(folder: Path, body: str) -> tuple[int, int]:
    """The widths in words of the widest load and the widest store of addresses of which nothing is known."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "copy.py").write_text(HEAD + lines)
    signature = {"x": "i64", "out": "i64", "n": "i32"}
    ptx = kbuild.compile(f"{folder}/copy.py:copy", signature=signature, target="sm_90", stop="ptx").asm["ptx"]
    widths = [
        max((width for width in (1, 2, 4) if f"{name}.global.v{width}." in ptx), default=1)
        for name in ("ld", "st")
    ]
    return widths[0], widths[1]


def test_nothing_is_known_without_them(tmp_path: Path) -> None:
    assert accesses(tmp_path, "tl.store(q, tl.load(p))") == (1, 1)


@pytest.mark.parametrize(
    "statement", ["tl.multiple_of(p, 16)", "tl.max_contiguous(tl.multiple_of(p, [16]), [16])"]
)
def test_a_statement_is_about_its_name(tmp_path: Path, statement: str) -> None:
    assert accesses(tmp_path, f"{statement}\ntl.store(q, tl.load(p))") == (4, 1)


def test_within_a_loop_that_moves_the_pointers(tmp_path: Path) -> None:
    body = """\
for _ in range(n):
    tl.multiple_of(p, 16)
    tl.store(q, tl.load(p))
    p += 512
    q += 512"""
    assert accesses(tmp_path, body) == (4, 1)


@pytest.mark.parametrize("around", ["if n > 3:", "for _ in range(n):"])
def test_it_holds_where_it_is_said(tmp_path: Path, around: str) -> None:
    body = f"""\
{around}
    tl.multiple_of(p, 16)
    tl.store(q + 512, tl.sum(tl.load(p), 0))
tl.store(q, tl.load(p, mask=tl.arange(0, 512) < n))"""
    accesses(
        tmp_path, body
    )  # What holds inside is no value of what comes after: the IR's verifier would say so.


def test_what_is_no_name_is_left_alone(tmp_path: Path) -> None:
    assert accesses(tmp_path, "tl.multiple_of(p + 1, 16)\ntl.store(q, tl.load(p))") == (1, 1)
