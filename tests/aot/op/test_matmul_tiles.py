"""The shipped operator `matmul` divides tiles along K where its model says that whole ones take longer: so the model has to
know which tile the launch takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.manifest.expressions import evaluate, parse
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Config, Kernel, Value

ROOT = Path(__file__).resolve().parents[3]
ROWS = {
    (16, 64, False): 74,
    (64, 64, False): 100,
    (64, 128, False): 154,
    (128, 160, False): 388,
    (128, 192, False): 480,
    (128, 192, True): 480,
    (128, 256, True): 620,
    (128, 128, True): 330,
    (64, 256, True): 342,
}
COLUMNS = ROWS | {
    (128, 144, False): 350,
    (256, 144, True): 735,
    (256, 160, True): 800,
    (256, 176, True): 870,
}
"""Nanoseconds of a step of 64 elements of K, by rows and columns of a tile, and whether programs are persistent: where
rows, or columns, of B are contiguous."""


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return next(one for one in load(ROOT / "kernels.toml", "kernels.toml").kernels if one.name == "matmul")


def taken(kernel: Kernel, values: dict[str, int], order: str) -> Config:
    """The configuration of a product of fp16 matrices on sm_90, both of which have rows, or B columns, one after
    another."""
    point: dict[str, Value] = {"arch": "sm_90", "dtype": "fp16", "specialize": order, "BLOCK_K": None}
    return next(
        config
        for config in kernel.configs
        if config.when.holds(point)
        and all(evaluate(parse(guard.expression, values, ""), values) for guard in config.guards)
    )


def whole_tiles(kernel: Kernel, values: dict[str, int]) -> int:
    """What the model says that the steps of whole tiles take, in nanoseconds."""
    assert kernel.op is not None
    known = dict(values) | {"stride__b__K": values["stride_bk"], "stride__b__N": values["stride_bn"]}
    for value in kernel.op.values:
        known[value.name] = evaluate(parse(value.expression.plain, known, ""), known)
        if value.name == "work":
            return known["work"]
    raise AssertionError("the model has no `work`")


@pytest.mark.parametrize("num_sms", [132, 78])
@pytest.mark.parametrize(("order", "steps"), [("row_major", ROWS), ("column_major", COLUMNS)])
def test_the_model_prices_the_tile_that_is_taken(
    kernel: Kernel, order: str, steps: dict[tuple[int, int, bool], int], num_sms: int
) -> None:
    source = random.Random(num_sms)
    seen = set()
    for _ in range(2000):
        m = source.choice((1, 20, 40, 64, 100, 128, 200, 256, 512, 704, 1000, 2048, 3000, 4096, 8192))
        n, k = 64 * source.randint(1, 700), 64 * source.randint(1, 300)
        strides = (n, 1) if order == "row_major" else (1, k)
        values = {
            "M": m,
            "N": n,
            "K": k,
            "stride_bk": strides[0],
            "stride_bn": strides[1],
            "num_sms": num_sms,
        }
        chosen: dict[str, Any] = dict(taken(kernel, values, order).constexprs)
        tile = chosen["BLOCK_M"], chosen["BLOCK_N"], chosen.get("PERSISTENT", False)
        seen.add(tile)
        tiles = -(-m // tile[0]) * -(-n // tile[1])
        if tile == (128, 128, False):
            step = max(277, 25 * tiles // 8)  # As many as read through L2 as fast as that goes.
        else:
            step = steps[tile] * -(-tiles // num_sms)
        if tile == (64, 64, False) and m > 64:
            step = 110
        assert whole_tiles(kernel, values) == step * (k // 64), (values, tile)
    assert seen == {*steps, (128, 128, False)}
