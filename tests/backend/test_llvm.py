"""LLVM text to PTX."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_void_p

import pytest
from llvmlite import binding

from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.backend.llvm_library import DECLARATIONS
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
    target = find_target("sm_80")
    to_ptx(FMA, target)  # It sets LLVM's options, which are those of the whole process.
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(cpu=target.arch, features=f"+{target.ptx_feature}")
    assert str(machine.target_data) == DATA_LAYOUT


@pytest.mark.parametrize("name", DECLARATIONS)
def test_functions_are_declared_as_llvmlite_declares_them(name):
    def kind(type_):
        return c_void_p if hasattr(type_, "contents") and type_ is not POINTER(c_char_p) else type_

    theirs = getattr(binding.ffi.lib, name)
    result, arguments = DECLARATIONS[name]
    if theirs.argtypes is not None:  # llvmlite leaves to ctypes what that guesses right.
        assert [kind(argument) for argument in theirs.argtypes] == list(arguments)
    if result is not None:
        assert kind(theirs.restype) is result


def test_wrong_text_is_told_with_its_line():
    with pytest.raises(InternalError, match="%q = fmul"):
        to_ptx(FMA.replace("%p = fmul float %a", "%q = fmul i32 %a"), find_target("sm_80"))


def test_an_unknown_intrinsic_is_told_by_name():
    text = FMA.replace("%s = fadd float %p, 1.0", "%s = call float @llvm.nvvm.nonsense.f(float %p)")
    with pytest.raises(InternalError, match=r"llvm\.nvvm\.nonsense\.f"):
        to_ptx(text + "\ndeclare float @llvm.nvvm.nonsense.f(float)\n", find_target("sm_80"))
