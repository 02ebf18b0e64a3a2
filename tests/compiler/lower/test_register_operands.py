"""Dots whose left operand is in registers, for a ptxas that puts other values there while they are read: the
lowering never lets it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import CASES

import kbuild
from kbuild.compiler import driver
from kbuild.compiler.backend import cubin
from kbuild.compiler.backend.async_operands import overwritten
from kbuild.compiler.backend.cubin import assemble, find_ptxas, ptxas_version
from kbuild.compiler.backend.elf import sections
from kbuild.compiler.backend.ptxas_wheels import choose, guarantees_of, installed
from kbuild.compiler.driver import target_for
from kbuild.errors import ToolError

KERNELS = Path(__file__).parents[3] / "kernels"
SOURCE = """
import triton.language as tl

def matmul(a, b, scale, c, K, M: tl.constexpr, N: tl.constexpr, TILE: tl.constexpr, HOW: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, TILE)
    acc = tl.zeros((M, N), tl.float32)
    other = tl.zeros((M, N), tl.float32)
    kept = tl.load(a + m[:, None] * TILE + k[None, :]).to(b.dtype.element_ty)
    for start in range(0, K, TILE):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + n[None, :])
        if HOW == "converted":
            acc = tl.dot(left.to(right.dtype), right, acc)
        elif HOW == "scaled":
            acc = tl.dot((left * tl.load(scale + start + k)[None, :]).to(right.dtype), right, acc)
        elif HOW == "twice":
            acc = tl.dot(left.to(right.dtype), right, acc)
            acc = tl.dot((left + 1).to(right.dtype), right, acc)
        elif HOW == "invariant":
            acc = tl.dot(kept, right, acc)
        elif HOW == "with one that stays":
            acc = tl.dot(left + 1, right, acc)
            other = tl.dot(kept, right, other)
        elif HOW == "with one in shared memory":
            acc = tl.dot(left + 1, right, acc)
            other = tl.dot(left, right, other)
    tl.store(c + m[:, None] * N + n[None, :], acc + other)
