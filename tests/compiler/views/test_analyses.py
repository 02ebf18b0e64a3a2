"""Analyses beside values, as comments: the text can be read again, and the comments say what passes go by."""

from __future__ import annotations

import pytest

from kbuild.compiler.driver import after_passes
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.views.analyses import ANALYSES, annotated
from kbuild.errors import UsageError
from tests.compiler.upstream.test_meaning import CASES, TEXTS

SCALED = """\
tt.func @scaled(%x: !tt.ptr<f32> {divisibility = 16}, %n: i32 {divisibility = 16}) attributes {num_warps = 4} {
  %c1024: i32 = arith.constant {value = 1024}
  %pid: i32 = tt.get_program_id {axis = 0}
  %first: i32 = arith.muli %pid, %c1024
  %lane: tensor<1024xi32> = tt.make_range {start = 0, end = 1024}
  %firsts: tensor<1024xi32> = tt.splat %first
  %at: tensor<1024xi32> = arith.addi %firsts, %lane
  %ns: tensor<1024xi32> = tt.splat %n
  %inside: tensor<1024xi1> = arith.cmpi %at, %ns {predicate = "slt"}
  %xs: tensor<1024x!tt.ptr<f32>> = tt.splat %x
  %p: tensor<1024x!tt.ptr<f32>> = tt.addptr %xs, %at
  %v: tensor<1024xf32> = tt.load %p, mask=%inside
  %twice: tensor<1024xf32> = arith.addf %v, %v
  tt.store %p, %twice, mask=%inside
  tt.return
}
"""


def lines(module: Module, *names: str) -> list[str]:
    """The annotated text, after a check that comments change nothing."""
    text = annotated(module, names, "text")
    assert print_module(parse_module(text)) == print_module(module)
    return text.splitlines()


def line(found: list[str], part: str) -> str:
    return next(text for text in found if part in text)


def test_axis_info() -> None:
    found = lines(parse_module(SCALED), "axis_info")
    assert line(found, "%at:").endswith("// axis_info: contiguity=[1024] divisibility=[1024] constancy=[1]")
    assert line(found, "%c1024:").endswith("constancy=[1] constant=1024")
    assert line(found, "%p:").endswith("// axis_info: contiguity=[1024] divisibility=[16] constancy=[1]")
    assert line(found, "%inside:").endswith("constancy=[16] prefix=[1024]")
    assert "//" not in line(found, "%v:")
    # Arguments are said at the start of their function.
    assert "%n contiguity=[1] divisibility=[16] constancy=[1]" in "\n".join(found[:4])


def test_coalescing_says_what_bounds_an_access() -> None:
    found = lines(parse_module(SCALED), "coalescing")
    assert line(found, "%v:").endswith(
        "// coalescing: 4 x 32 bits along axis 0, bounded by 16 bytes of an instruction"
    )
    narrow = lines(
        parse_module(SCALED.replace("%x: !tt.ptr<f32> {divisibility = 16}", "%x: !tt.ptr<f32>")), "coalescing"
    )
    assert line(narrow, "%v:").endswith("1 x 32 bits along axis 0, bounded by alignment 4 bytes")
    masked = lines(parse_module(SCALED.replace('"slt"', '"ne"')), "coalescing")
    assert line(masked, "%v:").endswith("1 x 32 bits along axis 0, bounded by the mask")


def test_several_analyses_of_ttgir() -> None:
    module = after_passes((TEXTS / "pipelined.ttgir").read_text(), [], file="pipelined.ttgir")
    found = lines(module, "allocation", "liveness", "layouts")
    tiles = line(found, "%a_tiles:")
    assert "// allocation: 2048 bytes at " in tiles and "liveness: " in tiles
    assert "fixed here, by the instruction of the dot" in line(found, "= tt.dot ")
    assert "allocation: 4096 bytes of shared memory" in "\n".join(found)
    registers = [text for text in found if "registers of tensors" in text]
    assert registers


@pytest.mark.parametrize("name", CASES)
def test_every_analysis_of_many_modules(name: str) -> None:
    module = after_passes((TEXTS / name).read_text(), [], file=name)
    lines(module, *(key for key, one in ANALYSES.items() if name.endswith("ttgir") or not one.needs_layouts))


def test_mistakes() -> None:
    module = parse_module(SCALED)
    with pytest.raises(UsageError, match="--print axis_inf: no such analysis") as caught:
        annotated(module, ["axis_inf"], "text")
    assert caught.value.help == 'did you mean "axis_info"?'
    with pytest.raises(UsageError, match="--print allocation: the module has no layouts") as caught:
        annotated(module, ["allocation"], "text")
    assert caught.value.help == "it shows ttgir: add -p gpu"
