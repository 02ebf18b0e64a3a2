"""The shipped operators `matmul`, `matmul_e4m3` and `linear` divide tiles along K, or take those of the transpose, where their
models say that other tiles take longer: so a model has to know which tile a launch takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.aot.manifest.expand import Variant, expand, expand_config
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Manifest, Value
from kbuild.compiler.frontend import build_module
from kbuild.compiler.interp import run
from tests.emulator.driver.costs.calls import Rival, taken, value_of

ROOT = Path(__file__).resolve().parents[3]
ROWS = (1, 20, 40, 64, 100, 128, 136, 200, 256, 300, 512, 520, 704, 1000, 2048, 2400, 3000, 4096, 8192)
RIVALS: dict[tuple[str, str], list[Rival]] = {}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return load(ROOT / "kernels.toml", "kernels.toml")


def taken_by(manifest: Manifest, name: str, values: dict[str, int], order: str) -> Variant:
    """The variant of a product on sm_90, both of whose matrices have rows, or B columns, one after another."""
    found = taken(rivals_of(manifest, name, order), values, values["num_sms"])
    assert found is not None
    return found


def rivals_of(manifest: Manifest, name: str, order: str) -> list[Rival]:
    """The variants that such a product may take, in their order; found once, for there are many products."""
    if (name, order) not in RIVALS:
        kernel = manifest.kernel(name)
        specialization = next(one for one in kernel.specializations if one.name in (order, ""))
        point: tuple[tuple[str, Value], ...] = (("dtype", "bf16"),)
        facts: dict[str, Value] = {**dict(point), "arch": "sm_90", "specialize": specialization.name}
        RIVALS[name, order] = [
            Rival.of(variant)
            for config in kernel.configs
            if config.when.holds(facts)
            for variant in expand_config(kernel, "sm_90", point, config, [specialization])
        ]
    return RIVALS[name, order]


def modelled(manifest: Manifest, name: str, values: dict[str, int]) -> dict[str, int]:
    """What an operator computes for matrices that begin at multiples of 16 bytes."""
    op = manifest.kernel(name).op
    assert op is not None
    known = dict(values) | {"rows": values["M"], "given__bias": 1, "aligned__bias": 1}
    for left, right, m in (("a", "b", "M"), ("x", "w", "rows")):
        known |= {f"stride__{right}__K": values["stride_bk"], f"stride__{right}__N": values["stride_bn"]}
        known |= {f"stride__{left}__{m}": values["K"], f"stride__{left}__K": 1}
        known |= {f"aligned__{left}": 1, f"aligned__{right}": 1}
    for value in op.values:
        known[value.name] = value_of(value.expression.plain, known, known["num_sms"])
    return known


def axis_of(manifest: Manifest, name: str, axis: str) -> tuple[Value, ...]:
    """The values of an axis of a kernel's matrix."""
    return next(one.values for one in manifest.kernel(name).matrix if one.name == axis)


