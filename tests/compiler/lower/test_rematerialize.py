"""Rematerialized values stay separate in ptxas, too, which does not know why."""

from __future__ import annotations

from pathlib import Path

import kbuild

LAYER_NORM = f"{Path(__file__).parents[3]}/kernels/layer_norm.py:layer_norm_kernel"


def test_a_row_of_64_halves_for_a_thread_leaves_registers_for_another_row():
    pointers = dict.fromkeys(("x", "y", "weight", "bias"), "*bf16:16")
    signature = {
        **pointers,
        "mean": "*fp32",
        "rstd": "*fp32",
        "stride_x": "i64:16",
        "stride_y": "i64:16",
        "n_cols": "i32:16",
        "eps": "fp32",
    }
    found = kbuild.compile(
        LAYER_NORM, signature=signature, constexprs={"BLOCK": 4096, "PARTS": 8}, num_warps=16
    ).metadata
    assert found.registers is not None and found.registers <= 64 and found.spill_stores == 0
