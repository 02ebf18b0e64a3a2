"""Kernels as text, lowered and assembled, for tests that look at what comes out."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.backend.cubin import CubinFacts, assemble
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.lower import lower_module
from kbuild.targets import find_target

LAYOUTS = """
#b = blocked{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}
#one = blocked{sizePerThread=[1], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}
#tile = blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}
#left = blocked{sizePerThread=[1,1], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}
#row = slice{axis=1, size=32, parent=blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}
#column = slice{axis=0, size=32, parent=blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}
"""


def llir(body: str, arguments: str = "", arch: str = "sm_80", lineinfo: bool = False) -> str:
    """The LLVM text of a kernel `f` with the given operations; 4 warps, and the layouts `#b`, `#one`,
    `#tile`."""
    text = f"{LAYOUTS}\ntt.func @f({arguments}) attributes {{num_warps = 4}} {{\n{body}\n  tt.return\n}}\n"
    return lower_module(parse_module(text), find_target(arch), lineinfo)


def ptx(body: str, arguments: str = "", arch: str = "sm_80", lineinfo: bool = False) -> str:
    """Its PTX, which ptxas accepts."""
    text = to_ptx(llir(body, arguments, arch, lineinfo), find_target(arch))
    facts(text, arch)
    return text


def facts(text: str, arch: str = "sm_80") -> CubinFacts:
    """What ptxas reports about a PTX text."""
    return assemble(text, arch)[1]


def assert_in_order(text: str, parts: Sequence[str]) -> None:
    """The parts occur in the text, on lines of their own, in this order."""
    lines = iter(text.splitlines())
    for part in parts:
        if not any(part in line for line in lines):
            raise AssertionError(f"{part!r} is missing, or out of order, in\n{text}")


def pointers(
    name: str, element: str, offsets: str = "%r", size: int = 1024, layout: str = "#b", kind: str = "i32"
) -> str:
    """Operations that make `%name_p`, a tensor of pointers, from the argument `%name`."""
    type_ = f"tensor<{size}x!tt.ptr<{element}>, {layout}>"
    return f"  %{name}_s: {type_} = tt.splat %{name}\n  %{name}_p: {type_} = tt.addptr %{name}_s, {offsets}\n"


RANGE = "  %r: tensor<1024xi32, #b> = tt.make_range {start = 0, end = 1024}\n"
