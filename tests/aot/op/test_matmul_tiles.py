"""The shipped operator `matmul` divides tiles along K where its model says that whole ones take longer: so the model has to
know which tile the launch takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.manifest.expressions import Expression, evaluate, parse
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Config, Kernel, Value

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return next(one for one in load(ROOT / "kernels.toml", "kernels.toml").kernels if one.name == "matmul")


def cost_of(config: Config, values: dict[str, int]) -> int:
    """What the manifest says that a configuration takes, in nanoseconds."""
    return evaluate(parse(config.cost, values, ""), values)


def taken(kernel: Kernel, values: dict[str, int], order: str) -> Config:
    """The configuration of a product of fp16 matrices on sm_90, both of which have rows, or B columns, one after
    another."""
    point: dict[str, Value] = {"arch": "sm_90", "dtype": "fp16", "specialize": order, "BLOCK_K": None}
    first, *others = (
        config
        for config in kernel.configs
        if config.when.holds(point)
        and all(evaluate(parse(guard.expression, values, ""), values) for guard in config.guards)
    )
    if not first.cost:
        return first
    return min((first, *(each for each in others if each.cost)), key=lambda each: cost_of(each, values))


def modelled(kernel: Kernel, values: dict[str, int]) -> dict[str, int]:
    """What the operator computes where nothing can be divided, for A begins anywhere."""
    assert kernel.op is not None
    known = dict(values) | {"stride__b__K": values["stride_bk"], "stride__b__N": values["stride_bn"]}
    known |= {"stride__a__M": values["K"], "stride__a__K": 1, "aligned__a": 0, "aligned__b": 1}
    for value in kernel.op.values:
        known[value.name] = evaluate(Expression(value.expression.plain, ()), known)
    return known


@pytest.mark.parametrize("num_sms", [132, 78])
@pytest.mark.parametrize("order", ["row_major", "column_major"])
def test_the_model_prices_the_tile_that_is_taken(kernel: Kernel, order: str, num_sms: int) -> None:
    source = random.Random(num_sms)
    seen = set()
    for _ in range(800):
        m = source.choice((1, 20, 40, 64, 100, 128, 200, 256, 512, 704, 1000, 2048, 3000, 4096, 8192))
        n, k = 64 * source.randint(1, 700), 64 * source.randint(1, 300)
        strides = (n, 1) if order == "row_major" else (1, k)
        values = {"M": m, "N": n, "K": k, "num_sms": num_sms, "stride_bk": strides[0], "stride_bn": strides[1]}
        config = taken(kernel, values, order)
        chosen: dict[str, Any] = dict(config.constexprs)
        model = modelled(kernel, values)
        tile = (model["m"], model["n"])
        assert (chosen["BLOCK_M"], chosen["BLOCK_N"]) == tile, values
        assert model["parts"] == 1 and not model["across"]
        seen.add(tile)
        if config.cost and not (tile == (128, 128) and not chosen.get("PERSISTENT", False)):
            assert model["work"] == cost_of(config, values), values
    assert len(seen) >= {"row_major": 10, "column_major": 14}[order], "most tiles are the best of some product"
