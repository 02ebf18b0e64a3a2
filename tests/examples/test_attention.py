"""examples/attention: attention and decoding with grouped-query heads, against softmax(q · kᵀ) · v in float64."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.emulator.driver import FakeDriver
from tests.examples.conftest import EXAMPLES, built, copy_of, installed
from tests.launcher.dlpack import DLPackArray

RANDOM = np.random.default_rng(6)
ERROR = 2e-3
"""What is allowed of fp16."""
HEADS = "the number of heads of q has to be a multiple of that of k and v"
DLPACK_BFLOAT, DLPACK_CUDA, DLPACK_OFFSET = 4, 2, 16
"""Codes of type and device, and the bytes that every DLPackArray says to come before its elements."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, FakeDriver]]:
    project = copy_of("attention", tmp_path_factory)
    with installed(built(project), project, "grouped_attention") as package:
        yield package


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float16)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: Any = True, scale: float | None = None
) -> np.ndarray:
    """Attention in float64, where queries attend to the keys that they have `seen`; zeros where these are none."""
    k, v = (np.repeat(array.astype(np.float64), q.shape[1] // array.shape[1], axis=1) for array in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e300))
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300) @ v


def is_near(got: Any, expected: np.ndarray, error: float = ERROR) -> bool:
    values = got.copy_to_host() if hasattr(got, "copy_to_host") else got
    assert values.shape == expected.shape
    return bool(abs(values - expected).max() <= error)


def by_position(driver: FakeDriver, values: np.ndarray, gap: int = 0) -> Any:
    """An array (Z, H, N, D) that lies in memory as (Z, N, H, D + gap)."""
    z, h, n, d = values.shape
    room = np.full((z, n, h, d + gap), np.nan, np.float16)
    room[..., :d] = values.transpose(0, 2, 1, 3)
    strides = [stride // room.itemsize for stride in room.strides]
    return driver.array(room).view(values.shape, (strides[0], strides[2], strides[1], 1))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries", "keys", "head_dim", "causal"),
    [
        (4, 2, 70, 70, 64, True),
        (3, 1, 5, 130, 128, True),
        (2, 2, 80, 20, 64, True),  # The first 60 queries see no key.
        (2, 2, 7, 65, 128, False),
        (2, 1, 3, 0, 64, False),
    ],
)
def test_attention(package, heads, kv_heads, queries, keys, head_dim, causal) -> None:
    grouped_attention, driver = package
    q, k, v = (numbers(2, h, n, head_dim) for h, n in [(heads, queries), (kv_heads, keys), (kv_heads, keys)])
    out = grouped_attention.attention(*map(driver.array, (q, k, v)), causal=causal)
    seen = np.tri(queries, keys, keys - queries, dtype=bool) if causal else True
    assert out.dtype == np.float16 and is_near(out, attention(q, k, v, seen))


@pytest.mark.parametrize(("gap", "block"), [(0, 64), (8, 64), (3, 32)])
def test_tensors_may_have_any_strides(package, capsys, gap, block) -> None:
    """Rows at multiples of 16 bytes take the fast variant, which has larger blocks."""
    grouped_attention, driver = package
    q, k, v = numbers(2, 4, 6, 64), numbers(2, 2, 70, 64), numbers(2, 2, 70, 64)
    arrays = [by_position(driver, values, gap) for values in (q, k, v)]
    memory = driver.empty((2, 6, 4, 64), np.float16)
    out = memory.view((2, 4, 6, 64), (6 * 4 * 64, 64, 4 * 64, 1))
    grouped_attention.attention(*arrays, causal=True, scale=-0.3, out=out)
    seen = np.tri(6, 70, 64, dtype=bool)
    assert is_near(memory.copy_to_host().transpose(0, 2, 1, 3), attention(q, k, v, seen, -0.3))

    first = arrays[0].view((2, 4, 64), (6 * 4 * (64 + gap), 64 + gap, 1))
    token = grouped_attention.decode(first, *arrays[1:])
    assert is_near(token, attention(q[:, :, :1], k, v)[:, :, 0])
    for operator in ("attention", "decode"):
        q = arrays[0] if operator == "attention" else first
        grouped_attention.explain(operator, q, *arrays[1:])
        assert re.search(f"BLOCK_N={block} .*: taken", capsys.readouterr().out)


class BfloatArray(DLPackArray):
    """An array (…) of uint16 as one of bf16, which numpy lacks, of a library with DLPack."""

    def __init__(self, array: Any, shape: tuple[int, ...]) -> None:
        super().__init__(DLPACK_BFLOAT, 16, (DLPACK_CUDA, 0), array.pointer - DLPACK_OFFSET, shape=shape)
        self.device, self.__array_namespace__ = array.device, array.__array_namespace__


def test_bf16(package) -> None:
    """Its numbers are the upper halves of those of fp32."""
    grouped_attention, driver = package
    shapes = [(2, 9, 64), (1, 70, 64), (1, 70, 64)]
    bits = [RANDOM.standard_normal(shape, np.float32).view(np.uint32) & 0xFFFF0000 for shape in shapes]
    halves = [driver.array((array >> 16).astype(np.uint16)) for array in bits]
    q, k, v = (BfloatArray(array, (1, *array.shape)) for array in halves)
    first = driver.array(halves[0].copy_to_host()[:, 0])
    out, token = driver.empty((2, 9, 64), np.uint16), driver.empty((2, 64), np.uint16)
    grouped_attention.attention(q, k, v, out=BfloatArray(out, (1, 2, 9, 64)))
    grouped_attention.decode(BfloatArray(first, (1, 2, 64)), k, v, out=BfloatArray(token, (1, 2, 64)))
    values = [array.view(np.float32)[None] for array in bits]
    expected = attention(values[0], values[1], values[2])[0]
    for got, wanted in (out, expected), (token, expected[:, 0]):
        assert is_near((got.copy_to_host().astype(np.uint32) << 16).view(np.float32), wanted, 8 * ERROR)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_decode_reads_each_sequence_up_to_its_length(package, head_dim) -> None:
    """What lies behind is NaN here; lengths that are out of range end where the cache does."""
    grouped_attention, driver = package
    lengths = np.array([1, 200, 130, 0, 999, -5], np.int32)
    q, k, v = numbers(6, 4, head_dim), numbers(6, 2, 200, head_dim), numbers(6, 2, 200, head_dim)
    seen = np.arange(200) < lengths[:, None, None, None]
    expected = attention(q[:, :, None], k, v, seen)[:, :, 0]
    for cache in (k, v):
        cache[np.broadcast_to(~seen[:, :, 0], cache.shape[:3])] = np.nan
    out = grouped_attention.decode(*map(driver.array, (q, k, v, lengths)))
    assert is_near(out, expected) and (out.copy_to_host()[[3, 5]] == 0).all()
    assert [launch.grid for launch in driver.launches[-2:]] == [(4, 2, 6), (24, 1, 1)]


def test_decode_of_a_long_cache_with_many_heads_on_one(package) -> None:
    """More heads than a tile has, and more splits than the join adds at a time."""
    grouped_attention, driver = package
    q, k, v = numbers(1, 18, 64), numbers(1, 1, 1100, 64), numbers(1, 1, 1100, 64)
    out = grouped_attention.decode(*map(driver.array, (q, k, v)), scale=0.5)
    assert is_near(out, attention(q[:, :, None], k, v, scale=0.5)[:, :, 0])
    assert driver.launches[-2].grid == (18, 2, 1)


def test_tensors_without_elements(package) -> None:
    grouped_attention, driver = package
    q, k = driver.empty((0, 4, 64), np.float16), driver.empty((0, 2, 10, 64), np.float16)
    assert grouped_attention.decode(q, k, k).shape == (0, 4, 64)
    q, k = driver.empty((2, 4, 64), np.float16), driver.empty((2, 2, 0, 64), np.float16)
    assert (grouped_attention.decode(q, k, k).copy_to_host() == 0).all()


@pytest.mark.parametrize(
    ("shape", "dtype", "lengths", "error", "message"),
    [
        ((2, 3, 64), np.float16, np.int32, ValueError, HEADS),
        ((2, 4, 96), np.float16, np.int32, ValueError, "heads have to have 64 or 128 elements"),
        ((2, 4, 64), np.float32, np.int32, TypeError, "q holds fp32, and the operator takes fp16 or bf16"),
        ((2, 4, 64), np.float16, np.int64, TypeError, "lengths holds i64, and the operator takes i32"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(package, shape, dtype, lengths, error, message) -> None:
    grouped_attention, driver = package
    q, k = driver.empty(shape, dtype), driver.empty((2, 2, 10, shape[-1]), dtype)
    before = len(driver.launches)
    with pytest.raises(error) as caught:
        grouped_attention.decode(q, k, k, driver.empty(2, lengths))
    assert str(caught.value) == f"decode(): {message}"
    if "lengths" not in message:
        with pytest.raises(error) as caught:
            grouped_attention.attention(driver.empty((*shape[:2], 5, shape[2]), dtype), k, k)
        assert str(caught.value) == f"attention(): {message}"
    assert len(driver.launches) == before


def test_the_variants_are_few() -> None:
    assert len(expand(load(EXAMPLES / "attention/kernels.toml")).variants) == 20
