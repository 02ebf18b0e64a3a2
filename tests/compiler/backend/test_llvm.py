"""LLVM text to PTX."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, c_char_p, c_void_p
from pathlib import Path

import pytest
from llvmlite import binding

import kbuild
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.backend.llvm_library import DECLARATIONS
from kbuild.compiler.lower.core.function import DATA_LAYOUT, TRIPLE
from kbuild.errors import InternalError
from kbuild.targets import find_target

HEADER = f'target datalayout = "{DATA_LAYOUT}"\ntarget triple = "{TRIPLE}"\n'
FMA = (
    HEADER
    + """
define ptx_kernel void @f(ptr addrspace(1) %x, float %a, float %b) {
  %p = fmul float %a, %b
  %s = fadd float %p, 1.0
  store float %s, ptr addrspace(1) %x
  ret void
}
"""
)


def test_multiplications_and_additions_contract():
    assert "fma.rn.f32" in to_ptx(FMA, find_target("sm_80"))


def test_architecture_and_ptx_version_are_those_of_the_target():
    assert ".target sm_80" in to_ptx(FMA, find_target("sm_80"))
    assert ".version 8.0\n.target sm_90a" in to_ptx(FMA, find_target("sm_90"), "sm_90a", "ptx80")


def test_the_data_layout_is_that_of_the_machine():
    target = find_target("sm_80")
    to_ptx(FMA, target)  # It sets LLVM's options, which are those of the whole process.
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(
        cpu=target.arch, features=f"+{target.ptx_feature}"
    )
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


ROWS = """
import kbuild, kbuild.language as tl

@kbuild.jit
def add_columns(x, out, n, row_stride, stride, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, 32)[None, :]
    pointers = x + rows * row_stride + columns * stride
    sums = tl.zeros((ROWS, 32), tl.float32)
    for start in range(0, n, 32):
        sums += tl.load(pointers, mask=columns < n - start, other=0.0)
        pointers += 32 * stride
    tl.store(out + rows * 32 + columns, sums)
"""
"""A warp adds up columns of a matrix with any strides: each thread has an address in each row."""


def _rows(path: Path, count: int) -> str:
    """The LLVM text for so many rows."""
    path.write_text(ROWS)
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "row_stride": "i32", "stride": "i32"}
    made = kbuild.compile(
        f"{path}:add_columns",
        signature=signature,
        constexprs={"ROWS": count},
        num_warps=1,
        target="sm_80",
        stop="llir",
    )
    return made.asm["llir"]


def test_dozens_of_addresses_do_not_wait_for_each_other_and_few_or_hundreds_are_shared(tmp_path):
    target = find_target("sm_80")
    counts = (8, 32, 256)
    texts = [_rows(tmp_path / "rows.py", count) for count in counts]
    made = [to_ptx(text, target) for text in texts]
    # A multiplication for each row, or the stride added to the row before.
    assert [text.count(".wide.") >= count for text, count in zip(made, counts)] == [False, True, False]
    with ThreadPoolExecutor(4) as pool:  # Options are those of the process: no thread may see another's.
        assert list(pool.map(lambda text: to_ptx(text, target), texts * 2)) == made * 2


def test_wrong_text_is_reported_with_its_line():
    with pytest.raises(InternalError, match="%q = fmul"):
        to_ptx(FMA.replace("%p = fmul float %a", "%q = fmul i32 %a"), find_target("sm_80"))


def test_an_unknown_intrinsic_is_reported_by_name():
    text = FMA.replace("%s = fadd float %p, 1.0", "%s = call float @llvm.nvvm.nonsense.f(float %p)")
    with pytest.raises(InternalError, match=r"llvm\.nvvm\.nonsense\.f"):
        to_ptx(text + "\ndeclare float @llvm.nvvm.nonsense.f(float)\n", find_target("sm_80"))
