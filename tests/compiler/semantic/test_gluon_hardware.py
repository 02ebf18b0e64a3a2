"""Mistakes with copies, barriers, tensor cores and partitions get a message that says what was expected and found."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import kbuild
from kbuild.errors import KbuildError

PROLOGUE = """\
from kbuild.language import gluon
from kbuild.language.gluon import language as gl
from kbuild.language.gluon.language.nvidia.ampere import async_copy, mma_v2
from kbuild.language.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait
)

ROWS = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
TILE = gl.NVMMASharedLayout(128, 16)
NARROW = gl.NVMMASharedLayout(64, 16)
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
ACC = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
ACC2 = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])

@gluon.jit
def nothing(x):
    pass

@gluon.jit
def gives(x):
    return x

@gluon.jit
def nested(x):
    gl.warp_specialize([(nothing, (x,)), (nothing, (x,))], [1], [24])

@gluon.jit
def k(desc, p, n, f):
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    TILE: gl.constexpr = gl.NVMMASharedLayout(128, 16)
    NARROW: gl.constexpr = gl.NVMMASharedLayout(64, 16)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    ACC2: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], TILE)
    narrow = gl.allocate_shared_memory(gl.float16, [64, 64], NARROW)
    tiles = gl.allocate_shared_memory(gl.float16, [3, 64, 64], TILE)
    wide = gl.allocate_shared_memory(gl.float32, [64, 64], PLAIN)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    bars = mbarrier.allocate_mbarrier(batch=3)
    acc = gl.zeros([64, 64], gl.float32, ACC)
    acc2 = gl.zeros([64, 64], gl.float32, ACC2)
    pointers = p + gl.arange(0, 64, gl.SliceLayout(1, ROWS))[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, ROWS))[None, :]
