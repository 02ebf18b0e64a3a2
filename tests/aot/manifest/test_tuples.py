"""Arguments that are tuples: their elements are arguments with numbers behind the tuple's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load
from kbuild.cli import main
from tests.aot.manifest.mistakes import mistakes
from tests.manifests import package_table

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def rows_kernel(pointers, strides, n, BLOCK: tl.constexpr):
    x, out = pointers
    places = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * strides[0] + places, mask=places < n, other=0.0)
    tl.store(out + tl.program_id(0) * strides[1] + places, row * len(strides), mask=places < n)
"""
MANIFEST = (
    package_table("demo_kernels", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "rows"
source = "rows.py"
grid = ["strides_0 // 8"]
args = { pointers = ["*{dtype}:16", "*{dtype}"], strides = ["i32:16?", "i32"], n = "i32" }
matrix = { dtype = ["fp16", "fp32"] }
specialize = [{ pointers_1 = 16, strides_1 = 16 }, {}]
config = [{ BLOCK = 16, when = { n = "<= 16", strides_1 = "<= 16" } }, { BLOCK = 32 }]
[kernel.verify]
sizes = { pointers_0 = "strides_0 // 8 * strides_0", pointers_1 = "strides_0 // 8 * strides_1" }
values = [{ n = 13, strides_0 = 16, strides_1 = 16 }, { n = 31, strides_0 = 40, strides_1 = 33 }]
"""
)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    return tmp_path


def test_elements_are_arguments(rows: Path) -> None:
    manifest = load(rows / "kernels.toml")
    kernel = manifest.kernel("rows")
    names = ["pointers_0", "pointers_1", "strides_0", "strides_1", "n"]
    assert [argument.name for argument in kernel.args] == names
    assert [argument.hints for argument in kernel.args][:3] == [("16",), ("",), ("16", "")]
    variants = expand(manifest).variants
    assert len(variants) == 2 * 2 * 2 * 2 and all(Variant.parse(str(each)) == each for each in variants)


def test_a_kernel_with_tuples_is_right(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-C", str(rows), "--no-cache"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"i32:16?", "i32"]',
            '"i32:16?", "i31"]',
            '11: kernel "rows": args.strides_1: unknown type "i31"; did you mean',
        ),
        (
            '"i32:16?", "i32"]',
            '"i32:16?", 32]',
            '11: kernel "rows": args.strides_1: the int 32 is not a type',
        ),
        ('["i32:16?", "i32"]', "[]", '11: kernel "rows": args.strides: a list is not a type'),
        (
            '["i32:16?", "i32"]',
            '"(i32, i32)"',
            'args.strides: "(i32, i32)" is not a type; write it as "*fp16:16"',
        ),
        ("strides = [", "strids = [", "args.strids_0: the kernel has no such parameter"),
        (
            "specialize = [{ ",
            "specialize = [{ strides = 1, ",
            "specialize[0].strides: is not a run-time argument",
        ),
    ],
)
def test_mistakes_in_tuples(rows: Path, old: str, new: str, message: str) -> None:
    assert MANIFEST.count(old) == 1
    (rows / "kernels.toml").write_text(MANIFEST.replace(old, new))
    found = mistakes(rows)
    assert any(message in entry for entry in found), found


def test_a_parameter_with_the_name_of_an_element(rows: Path) -> None:
    (rows / "rows.py").write_text(KERNEL.replace("n, BLOCK", "n, strides_1, BLOCK"))
    message = "args.strides: the kernel has a parameter strides_1, which would be the name of an element"
    assert any(message in entry for entry in mistakes(rows))


NESTED_KERNEL = """\
from typing import NamedTuple

import triton
import triton.language as tl


class Rows(NamedTuple):
    pointer: tl.tensor
    strides: tuple


@triton.jit
def rows_kernel(x: Rows, out: Rows, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x.pointer + row * x.strides[0] + column * x.strides[1], mask=column < n, other=0.0)
    tl.store(out.pointer + row * out.strides[0] + column * out.strides[1], values, mask=column < n)
"""
NESTED_MANIFEST = (
    package_table("demo_kernels", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "rows"
source = "rows.py"
grid = ["4"]
args = { "x, out" = ["*fp32:16", ["i32:16", "i32:1"]], n = "i32" }
config = [{ BLOCK = 32 }]
[kernel.verify]
sizes = { x_0 = "4 * x_1_0", out_0 = "4 * out_1_0" }
values = [{ n = 13, x_1_0 = 16, out_1_0 = 32, x_1_1 = 1, out_1_1 = 1 }]
"""
)


def test_tuples_in_tuples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.py").write_text(NESTED_KERNEL)
    (tmp_path / "kernels.toml").write_text(NESTED_MANIFEST)
    names = [argument.name for argument in load(tmp_path / "kernels.toml").kernel("rows").args]
    assert names == ["x_0", "x_1_0", "x_1_1", "out_0", "out_1_0", "out_1_1", "n"]
    assert main(["verify", "-C", str(tmp_path), "--no-cache"]) == 0, capsys.readouterr().err


def test_mistakes_in_inner_tuples(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(NESTED_KERNEL)
    (tmp_path / "kernels.toml").write_text(NESTED_MANIFEST.replace('"i32:1"]', '"i31"]'))
    found = mistakes(tmp_path)
    assert any('args.x_1_1: unknown type "i31"' in entry for entry in found), found
