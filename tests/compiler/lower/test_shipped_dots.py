"""The shipped kernels whose dots are wgmmas: code for Hopper alone, nothing serialised, no spills."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kbuild
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Barrier
from kbuild.targets.sm_90 import TARGET as SM_90

SHARED = SM_90.limits.shared_bytes
KERNELS = Path(__file__).parents[3] / "kernels"
POINTERS = {"a": "*{}:16", "b": "*{}:16", "c": "*{}:16", "M": "i32", "N": "i32:16", "K": "i32:16"}
LAYOUTS = {
    "row": {"stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:16", "stride_bn": "i32:1"},
    "column": {"stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:1", "stride_bn": "i32:16"},
}
C = {"stride_cm": "i32:16", "stride_cn": "i32:1"}
ATTENTION = {
    **dict.fromkeys(("q", "k", "v", "out"), "*fp16:16"),
    "lse": "*fp32",
    "sm_scale": "fp32",
    **dict.fromkeys((f"stride_{array}{axis}" for array in "qkvo" for axis in "zhn"), "i32:16"),
    "n_heads": "i32",
    "n_kv_heads": "i32",
    "n_ctx_q": "i32",
    "n_ctx_k": "i32",
    "n_batch": "i32",
}


def matmul(
    dtype: str, layout: str, blocks: tuple[int, int, int], warps: int, stages: int, **others: int
) -> kbuild.Artifact:
    signature = {name: text.format(dtype) for name, text in POINTERS.items()} | LAYOUTS[layout] | C
    constexprs = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), blocks), GROUP_M=8) | others
    return kbuild.compile(
        f"{KERNELS}/matmul.py:matmul_kernel",
        signature=signature,
        constexprs=constexprs,
        target="sm_90",
        num_warps=warps,
        num_stages=stages,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "blocks", "warps", "stages"),
    [
        ("fp16", (128, 256, 64), 8, 3),
        ("bf16", (128, 128, 64), 4, 4),
        ("fp16", (64, 64, 64), 4, 4),
        ("bf16", (128, 128, 32), 8, 3),
        ("fp16", (64, 128, 64), 4, 8),
    ],
)
def test_matmul(dtype: str, blocks: tuple[int, int, int], warps: int, stages: int, layout: str) -> None:
    artifact = matmul(dtype, layout, blocks, warps, stages)
    assert artifact.metadata.arch == "sm_90a" and artifact.metadata.spill_stores == 0
    assert re.findall(r"wgmma.wait_group.sync.aligned (\d)", artifact.asm["ptx"]) == ["1", "0"]
    (dot,) = (
        op for op in parse_module(artifact.asm["ttgir"]).kernel.body.walk() if isinstance(op, WarpGroupDot)
    )
    has_producer = artifact.metadata.warps > warps
    m, n, k = blocks
    is_alone, is_short = stages * (m + n) * k * 2 > SHARED // 2, m * n * k <= 512 * 2048
    assert has_producer == (is_alone and is_short), "where nothing else fills the gaps, and barriers count"
    assert sum(isinstance(op, Barrier) for op in dot.parent_block) == (0 if has_producer else 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("columns", "others"), [(192, {"PERSISTENT": True}), (192, {"GROUP_M": 0}), (160, {"GROUP_M": 0})]
)
def test_two_dots_share_their_rows(columns: int, others: dict[str, int], layout: str) -> None:
    artifact = matmul("fp16", layout, (128, columns, 64), 8, 5, **others)
    assert artifact.metadata.spill_stores == 0 and artifact.metadata.warps > 8
    first, second = (
        op for op in parse_module(artifact.asm["ttgir"]).kernel.body.walk() if isinstance(op, WarpGroupDot)
    )
    assert first.a == second.a and first.parent_block is second.parent_block, "A is copied once for both"
    assert artifact.asm["ptx"].count("expect_tx") == 1, "and all three tiles of an iteration come together"


def test_a_grid_of_rows_and_columns_needs_no_division() -> None:
    assert "div.s32" in matmul("fp16", "row", (64, 128, 64), 4, 8).asm["ptx"]
    assert "div.s32" not in matmul("fp16", "row", (64, 128, 64), 4, 8, GROUP_M=0).asm["ptx"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_few_rows_are_columns_of_the_transposed_dot(layout: str) -> None:
    artifact = matmul("fp16", layout, (16, 64, 128), 4, 4)
    assert (
        "wgmma.mma_async.sync.aligned.m64n16k16" in artifact.asm["ptx"]
        and artifact.metadata.spill_stores == 0
    )


def test_tf32_of_rows_goes_through_registers() -> None:
    artifact = matmul("fp32", "row", (128, 256, 32), 8, 4)
    assert re.search(r"m64n128k8\S+ \{[^}]*\}, \{", artifact.asm["ptx"]), (
        "the left operand is a list of registers"
    )
    assert not artifact.metadata.warnings and artifact.metadata.spill_stores == 0


@pytest.mark.parametrize(("depth", "warps"), [(64, 4), (128, 8)])
def test_attention(depth: int, warps: int) -> None:
    constexprs = {"HEAD_DIM": depth, "IS_CAUSAL": True, "BLOCK_M": 128, "BLOCK_N": 64}
    artifact = kbuild.compile(
        f"{KERNELS}/flash_attention.py:flash_attention_kernel",
        signature=ATTENTION,
        constexprs=constexprs,
        target="sm_90",
        num_warps=warps,
        num_stages=2,
    )
    assert artifact.metadata.arch == "sm_90a" and artifact.metadata.spill_stores == 0


@pytest.mark.parametrize("slack", [0.0, 8.0])
def test_attention_of_64_columns_runs_under_its_own_exponentials(slack: float) -> None:
    """The second dot comes in four parts; the warps that need not rescale skip that; four programs fit."""
    constexprs = {"HEAD_DIM": 64, "IS_CAUSAL": False, "BLOCK_M": 64, "BLOCK_N": 64, "SLACK": slack}
    artifact = kbuild.compile(
        f"{KERNELS}/flash_attention.py:flash_attention_kernel",
        signature=ATTENTION,
        constexprs=constexprs,
        target="sm_90",
        num_warps=4,
        num_stages=3,
    )
    ptx, loops = artifact.asm["ptx"], 2
    assert ptx.count("wgmma.fence") == loops * (1 + 4) and ptx.count("wgmma.commit_group") == loops * 2
    assert ptx.count("vote.sync.any") == loops
    under_the_branch = ptx.index("vote.sync.any") < ptx.index("shfl.sync.bfly")
    assert under_the_branch == (slack > 0), (
        "where maxima are followed late, threads exchange them under the branch alone"
    )
    registers = artifact.metadata.registers
    assert not artifact.metadata.warnings and registers is not None and registers <= 128


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("depth", "rows"), [(64, 128), (128, 64)])
def test_the_backward_pass_of_attention_takes_all_registers_and_spills_none(
    depth: int, rows: int, causal: bool
) -> None:
    """The producer keeps the fewest that there can be, and addresses in shared memory are computed where they are
    used: for the scores' gradients and for the sums of dQ once in each iteration, from the thread's number."""
    arrays = ("q", "k", "v", "do", "dk", "dv")
    signature = {
        **dict.fromkeys(("q", "k", "v", "dout", "dk", "dv"), "*fp16:16"),
        **dict.fromkeys(("log2_sum", "delta", "dq_sum"), "*fp32:16"),
        "sm_scale": "fp32",
        **dict.fromkeys((f"stride_{array}{axis}" for array in arrays for axis in "zhn"), "i32:16"),
        **dict.fromkeys(("n_heads", "n_kv_heads", "n_ctx_q", "n_ctx_k", "n_batch"), "i32"),
    }
    artifact = kbuild.compile(
        f"{KERNELS}/flash_attention_backward.py:flash_attention_backward_kernel",
        signature=signature,
        constexprs={"HEAD_DIM": depth, "IS_CAUSAL": causal, "BLOCK_M": rows, "BLOCK_N": 128},
        target="sm_90",
        num_warps=8,
        num_stages=2,
    )
    assert not artifact.metadata.warnings and artifact.metadata.spill_stores == 0
    ptx = artifact.asm["ptx"]
    assert re.findall(r"setmaxnreg\.\w+\.sync\.aligned\.u32\s+(\d+)", ptx) == ["24", "240"]
    assert ptx.count("%tid.x") == 1 + 2