"""
SIGNATURE = {
    "desc": "tensordesc<fp16[64, 64],NVMMASharedLayout(128, 16)>",
    "p": "*fp16:16",
    "n": "i32",
    "f": "*fp32:16",
}


def message(body: str, folder: Path) -> str:
    """What the author of a kernel with this body, which is compiled for sm_90, is told."""
    (folder / "k.py").write_text(PROLOGUE + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n")
    with pytest.raises(KbuildError) as caught:
        kbuild.compile(f"{folder / 'k.py'}:k", signature=SIGNATURE, target="sm_90", stop="ptx")
    return "\n".join(line for line in str(caught.value).splitlines() if "error: " in line or "help: " in line)


COPIES = [
    (
        "tma.async_copy_global_to_shared(desc, [0, 0], bar, narrow)",
        "result `narrow` has the layout NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2, "
        "transposed=False, fp4_padded=False), the descriptor tensor_desc `desc` has "
        "NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False, fp4_padded=False)",
    ),
    (
        "tma.async_copy_global_to_shared(desc, [0, 0], bar, tiles)",
        "result `tiles` has shape [3, 64, 64], the descriptor's blocks have shape [64, 64]",
    ),
    (
        "tma.async_copy_global_to_shared(desc, [0, 0], bar, wide)",
        "result `wide` is fp32, the descriptor fp16",
    ),
    (
        "tma.async_copy_global_to_shared(p, [0, 0], bar, tile)",
        "tensor_desc `p` is a scalar pointer<fp16>, which is not",
    ),
    ("tma.async_copy_global_to_shared(desc, [0], bar, tile)", "coord is (0), the block has 2 dimensions"),
    (
        "tma.async_copy_global_to_shared(desc, [0, 0], bars, tile)",
        "barrier `bars` is shared memory int64[3, 1]",
    ),
    ("tma.async_copy_global_to_shared(desc, [0, 0], bar, acc)", "result `acc` is a tensor"),
    ("tma.async_copy_global_to_shared(desc, [0, 0], bar, tile, acc)", "pred `acc` is a tensor"),
    ("tma.store_wait(n)", "pendings is a scalar int32; it is a number known while compiling, from 0 to"),
    (
        "d = tma.make_tensor_descriptor(p, [n, n], [n, 1], [64, 64], PLAIN)",
        "layout is SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0]); the layout of a descriptor's "
        "blocks is an NVMMASharedLayout",
    ),
    (
        "d = tma.make_tensor_descriptor(f, [n, n], [n, 1], [64, 64], TILE)",
        "element_bitwidth=16, rank=2, transposed=False, fp4_padded=False) does not fit blocks fp32[64, 64]",
    ),
    (
        """
        d = tma.make_tensor_descriptor(p, [n + 1, n], [n, 1], [64, 64], TILE)
        tma.async_copy_shared_to_global(d, [0, 0], tile)
        """,
        "the launcher cannot make the tensor map of this descriptor",
    ),
    (
        "async_copy.async_copy_global_to_shared(tile, p)",
        "smem `tile` has shape [64, 64], the pointers have shape []",
    ),
    (
        "async_copy.async_copy_global_to_shared(wide, pointers)",
        "smem `wide` is fp32, the pointers point to fp16",
    ),
    (
        "async_copy.async_copy_global_to_shared(tiles, pointers)",
        "help: choose one of several tiles: smem.index(i)",
    ),
    ("async_copy.wait_group(-1)", "num_outstanding is -1; it is a number known while compiling, from 0"),
    (
        """
        one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        line = gl.allocate_shared_memory(gl.float16, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        async_copy.async_copy_global_to_shared(line, p + gl.arange(0, 128, one))
        """,
        "each thread would copy 2 bytes at a time, cp.async copies 4, 8 or 16",
    ),
    ("fence_async_shared(cluster=True)", "cluster is for programs of a cluster; a program is alone here"),
]
BARRIERS = [
    ("mbarrier.init(bars, count=1)", "help: choose one of several barriers: barriers.index(i)"),
    ("mbarrier.init(tile, count=1)", "which is not a barrier"),
    ("mbarrier.init(bar, count=0)", "count is 0; it is a number known while compiling, from 1 to 1048575"),
    (
        "mbarrier.expect(bar, 1 << 20)",
        "bytes is 1048576; it is a number known while compiling, from 1 to 1048575",
    ),
    ("mbarrier.expect(bar, n)", "bytes is a scalar int32; it is a number known while compiling"),
    ("mbarrier.wait(bar, phase=2)", "phase is 2; the parity of a phase is 0 or 1"),
    ("mbarrier.wait(bar, phase=acc)", "phase `acc` is a tensor"),
    ("mbarrier.wait(bar, 0, deps=[acc])", "deps holds a tensor"),
    ("mbarrier.arrive(bar, count=n)", "count is a scalar int32; it is a number known while compiling"),
]
DOTS = [
    ("warpgroup_mma(tile, tile, acc2)", "acc `acc2` has the layout NVMMADistributedLayout(version=[2, 0]"),
    ("warpgroup_mma(tile, acc, acc)", "b `acc` is a tensor fp32[64, 64]"),
    ("warpgroup_mma(tile, wide, acc)", "there is no instruction for f16 x f32 -> f32"),
    (
        "warpgroup_mma(gl.load(pointers), tile, acc)",
        "has the layout BlockedLayout(size_per_thread=[1, 8], threads_per_warp=[4, 8], warps_per_cta=[4, 1], "
        "order=[1, 0]); beside the accumulator it is DotOperandLayout(operand_index=0, parent=NVMMADistributedLayout("
        "version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16]), k_width=2)",
    ),
    (
        """
        other: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 8])
        warpgroup_mma(wide, wide, gl.zeros([64, 64], gl.float32, other))
        """,
        "a `wide` has the layout SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0]); wgmma reads tiles "
        "in an NVMMASharedLayout with a swizzle",
    ),
    (
        """
        other: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 48, 16])
        warpgroup_mma(tile, tile, gl.zeros([64, 64], gl.float32, other))
        """,
        "help: it is [16, n, 16] for these operands, n being one of 64, 32, 16, 8",
    ),
    ("x = warpgroup_mma(tile, tile, acc, is_async=True) + 1", "of dots that may not have ended"),
    ("warpgroup_mma(tile, tile, acc, use_acc=acc)", "use_acc `acc` is a tensor"),
    (
        'warpgroup_mma(tile, tile, acc, precision="ieee")',
        "precision is 'ieee'; tensor cores multiply f32 as tf32",
    ),
    ("warpgroup_mma_wait(0)", "deps is not given"),
    ("warpgroup_mma_wait(0, deps=(n, 3))", "deps holds 3; it is for accumulators, tensors and tiles"),
    ("mma_v2(acc2, acc2, acc)", "acc has the layout NVMMADistributedLayout(version=[3, 0]"),
    ("mma_v2(acc2, acc2, acc2)", "a `acc2` has the layout NVMMADistributedLayout(version=[2, 0]"),
    ("mma_v2(tile, acc2, acc2)", "a `tile` is shared memory fp16[64, 64]"),
]
PARTITIONS = [
    (
        "gl.warp_specialize([(nothing, (n,)), (nothing, (n,))], [1, 1], [24])",
        "worker_num_warps has 2 numbers, there are 1",
    ),
    (
        "gl.warp_specialize([(nothing, (n,)), (nothing, (n,))], [3], [24])",
        "worker_num_warps has 3; it is a power of two",
    ),
    (
        "gl.warp_specialize([(nothing, (n,)), (nothing, (n,))], [1], [20])",
        "worker_num_regs has 20; it is a multiple of 8",
    ),
    (
        "gl.warp_specialize([(nothing, (n,)), (nothing, (acc,))], [1], [24])",
        "only the default's function takes tensors",
    ),
    (
        "gl.warp_specialize([(nothing, (n,)), (gives, (n,))], [1], [24])",
        "a partition returns a scalar int32, only",
    ),
    ("gl.warp_specialize([(nothing, n)], [], [])", "it is a function and a tuple of arguments"),
    ("gl.warp_specialize([], [], [])", "functions_and_args has no function"),
    (
        "gl.warp_specialize([(nothing, (n,)), (nested, (n,))], [1], [24])",
        "gl.warp_specialize is in a partition of another",
    ),
]


@pytest.mark.parametrize(("body", "expected"), [*COPIES, *BARRIERS, *DOTS, *PARTITIONS])
def test_a_mistake_is_named(body: str, expected: str, tmp_path: Path) -> None:
    assert expected in message(body, tmp_path)
