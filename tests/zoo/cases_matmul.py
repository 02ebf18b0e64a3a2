"""Cases of the shipped matmul."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from zoo.arrays import operand, poisoned
from zoo.case import Case, bf16, numbers


def _matmul(
    name: str,
    dtype: str,
    m: int,
    n: int,
    k: int,
    blocks: tuple[int, int, int],
    transposed: bool = False,
    warps: int = 4,
    stages: int = 3,
    a_transposed: bool = False,
) -> Case:
    def make(rng):
        a = operand(rng, dtype, *((k, m) if a_transposed else (m, k)))
        b = operand(rng, dtype, *((n, k) if transposed else (k, n)))
        c = poisoned(m, n, dtype=np.float32 if dtype == "float32" else np.float16)
        return {
            "a": a,
            "b": b,
            "c": bf16(c) if dtype == "bf16" else c,
            "M": m,
            "N": n,
            "K": k,
            "stride_am": 1 if a_transposed else k,
            "stride_ak": m if a_transposed else 1,
            "stride_bk": 1 if transposed else n,
            "stride_bn": k if transposed else 1,
            "stride_cm": n,
            "stride_cn": 1,
        }

    return Case(
        name,
        "matmul.py",
        "matmul_kernel",
        make,
        lambda a, b, **_: {
            "c": (numbers(a).T if a_transposed else numbers(a)) @ (numbers(b).T if transposed else numbers(b))
        },
        {"BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "BLOCK_K": blocks[2], "GROUP_M": 4},
        grid=(-(-m // blocks[0]) * -(-n // blocks[1]),),
        num_warps=warps,
        num_stages=stages,
    )


def _clustered(
    name: str,
    programs: int,
    size: int,
    transposed: bool,
    persistent: bool,
    columns: int = 208,
    k: int = 336,
    stages: int = 4,
) -> Case:
    """Clusters whose programs share the tiles of B; the last one has none of C's rows."""
    case = _matmul(
        name, "float16", 64 * (programs - 1) - 8, columns, k, (64, 128, 64), transposed, stages=stages
    )
    grid = (2 * size,) if persistent else (programs, -(-columns // 128))
    constexprs = {**case.constexprs, "GROUP_M": 2, "PERSISTENT": persistent, "cluster_size": size}
    return replace(case, constexprs=constexprs, grid=grid, cluster_size=size)


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def _linear(name: str, dtype: str, m: int, n: int, k: int, activation: str) -> Case:
    blocks = 64, 64, 32

    def make(rng):
        arrays = [rng.normal(size=shape) / 4 for shape in ((m, k), (n, k), (n,))]
        a, b, bias = (bf16(array) if dtype == "bf16" else array.astype(dtype) for array in arrays)
        c = poisoned(m, n, dtype=np.float16)
        return {
            "a": a,
            "b": b,
            "bias": bias,
            "c": bf16(c) if dtype == "bf16" else c,
            "M": m,
            "N": n,
            "K": k,
            "stride_am": k,
            "stride_ak": 1,
            "stride_bk": 1,
            "stride_bn": k,
            "stride_cm": n,
            "stride_cn": 1,
            "activation": [*ACTIVATIONS].index(activation),
        }

    return Case(
        name,
        "linear.py",
        "linear_kernel",
        make,
        lambda a, b, bias, **_: {"c": ACTIVATIONS[activation](numbers(a) @ numbers(b).T + numbers(bias))},
        {"BLOCK_M": blocks[0], "BLOCK_N": blocks[1], "BLOCK_K": blocks[2], "GROUP_M": 4},
        grid=(-(-m // blocks[0]) * -(-n // blocks[1]),),
        tolerance=2e-2 if dtype == "bf16" else 4e-3,
    )


CASES = [
    _linear("linear", "float16", 70, 136, 80, "none"),
    _linear("linear_relu", "float16", 64, 64, 64, "relu"),
    _linear("linear_gelu", "float16", 100, 72, 40, "gelu"),
    _linear("linear_silu", "bf16", 5, 200, 136, "silu"),
    _matmul("matmul_fp16", "float16", 128, 192, 128, (64, 64, 32)),
    _matmul("matmul_bf16", "bf16", 96, 64, 64, (32, 64, 32)),
    _matmul("matmul_tf32", "float32", 64, 128, 96, (64, 64, 32)),
    _matmul("matmul_ragged", "float16", 77, 50, 83, (64, 32, 32)),
    _matmul("matmul_transposed", "float16", 128, 128, 128, (64, 64, 64), True),
    _matmul("matmul_transposed_tf32", "float32", 70, 64, 48, (64, 64, 16), True, stages=4),
    _matmul("matmul_large_tile", "float16", 256, 256, 192, (128, 128, 64), warps=8),
    _matmul("matmul_256_columns", "float16", 256, 512, 448, (128, 256, 64), warps=8),
    _matmul("matmul_256_columns_transposed", "bf16", 128, 256, 320, (128, 256, 64), True, warps=8),
    _matmul("matmul_four_stages", "float16", 256, 256, 576, (128, 128, 64), warps=4, stages=4),
    _matmul("matmul_two_stages", "bf16", 128, 256, 320, (128, 128, 64), warps=4, stages=2),
    _matmul("matmul_one_stage", "float16", 128, 128, 192, (128, 128, 64), warps=4, stages=1),
    _matmul("matmul_warps_along_n", "float16", 64, 512, 256, (64, 256, 64), warps=8),
    _matmul("matmul_deep_steps", "float16", 128, 128, 512, (64, 64, 128), True, stages=4),
    _matmul("matmul_shallow_steps", "float16", 128, 128, 160, (128, 64, 16), stages=4),
    _matmul("matmul_a_transposed", "float16", 256, 128, 192, (128, 64, 32), a_transposed=True),
    _matmul(
        "matmul_both_transposed", "bf16", 256, 256, 256, (256, 128, 64), True, warps=8, a_transposed=True
    ),
    _matmul("matmul_few_rows", "float16", 5, 112, 400, (16, 64, 128), stages=4),
    _matmul("matmul_few_rows_transposed", "bf16", 16, 64, 320, (16, 64, 64), True, stages=4),
    _matmul("matmul_tf32_deep", "float32", 120, 272, 208, (128, 256, 32), warps=8, stages=4),
    _clustered("matmul_cluster", 4, 2, False, False),
    _clustered("matmul_cluster_transposed", 4, 4, True, False),
    _clustered("matmul_cluster_persistent", 6, 2, True, True),
]