@pytest.mark.parametrize("num_sms", [132, 78])
@pytest.mark.parametrize(
    ("name", "order", "least"),
    [
        ("matmul", "row_major", 14),
        ("matmul", "column_major", 20),
        ("matmul_fp8", "column_major", 14),
        ("linear", "column_major", 20),
    ],
)
def test_the_model_prices_the_tile_that_is_taken(
    manifest: Manifest, name: str, order: str, least: int, num_sms: int
) -> None:
    source = random.Random(num_sms)
    seen, ways = set(), set()
    for _ in range(600):
        m = source.choice(ROWS)
        n, k = 64 * source.randint(1, 700), 128 * source.randint(1, 150)
        strides = (n, 1) if order == "row_major" else (1, k)
        values = {
            "M": m,
            "N": n,
            "K": k,
            "num_sms": num_sms,
            "stride_bk": strides[0],
            "stride_bn": strides[1],
        }
        model = modelled(manifest, name, values)
        is_across, parts, tile = model["across"], model["parts"], (model["m"], model["n"])
        ways.add((is_across, parts > 1))
        if parts > 1:
            # Their launch says which tile it takes; those of a layer without whole tiles are those of a product.
            split = "matmul_across_split" if name == "linear" else f"{name}_across_split"
            assert not is_across or tile[0] in axis_of(manifest, split, "BLOCK_N"), values
            if name == "linear" and not is_across and model["tiles"] > model["last"]:
                assert tile == (128, 256), values
            continue
        if is_across:
            values |= {"M": n, "N": m, "stride_bk": 1, "stride_bn": k}
        variant = taken_by(manifest, f"{name}_across" if is_across else name, values, order)
        chosen: dict[str, Any] = dict(variant.constexprs)
        assert (chosen["BLOCK_M"], chosen["BLOCK_N"]) == (tile[::-1] if is_across else tile), values
        seen.add((is_across, tile))
        if variant.cost and variant.options.cluster_size == 1:  # The model knows of no clusters.
            assert model["work"] == value_of(variant.cost, values, num_sms), values
    assert len(seen) >= least, "most tiles are the best of some product"
    assert ways == {(0, False), (0, True), (1, False), (1, True)}


@pytest.mark.parametrize("order", ["row_major", "column_major"])
@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (200, 5120, 8192, (72, 128)),
        (300, 5120, 13824, (104, 128)),
        (384, 5120, 13824, (128, 128)),
        (520, 7168, 2048, (136, 256)),
        (300, 14336, 4096, (152, 256)),
    ],
)
def test_few_rows_are_tiles_of_the_transpose_with_little_beyond_them(
    manifest: Manifest, m: int, n: int, k: int, tile: tuple[int, int], order: str
) -> None:
    """Three rows of 128 have as many tiles as three of 104, for 300 rows as for 384, for which 104 are too few."""
    strides = (n, 1) if order == "row_major" else (1, k)
    values = {"M": m, "N": n, "K": k, "num_sms": 132, "stride_bk": strides[0], "stride_bn": strides[1]}
    model = modelled(manifest, "matmul", values)
    assert (model["m"], model["n"]) == tile


def test_what_an_operator_launches_is_there_on_each_architecture(manifest: Manifest) -> None:
    """Its model does not know of which a device is."""
    built: dict[str, set[str]] = {}
    for variant in expand(manifest).variants:
        built.setdefault(variant.kernel, set()).add(variant.arch)
    lacking = [
        (kernel.name, launch.kernel)
        for kernel in manifest.kernels
        if kernel.op is not None
        for launch in kernel.op.launches
        if not built[kernel.name] <= built[launch.kernel]
    ]
    assert not lacking


@pytest.mark.parametrize("persistent", [False, True])
def test_the_last_tile_begins_earlier_where_it_has_a_program_of_its_own(persistent: bool) -> None:
    """Of 21 rows in tiles of 16, the second's program makes the last 16; one of several tiles, those from 16 on.  Of 24
    columns in one tile of 32, all."""
    sizes = {"M": 21, "N": 24, "K": 16, "stride_am": 16, "stride_ak": 1, "stride_bk": 24, "stride_bn": 1}
    sizes |= {"stride_cm": 24, "stride_cn": 1}
    source = np.random.default_rng(5)
    a, b = source.standard_normal((21, 16), np.float32), source.standard_normal((16, 24), np.float32)
    c = np.full((21, 24), np.nan, np.float32)
    tiles = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 8, "PERSISTENT": persistent}
    types = dict.fromkeys("abc", "*fp32") | dict.fromkeys(sizes, "i32")
    module = build_module(f"{ROOT / 'kernels/matmul.py'}:matmul_kernel", types, tiles)
    run(module, {"a": a, "b": b, "c": c, **sizes}, (2,), programs=[(1, 0, 0)])
    first = 16 if persistent else 5
    assert np.isnan(c[:first]).all()
    assert np.allclose(c[first:], (a @ b)[first:], atol=1e-2)
