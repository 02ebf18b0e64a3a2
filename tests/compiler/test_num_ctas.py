"""Triton's `num_ctas`: a program that a cluster would share is one block's, with the warps of the whole cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import CASES

import kbuild
from kbuild.aot.build.compile_variant import compile_facts
from kbuild.compiler.driver import pipelines_of
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp import run as interpret
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.errors import CompileError, UsageError
from kbuild.options import DEFAULTS, CompileOptions
from kbuild.targets import find_target
from tests.emulator.artifacts import emulate, left_in, outputs_of

ADD = """
import triton
import triton.language as tl

@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    warps: tl.constexpr = tl.extra.cuda.num_warps()
    threads: tl.constexpr = tl.extra.cuda.num_threads()
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v + 1000 * warps + threads + tl.num_programs(0) * 100000, mask=i < n)
"""
GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def add(x, out, n, BLOCK: gl.constexpr):
    i = gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(out + i, gl.load(x + i) + 1)
"""
LARGE = """
import triton
import triton.language as tl

@triton.jit
def square(x, out):
    i = tl.arange(0, 512)
    at = i[:, None] * 512 + i[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.dot(v, v))
"""
TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [2], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 2 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%x: !tt.ptr<i32>) {
    %i = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #blocked>
    %p = tt.splat %x : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>, #blocked>
    %q = tt.addptr %p, %i : tensor<64x!tt.ptr<i32>, #blocked>, tensor<64xi32, #blocked>
    tt.store %q, %i : tensor<64x!tt.ptr<i32>, #blocked>
    tt.return
  }
}
"""
SIGNATURE = {"x": "*i32:16", "out": "*i32:16", "n": "i32"}


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "k.py").write_text(ADD)
    return f"{tmp_path / 'k.py'}:add"


def compiled(source: str, stop: str = "ptx", **named: Any) -> kbuild.Artifact:
    return kbuild.compile(source, signature=SIGNATURE, constexprs={"BLOCK": 256}, stop=stop, **named)


@pytest.mark.parametrize(
    ("num_warps", "num_ctas", "warps"),
    [(4, 1, 4), (4, 2, 8), (4, 4, 16), (1, 16, 16), (8, 8, 32), (32, 2, 32), (16, 16, 32)],
)
def test_one_block_has_the_warps_of_all_ctas(source: str, num_warps: int, num_ctas: int, warps: int) -> None:
    artifact = compiled(source, num_warps=num_warps, num_ctas=num_ctas)
    facts, ptx = artifact.metadata, artifact.asm["ptx"]
    assert (facts.warps, facts.block) == (warps, (32 * warps, 1, 1))
    assert (facts.options.num_warps, facts.options.num_ctas) == (num_warps, num_ctas)
    assert f".reqntid {32 * warps}" in ptx and "cluster" not in ptx
    told = compile_facts(facts)
    assert (told["num_warps"], told.get("num_ctas", 1), told["warps"]) == (num_warps, num_ctas, warps)
    assert DEFAULTS.with_attributes(told) == facts.options, "a build's record says the same"


def test_kernels_see_the_numbers_of_their_author(source: str) -> None:
    """And the grid is that of the programs."""
    artifact = compiled(source, num_warps=2, num_ctas=4)
    x, out = np.arange(600, dtype=np.int32), np.zeros(600, np.int32)
    found = left_in("out", artifact, {"x": x, "out": out, "n": 600}, grid=(3,), checks="")
    np.testing.assert_array_equal(found, x + 2 * 1000 + 64 + 300000)


@pytest.mark.parametrize("num_ctas", [2, 4])
@pytest.mark.parametrize(
    "name",
    [
        "softmax_rows",
        "softmax_long",
        "matmul_fp16",
        "matmul_tf32",
        "matmul_large_tile",
        "specialized",
        "sort_up",
        "scan_columns",
        "last_one_adds",
        "all_atomics_int32",
        "atomic_rows_fp16",
        "gather",
    ],
)
def test_results_are_those_of_one_cta(name: str, num_ctas: int) -> None:
    case = CASES[name]
    options = replace(case.options("sm_90"), num_ctas=num_ctas)
    arguments: dict[str, Any] = case.make(np.random.default_rng(1))
    signature = case.signature(arguments)
    target = find_target("sm_90")
    module = build_module(case.source, signature, case.constexprs, options)
    for passes in pipelines_of(module, target):
        run_pipeline(module, target, passes)
    memory = {
        key: value.copy() if isinstance(value, np.ndarray) else value for key, value in arguments.items()
    }
    interpret(module, memory, case.grid)
    case.check(arguments, memory)

    artifact = kbuild.compile(
        case.source, signature=signature, constexprs=case.constexprs, stop="ptx", options=options
    )
    assert artifact.metadata.warps >= min(32, case.num_warps * num_ctas)
    report = emulate(artifact, arguments, case.grid, schedule="random(1)").check()
    case.check(arguments, outputs_of(artifact, report))


def test_the_ir_says_both_numbers_and_is_read_back(source: str, tmp_path: Path) -> None:
    whole = compiled(source, num_warps=8, num_ctas=8)
    for stage in ("ttir", "ttgir"):
        assert "num_warps = 32" in whole.asm[stage] and "asked_warps = 8" in whole.asm[stage]
        file = tmp_path / f"k.{stage}"
        file.write_text(whole.asm[stage])
        again = kbuild.compile(file, stop="ptx")
        assert again.asm["ptx"] == whole.asm["ptx"] and again.metadata.options == whole.metadata.options
        (tmp_path / f"one.{stage}").write_text(compiled(source).asm[stage])
        one = kbuild.compile(tmp_path / f"one.{stage}", num_ctas=2, stop="ptx").metadata
        assert (one.warps, one.options) == (4, CompileOptions()), "what has been chosen stays"


def test_without_the_option_nothing_is_different(source: str) -> None:
    one, other = compiled(source), compiled(source, num_ctas=1)
    assert one.asm == other.asm and "ctas" not in one.asm["ttgir"] and "asked" not in one.asm["ttgir"]


@pytest.mark.parametrize(("num_warps", "num_ctas", "bound"), [(16, 2, 64), (8, 2, 128), (4, 2, 200)])
def test_registers_are_bounded_by_what_one_block_has(
    source: str, num_warps: int, num_ctas: int, bound: int
) -> None:
    """Each of n CTAs would have a register file of its own."""
    ptx = compiled(source, num_warps=num_warps, num_ctas=num_ctas, maxnreg=200).asm["ptx"]
    assert re.findall(r"^\.maxnreg (\d+)$", ptx, re.MULTILINE) == [str(bound)]
    assert ".maxnreg 200" in compiled(source, num_warps=16, maxnreg=200).asm["ptx"]


@pytest.mark.parametrize("value", [0, 3, 32, True, "2"])
def test_other_numbers_are_refused(source: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"num_ctas is {value!r}\nhelp: it must be 1, 2, 4, 8 or 16"):
        compiled(source, num_ctas=value)


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89"])
def test_architectures_without_clusters_refuse_it(source: str, target: str) -> None:
    says = (
        f"num_ctas is 2, but {target} has no thread_block_clusters\nhelp: it takes sm_90 or sm_100 or sm_120"
    )
    with pytest.raises(UsageError, match=re.escape(says)):
        compiled(source, target=target, num_ctas=2)
    with pytest.raises(UsageError, match=re.escape(says)):
        compiled(source, target=target, num_ctas=2, portable=True)


@pytest.mark.parametrize("target", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("portable", [False, True])
def test_architectures_with_clusters_take_it(source: str, target: str, portable: bool) -> None:
    assert compiled(source, target=target, portable=portable, num_ctas=2).metadata.warps == 8


def test_layouts_of_an_author_are_for_one_cta(tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text(GLUON)
    kernel = f"{tmp_path / 'g.py'}:add"
    assert compiled(kernel).metadata.warps == 4
    with pytest.raises(CompileError, match=r"num_ctas is 2, and the layouts of add") as found:
        compiled(kernel, num_ctas=2)
    assert found.value.loc is not None and found.value.loc.line == 6
    assert found.value.help == "compile it with num_ctas=1"


def test_tiles_that_only_a_cluster_could_hold_are_refused_at_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(LARGE)
    says = r"k\.py:9:9: error: square needs \d+ bytes of shared memory, but sm_90 has 232448 per program"
    with pytest.raises(CompileError, match=says) as found:
        kbuild.compile(
            f"{tmp_path / 'k.py'}:square", signature={"x": "*fp16:16", "out": "*fp32:16"}, num_ctas=4
        )
    assert found.value.help.endswith("; what 4 CTAs would share is in the memory of one block")


def test_layouts_that_triton_has_chosen_keep_their_warps(tmp_path: Path) -> None:
    file = tmp_path / "k.ttgir"
    file.write_text(TTGIR)
    facts = kbuild.compile(file, num_warps=8, num_ctas=4, stop="ptx").metadata
    assert (facts.warps, facts.options) == (2, CompileOptions(num_warps=2))
