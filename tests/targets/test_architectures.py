"""Kernels for each architecture: they assemble, multiply by the instructions that the architecture has, and run
in the emulator."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import CASES

import kbuild
from kbuild.compiler.backend.cubin import find_ptxas
from kbuild.compiler.driver import Artifact
from kbuild.errors import CompileError, UsageError
from kbuild.targets import ARCHS, find_target
from tests.compiler.backend.test_cross_check import nvdisasm
from tests.emulator.test_zoo_emulated import check

SAMPLE = ("softmax_rows", "dot_fp8", "dot_and_sum_loop", "attention", "tiles_ones")
DOT = """
import triton
import triton.language as tl

@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), c.dtype.element_ty)
    for k in range(0, K, BLOCK):
        left = tl.load(a + rows[:, None] * K + (k + depth)[None, :])
        total = tl.dot(left, tl.load(b + columns[None, :] * K + (k + depth)[:, None]), total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)
"""
OPERATIONS: Mapping[str, tuple[str, str]] = {
    "fp16": ("fp32", "HMMA.16816.F32"),
    "bf16": ("fp32", "HMMA.16816.F32.BF16"),
    "fp32": ("fp32", "HMMA.1688.F32.TF32"),
    "i8": ("i32", "IMMA.16832.S8.S8.SAT"),
    "fp8e4nv": ("fp32", "QMMA.16832.F32.E4M3.E4M3"),
    "fp8e5": ("fp32", "QMMA.16832.F32.E5M2.E5M2"),
}
"""By the type of the operands: that of the sums, and what the machine code multiplies by."""


@lru_cache
def matmul(folder: Path, arch: str, element: str, **named: Any) -> Artifact:
    source = folder / "matmul.py"
    source.write_text(DOT)
    signature = {
        "a": f"*{element}:16",
        "b": f"*{element}:16",
        "c": f"*{OPERATIONS[element][0]}:16",
        "K": "i32:16",
    }
    constexprs = {"M": 64, "N": 64, "BLOCK": 64}
    return kbuild.compile(
        f"{source}:matmul", signature=signature, constexprs=constexprs, target=arch, **named
    )


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_sample_of_the_zoo_assembles(arch: str, name: str) -> None:
    case = CASES[name]
    artifact = kbuild.compile(
        case.source,
        signature=case.signature(case.make(np.random.default_rng(0))),
        constexprs=case.constexprs,
        target=arch,
        options=case.options(arch),
    )
    assert artifact.metadata.target == arch and artifact.metadata.spill_stores == 0
    assert f".target {artifact.metadata.arch}" in artifact.asm["ptx"]
    assert (artifact.metadata.arch == arch) or arch == "sm_90"


@pytest.mark.parametrize("element", OPERATIONS)
@pytest.mark.parametrize("arch", [arch for arch in ARCHS if not find_target(arch).has("wgmma")])
def test_dots_are_made_by_the_instructions_of_the_architecture(
    arch: str, element: str, tmp_path: Path
) -> None:
    """Before sm_89 there are none for fp8, which becomes f16; nor are there on sm_100, where ptxas widens it."""
    artifact = matmul(tmp_path, arch, element)
    (tmp_path / "k.cubin").write_bytes(artifact.asm["cubin"])
    command = [nvdisasm(), str(tmp_path / "k.cubin")]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected, target = OPERATIONS[element][1], find_target(arch)
    if element.startswith("fp8") and (target.capability < 89 or target.has("fp8_mma_as_f16")):
        expected = "HMMA.16816.F32"
    assert set(re.findall(r"\b\w*MMA\.[\w.]+", code)) == {expected}


@pytest.mark.parametrize("arch", [arch for arch in ARCHS if not find_target(arch).has("wgmma")])
def test_tiles_come_by_what_the_architecture_copies_with(arch: str, tmp_path: Path) -> None:
    text = matmul(tmp_path, arch, "fp16").asm["ptx"]
    has_engine = find_target(arch).has("tma")
    assert ("cp.async.bulk.tensor" in text) == has_engine and ("cp.async.cg" in text) == (not has_engine)


@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", SAMPLE)
def test_the_emulator_runs_it_right(name: str, arch: str) -> None:
    check(name, arch, "random(1)", "strict")


@pytest.mark.parametrize("element", OPERATIONS)
def test_portable_ptx_runs_on_newer_architectures(element: str, tmp_path: Path) -> None:
    """Their drivers compile it: it has nothing that only sm_90a knows."""
    bound = matmul(tmp_path, "sm_90", element)
    portable = matmul(tmp_path, "sm_90", element, portable=True)
    assert bound.metadata.arch == "sm_90a" and portable.metadata.arch == "sm_90"
    assert portable.metadata.target == "sm_90" and "wgmma" not in portable.asm["ptx"]
    (tmp_path / "k.ptx").write_text(portable.asm["ptx"])
    for arch in (arch for arch in ARCHS if find_target(arch).capability >= 90):
        command = [find_ptxas(), f"-arch={arch}", "-o", str(tmp_path / "k.cubin"), str(tmp_path / "k.ptx")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arch", ARCHS)
def test_what_an_architecture_lacks_anyway_is_not_missed(arch: str, tmp_path: Path) -> None:
    plain, portable = (matmul(tmp_path, arch, "fp16", portable=wanted) for wanted in (False, True))
    assert (plain.asm["ptx"] == portable.asm["ptx"]) == (arch != "sm_90")
    assert matmul(tmp_path, arch, "fp16", portable=True, cluster_size=2).metadata.options.cluster_size == 1


def test_a_program_may_use_the_shared_memory_of_its_architecture(tmp_path: Path) -> None:
    """Where there is less of it, a pipeline gets fewer stages, data moves between threads in rounds, and tiles that do not fit at
    all are an error."""
    stages = {arch: matmul(tmp_path, arch, "fp32", num_stages=8).metadata.shared for arch in ARCHS}
    assert stages["sm_86"] == stages["sm_89"] < stages["sm_80"]
    assert all(shared <= find_target(arch).limits.shared_bytes for arch, shared in stages.items())
    case = CASES["matmul_tf32_deep"]
    signature = case.signature(case.make(np.random.default_rng(0)))

    def compiled(**more: int) -> Artifact:
        return kbuild.compile(
            case.source,
            signature=signature,
            constexprs={**case.constexprs, **more},
            target="sm_120",
            options=case.options("sm_120"),
            stop="ptx",
        )

    rounds = compiled()  # 128x256 sums of fp32 are 128 KB.
    assert rounds.metadata.shared <= 101376 and "max_scratch" in rounds.asm["ttgir"]
    with pytest.raises(CompileError, match="but sm_120 has 101376 per program"):
        compiled(BLOCK_K=128)


def test_an_option_that_an_architecture_lacks_says_which_have_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cluster_size is 2, but sm_120 has no clusters") as caught:
        matmul(tmp_path, "sm_120", "fp16", cluster_size=2)
    assert caught.value.help == "it takes sm_90"
