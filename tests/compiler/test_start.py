"""Compilation may start at any stage, from Python and from the command line, and then ends at the same code."""

from __future__ import annotations

from pathlib import Path

import pytest

import kbuild
from kbuild import cli
from kbuild.compiler.driver import STAGES
from kbuild.errors import CompileError, KbuildError, UsageError
from kbuild.options import CompileOptions

ROOT = Path(__file__).parents[2]
ADD = (
    "kernels/vector_add.py:vector_add_kernel",
    {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i64"},
    {"BLOCK": 1024},
    CompileOptions(num_warps=8),
)
SUM = (
    "kernels/sum.py:sum_partials_kernel",
    {"partial": "*fp64:16", "out": "*fp32:16", "count": "i32"},
    {"BLOCK": 4096},
    CompileOptions(num_warps=32, launch_pdl=True),
)
MATMUL = (
    "kernels/matmul.py:matmul_persistent_kernel",
    dict.fromkeys("abc", "*fp16:16")
    | {"M": "i32", "N": "i32:16", "K": "i32"}
    | {f"stride_{name}": "i32:16" for name in "abc"},
    {"B_COLUMN_MAJOR": True, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8},
    CompileOptions(num_warps=8, num_stages=4),
)
SMALL_MATMUL = (
    *MATMUL[:2],
    MATMUL[2] | {"BLOCK_M": 64, "BLOCK_N": 64},
    CompileOptions(num_warps=4, num_stages=3),
)
"""It uses TMA, which only sm_90 has in code of its own kind."""


def compiled(kernel: tuple, target: str) -> kbuild.Artifact:
    source, signature, constexprs, options = kernel
    return kbuild.compile(
        f"{ROOT}/{source}", signature=signature, constexprs=constexprs, target=target, options=options
    )


@pytest.mark.parametrize(
    ("kernel", "target"),
    [(ADD, "sm_80"), (ADD, "sm_90"), (SUM, "sm_90"), (MATMUL, "sm_90"), (SMALL_MATMUL, "sm_100")],
)
def test_a_later_start_ends_at_the_same_code(kernel: tuple, target: str, tmp_path: Path) -> None:
    whole = compiled(kernel, target)
    for index, stage in enumerate(STAGES[:-1]):
        file = tmp_path / f"kernel.{stage}"
        file.write_text(whole.asm[stage])
        later = kbuild.compile(file, target=target)
        assert [*later.asm] == [*STAGES[index:]]
        # The tensor pipeline runs once more over a ttir, and may find something left to do.
        exact = STAGES[3:] if stage == "ttir" else STAGES[index:]
        assert {name: later.asm[name] for name in exact} == {name: whole.asm[name] for name in exact}, stage
        same = (
            "name",
            "target",
            "arch",
            "warps",
            "registers",
            "warnings",
            "waits_for_launches",
            "ptxas_version",
        )
        assert [getattr(later.metadata, name) for name in same] == [
            getattr(whole.metadata, name) for name in same
        ]
        says_arguments = stage in ("ttir", "ttgir")
        assert later.metadata.params == (whole.metadata.params if says_arguments else ())
        assert (later.metadata.signature is not None) == says_arguments


@pytest.mark.parametrize("start", STAGES[:-1])
def test_the_command_line_starts_anywhere(
    start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = compiled(ADD, "sm_90")
    file = tmp_path / f"add.{start}"
    file.write_text(whole.asm[start])
    assert cli.main(["compile", str(file), "--emit", "ptx,cubin", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/vector_add_kernel.sm_90.ptx").read_text() == whole.asm["ptx"]
    assert (tmp_path / "out/vector_add_kernel.sm_90.cubin").read_bytes() == whole.asm["cubin"]
    assert "registers" in capsys.readouterr().err


def test_a_stop_before_the_start_is_refused(tmp_path: Path) -> None:
    whole = compiled(ADD, "sm_90")
    for start, stop in (("ttgir", "ttir"), ("llir", "ttgir"), ("ptx", "llir")):
        file = tmp_path / f"add.{start}"
        file.write_text(whole.asm[start])
        with pytest.raises(UsageError, match=f"cannot stop at {stop}: .* is of the later stage {start}"):
            kbuild.compile(file, stop=stop)
        assert kbuild.compile(file, stop=start).asm == {start: whole.asm[start]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ptx", "", "a.ptx:1: error: the text has no kernel"),
        ("a.llir", "define void @f() { ret void }", "a.llir:1: error: the text has no kernel"),
        ("a.ptx", ".target sm_90\n.visible .entry f()\n{ ret; }\n", "the kernel f has no reqntid"),
        (
            "a.ptx",
            ".entry f()\n.reqntid 32\n{}\n.entry g()\n.reqntid 32\n{}\n",
            "the text has 2 kernels, f, g",
        ),
        (
            "a.ptx",
            ".target sm_80\n.visible .entry f()\n.reqntid 32\n{}\n",
            "a.ptx is PTX for sm_80, not for sm_90",
        ),
        (
            "a.llir",
            'define ptx_kernel void @f() "nvvm.reqntid"="32" {\n  %x = add i32 %y, 1\n  ret void\n}\n',
            "not a module that kbuild makes: LLVM rejects",
        ),
    ],
)
def test_code_that_is_none_is_reported(name: str, text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(KbuildError) as caught:
        kbuild.compile(file)
    assert message in f"{caught.value}" and isinstance(caught.value, CompileError | UsageError)
