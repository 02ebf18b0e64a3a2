"""LLVM text to PTX."""

from __future__ import annotations

import pytest

from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.lower.function import DATA_LAYOUT, TRIPLE
from kbuild.compiler.targets import find_target
from kbuild.errors import InternalError

HEADER = f'target datalayout = "{DATA_LAYOUT}"\ntarget triple = "{TRIPLE}"\n'
FMA = HEADER + """
define ptx_kernel void @f(ptr addrspace(1) %x, float %a, float %b) {
  %p = fmul float %a, %b
  %s = fadd float %p, 1.0
  store float %s, ptr addrspace(1) %x
  ret void
}
"""


def test_products_and_sums_contract():
    assert "fma.rn.f32" in to_ptx(FMA, find_target("sm_80"))


def test_architecture_and_ptx_version_are_those_of_the_target():
    assert ".target sm_80" in to_ptx(FMA, find_target("sm_80"))
    assert ".version 8.0\n.target sm_90a" in to_ptx(FMA, find_target("sm_90"), "sm_90a", "ptx80")


def test_the_data_layout_is_that_of_the_machine():
    from kbuild.compiler.backend import llvm

    target = find_target("sm_80")
    assert str(llvm._machine(target.arch, target.ptx_feature).target_data) == DATA_LAYOUT


def test_wrong_text_is_told_with_its_line():
    with pytest.raises(InternalError, match="%q = fmul"):
        to_ptx(FMA.replace("%p = fmul float %a", "%q = fmul i32 %a"), find_target("sm_80"))


def test_an_unknown_intrinsic_is_told_by_name():
    text = FMA.replace("%s = fadd float %p, 1.0", "%s = call float @llvm.nvvm.nonsense.f(float %p)")
    with pytest.raises(InternalError, match=r"llvm\.nvvm\.nonsense\.f"):
        to_ptx(text + "\ndeclare float @llvm.nvvm.nonsense.f(float)\n", find_target("sm_80"))
