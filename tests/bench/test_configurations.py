"""What bench/speed/gpu.py takes from the manifest for Triton."""

from __future__ import annotations

import configurations as bench


def test_configurations_are_those_of_the_type_and_order_for_any_sizes() -> None:
    found = bench.configurations("matmul", "fp16", specialize="row_major")
    assert {config["BLOCK_M"] for config in found} >= {16, 64, 128}, "for 16 rows, and for many"
    assert all("when" not in config and config["num_warps"] in (4, 8) for config in found)
    row, column = (
        bench.configurations("matmul", "fp32", specialize=f"{order}_major") for order in ("row", "column")
    )
    assert row and column and row != column
    narrow, wide = (
        bench.configurations("flash_attention", "fp16", HEAD_DIM=d, IS_CAUSAL=True) for d in (64, 128)
    )
    assert narrow and wide and narrow != wide


def test_grids_are_the_manifest_s() -> None:
    tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 4}
    grid = bench.grid_of("matmul", 4096, 4000, tile, 132)
    assert grid[0] == 32 * 16 and set(grid[1:]) <= {1}
    assert bench.grid_of("matmul", 4096, 4000, tile | {"PERSISTENT": True}, 132)[0] == 132
    assert bench.grid_of("matmul_persistent", 256, 256, tile | {"B_COLUMN_MAJOR": True}, 132)[0] == 2
