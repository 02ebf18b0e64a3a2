"""Programs whose threads would keep values in memory get more warps than their author asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
from kbuild.compiler import compilation
from kbuild.compiler.backend.elf import instruction_count
from kbuild.errors import ToolError
from tests.emulator.artifacts import left_in

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, out, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total)
    tl.store(out + m[:, None] * N + n[None, :], total)

@triton.jit
def shares(x, out, N: tl.constexpr):
    # Each of the sums waits for all threads, which keep the whole row meanwhile.
    i = tl.arange(0, N)
    row = tl.load(x + i)
    for _ in tl.static_range(2):
        row = row / tl.sum(row)
    tl.store(out + i, row + tl.extra.cuda.num_warps())
"""
FP16 = {"a": "*fp16:16", "b": "*fp16:16", "out": "*fp32:16", "K": "i32:16"}
FP32 = {"x": "*fp32:16", "out": "*fp32:16"}


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    (tmp_path / "k.py").write_text(KERNELS)
    return tmp_path / "k.py"


def product(kernels: Path, m: int, n: int, **options: Any) -> kbuild.Artifact:
    tile = {"M": m, "N": n, "BLOCK_K": 32}
    return kbuild.compile(f"{kernels}:product", signature=FP16, constexprs=tile, **options)


def shares(kernels: Path, n: int, **options: Any) -> kbuild.Artifact:
    return kbuild.compile(f"{kernels}:shares", signature=FP32, constexprs={"N": n}, **options)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_sums_that_four_warps_cannot_hold_are_held_by_eight(kernels: Path, target: str) -> None:
    made = product(kernels, 128, 256, target=target, num_warps=4).metadata
    assert (made.warps, made.spill_stores) == (8, 0)
    assert made.options.num_warps == 4  # What was asked for.


def test_what_fits_keeps_its_warps(kernels: Path) -> None:
    assert product(kernels, 128, 128, num_warps=4).metadata.warps == 4


def test_warps_double_until_the_values_fit(kernels: Path) -> None:
    made = shares(kernels, 16384, num_warps=1).metadata
    assert (made.warps, made.spill_stores) == (4, 0)


def test_eight_warps_have_all_registers_that_there_are(kernels: Path) -> None:
    made = product(kernels, 256, 256, num_warps=8).metadata
    assert made.warps == 8
    assert made.spill_stores


def test_few_values_in_memory_cost_less_than_a_second_program(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs of four warps fit into a multiprocessor, and one of eight, here: while it waits for the loads of an
    iteration, nothing else runs."""
    assert product(kernels, 128, 256, num_warps=4, num_stages=1).metadata.warps == 8
    monkeypatch.setattr(compilation, "_SHARE", 0.75)
    monkeypatch.setattr(compilation.Compilation, "is_overfull", lambda *_: False)
    made = product(kernels, 128, 256, num_warps=4, num_stages=1)
    spilled = (made.metadata.spill_stores or 0) + (made.metadata.spill_loads or 0)
    assert made.metadata.warps == 4
    assert 0 < spilled / 4 < 0.75 * instruction_count(made.asm["cubin"])
    # Copies that are on their way need no other program, and of two or four warps several fit in any case.
    assert product(kernels, 128, 256, num_warps=4).metadata.warps == 8
    assert shares(kernels, 16384, num_warps=1).metadata.warps == 4


def test_who_limits_registers_asks_for_spills(kernels: Path) -> None:
    made = product(kernels, 128, 256, num_warps=4, max_registers=200).metadata
    assert made.warps == 4
    assert made.spill_stores


def test_the_ptx_is_that_of_the_cubin(kernels: Path) -> None:
    whole, ptx = product(kernels, 128, 256), product(kernels, 128, 256, stop="ptx")
    assert ptx.asm["ptx"] == whole.asm["ptx"]
    assert ptx.metadata.warps == 8


def test_without_ptxas_the_ptx_has_the_warps_that_were_asked_for(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ToolError("no ptxas is installed")

    monkeypatch.setattr(compilation, "assemble", missing)
    assert shares(kernels, 16384, num_warps=1, stop="ptx").metadata.warps == 1
    with pytest.raises(ToolError, match="no ptxas"):
        shares(kernels, 16384, num_warps=1)


def test_sums_that_no_thread_can_hold_are_not_compiled_with_fewer_warps(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = []
    lower = compilation.lower_module
    monkeypatch.setattr(
        compilation,
        "lower_module",
        lambda module, *rest, **options: (
            lowered.append(module.kernel.attrs["num_warps"]) or lower(module, *rest, **options)
        ),
    )
    product(kernels, 128, 256, num_warps=1, stop="ptx")
    assert lowered == [8]


def test_a_dump_is_of_what_was_built(kernels: Path, tmp_path: Path) -> None:
    made = product(kernels, 128, 256, dump=tmp_path / "dump")
    assert (tmp_path / "dump/kernel.ptx").read_text() == made.asm["ptx"]
    assert "num_warps = 8" in (tmp_path / "dump/kernel.ttgir").read_text()
    assert "asked_warps = 4" in made.asm["ttgir"]


def test_results_and_the_authors_number_of_warps_stay(kernels: Path) -> None:
    x, out = np.random.default_rng(0).random(16384, np.float32), np.zeros(16384, np.float32)
    artifact = shares(kernels, x.size, num_warps=1)
    assert artifact.metadata.warps == 4
    np.testing.assert_allclose(
        left_in("out", artifact, {"x": x, "out": out}, checks=""), x / x.sum() + 1, rtol=1e-5
    )