"""
IN_REGISTERS = re.compile(r"wgmma\.mma_async\S+ \{[^}]*\}, \{")


@pytest.fixture(scope="module")
def old() -> str:
    """A ptxas that overwrites operands."""
    chosen = choose(installed(ptxas_version), "12.9")
    assert not guarantees_of(chosen.name).keeps_operands
    assert guarantees_of(ptxas_version(find_ptxas())).keeps_operands
    return chosen.path


def computed(
    tmp_path: Path, how: str, left: str, right: str, tile: tuple[int, int, int], **options: Any
) -> kbuild.Artifact:
    """A dot in a loop whose left operand is computed."""
    file = tmp_path / "matmul.py"
    file.write_text(SOURCE)
    signature = {"a": f"*{left}:16", "b": f"*{right}:16", "scale": "*fp32:16", "c": "*fp32:16", "K": "i32:16"}
    constexprs = dict(zip(("M", "N", "TILE"), tile), HOW=how)
    return kbuild.compile(
        f"{file}:matmul", signature=signature, constexprs=constexprs, target="sm_90", **options
    )


def matmul(dtype: str = "fp32", **options: Any) -> kbuild.Artifact:
    """A shipped one: B in rows, which tf32 can only read through registers."""
    sizes = {"M": "i32", "N": "i32:16", "K": "i32:16"}
    strides = {"stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:16", "stride_bn": "i32:1"}
    signature = (
        dict.fromkeys("abc", f"*{dtype}:16") | sizes | strides | {"stride_cm": "i32:16", "stride_cn": "i32:1"}
    )
    tiles = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    return kbuild.compile(
        f"{KERNELS}/matmul.py:matmul_kernel", signature=signature, constexprs=tiles, num_warps=4, **options
    )


def require_kept(artifact: kbuild.Artifact) -> None:
    """Nothing is written to the registers of a left operand while a dot reads them."""
    assert IN_REGISTERS.search(artifact.asm["ptx"]) and artifact.metadata.ptxas_version == "12.9.86"
    assert [
        overwritten(section.data)
        for section in sections(artifact.asm["cubin"])
        if section.name.startswith(".text.")
    ] == [[]]


@pytest.mark.parametrize(
    ("how", "left", "right", "tile", "warps"),
    [
        ("converted", "fp32", "fp32", (64, 64, 32), 4),
        ("scaled", "fp16", "fp16", (128, 128, 64), 4),
        ("scaled", "bf16", "bf16", (64, 64, 32), 8),
        ("twice", "bf16", "bf16", (128, 128, 64), 8),
    ],
)
def test_operands_that_the_loop_computes(
    how: str, left: str, right: str, tile: tuple[int, int, int], warps: int, old: str, tmp_path: Path
) -> None:
    require_kept(computed(tmp_path, how, left, right, tile, num_warps=warps, ptxas=old))


def test_operands_that_come_from_shared_memory(old: str) -> None:
    require_kept(matmul(ptxas=old, num_stages=4, strict=True))


def test_code_for_another_version_is_refused(old: str) -> None:
    """Such a ptxas would overwrite the operands of code for newer ones: the lowering still has to avoid it."""
    with pytest.raises(ToolError, match="may still read it"):
        assemble(matmul(stop="ptx").asm["ptx"], "sm_90a", old)


def test_versions_that_keep_operands_pay_nothing(old: str) -> None:
    """Their operands are still loaded while the dot before is in flight, as all versions load operands that
    no loop recomputes."""
    for_default, for_old = (matmul(stop="ptx", ptxas=ptxas).asm["ptx"] for ptxas in (None, old))
    assert matmul(stop="ptx", ptxas=find_ptxas()).asm["ptx"] == for_default
    wait_and_load = re.compile(r"wgmma\.wait_group|ld\.shared\.b32")

    def first_in_loop(ptx: str) -> str:
        before = ptx[: ptx.index("wgmma.mma_async")]
        return wait_and_load.findall(before[before.rindex("\n$L") :])[0]

    assert first_in_loop(for_default) == "ld.shared.b32" and first_in_loop(for_old) == "wgmma.wait_group"


def test_nothing_else_changes(old: str, tmp_path: Path) -> None:
    """For that version neither where both operands are in shared memory, nor where the one in registers stays
    as it is."""
    kept = [
        computed(tmp_path, "invariant", "fp16", "fp16", (64, 64, 32), stop="ptx", ptxas=ptxas)
        for ptxas in (None, old)
    ]
    assert IN_REGISTERS.search(kept[0].asm["ptx"]) and kept[0].asm["ptx"] == kept[1].asm["ptx"]
    shared = [matmul("fp16", stop="ptx", ptxas=ptxas).asm["ptx"] for ptxas in (None, old)]
    assert "wgmma" in shared[0] and shared[0] == shared[1]


def test_bytes_of_an_operand_that_stays_are_packed_before_the_loop() -> None:
    """Where LLVM left that in the loop, the words would be written while the dot of the last iteration reads
    them."""
    case = CASES["dot_kept_fp8"]
    signature = case.signature(case.make(np.random.default_rng(0)))
    asm = kbuild.compile(
        case.source, signature=signature, constexprs=case.constexprs, target="sm_90", stop="ptx"
    ).asm
    before, loop, _ = re.split(r"\nloop\d+:", asm["llir"])
    packing = "zext i8"
    assert IN_REGISTERS.search(asm["ptx"]) and packing in before and packing not in loop


@pytest.mark.parametrize("how", ["with one that stays", "with one in shared memory"])
def test_dots_whose_operands_stay_are_not_waited_for(how: str, old: str, tmp_path: Path) -> None:
    """It was issued after the dot that reads the recomputed registers."""
    ttgir = computed(tmp_path, how, "fp16", "fp16", (64, 64, 32), stop="ttgir", ptxas=old).asm["ttgir"]
    body = ttgir[ttgir.index("scf.for") : ttgir.index("scf.yield")]
    steps = re.findall(r"ttg\.local_load|ttng\.warp_group_dot(?:_wait)?\b|pendings = \d", body)
    assert steps[:4] == ["ttng.warp_group_dot_wait", "pendings = 1", "ttg.local_load", "ttng.warp_group_dot"]


@pytest.mark.parametrize(
    ("version", "keeps"),
    [
        ("12.4", False),
        ("12.9.86", False),
        ("13.2.99", False),
        ("13.3", True),
        ("13.3.0", True),
        ("14.0.1", True),
        ("?", False),
    ],
)
def test_versions(version: str, keeps: bool) -> None:
    assert guarantees_of(version).keeps_operands == keeps


def test_where_there_is_no_other_ptxas(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is found counts, as far as it is to assemble anything."""
    monkeypatch.setattr(driver, "find_ptxas", lambda: old)
    monkeypatch.setattr(cubin, "find_ptxas", lambda: old)
    require_kept(matmul())
    assert matmul(stop="ptx").asm["ptx"] != matmul().asm["ptx"]


def test_the_target_knows(old: str) -> None:
    assert target_for("sm_90").ptxas.keeps_operands and target_for("sm_90", find_ptxas()).ptxas.keeps_operands
    assert not target_for("sm_90", old).ptxas.keeps_operands
    assert target_for("sm_80", "/nowhere/ptxas").ptxas.keeps_operands, (
        "no dots in flight, and no process to ask for the version"
    )
