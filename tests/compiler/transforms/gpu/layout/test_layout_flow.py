"""Small questions about layouts that many passes ask."""

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.transforms._support.layout_flow import without_conversions

TEXT = """\
#rows = blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}
#columns = blocked{sizePerThread=[4,1], threadsPerWarp=[8,4], warpsPerCTA=[1,4], order=[0,1]}
tt.func @f(%x: tensor<32x32xf16, #rows>) attributes {num_warps = 4} {
  %y: tensor<32x32xf16, #columns> = ttg.convert_layout %x
  %z: tensor<32x32xf16, #rows> = ttg.convert_layout %y
  %t: tensor<32x32xf32, #rows> = arith.extf %z
  %u: tensor<32x32xf32, #columns> = ttg.convert_layout %t
  tt.return
}
"""


def stripped(module: Module) -> dict[str, str]:
    """What stands behind each value, by name."""
    results = [result for op in module.kernel.body for result in op.results]
    return {result.name: without_conversions(result).name for result in results}


def test_a_value_before_any_changes_of_its_layout() -> None:
    assert stripped(parse_module(TEXT)) == {"y": "x", "z": "x", "t": "t", "u": "t"}
