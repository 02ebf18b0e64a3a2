"""From the arguments of a call to the numbers it computes: wheel, launcher, driver, emulated kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from tests.emulator.driver.conftest import World

Make = Callable[..., World]


def test_vector_add_on_both_devices(world: Make) -> None:
    here = world("sm_90", "sm_80")
    for device in (0, 1):
        for dtype in (numpy.float32, numpy.float16):
            x, y = numpy.arange(300, dtype=dtype), numpy.full(300, 2, dtype)
            out = here.driver.empty(300, dtype, device)
            here.package.launch.vector_add(
                here.driver.array(x, device), here.driver.array(y, device), out, 300
            )
            numpy.testing.assert_array_equal(out.copy_to_host(), x + 2)
            launch = here.driver.launches[-1]
            assert (launch.entry, launch.device) == ("vector_add_kernel", device)
            assert (launch.grid, launch.block, launch.shared) == ((2, 1, 1), (128, 1, 1), 0)
    assert here.driver.loads == {0: 2, 1: 2}


@pytest.mark.parametrize(("device", "is_early"), [(0, True), (1, False)])
def test_a_launch_that_begins_early(world: Make, device: int, is_early: bool) -> None:
    """The factors are loaded before the first launch has done anything, its sums after it has ended: so it
    does not see the factors that a launch before it writes.  On sm_80 launches follow each other
    whole."""
    here = world("sm_90", "sm_80", streams="late")
    ones, sums, out = (
        here.driver.array(numpy.ones(64, "f4"), device),
        *(here.driver.empty(64, "f4", device) for _ in range(2)),
    )
    here.package.launch.vector_add(ones, ones, sums, 64)
    here.package.scale_late(sums, ones, out)
    assert here.driver.launches[-1].may_begin_early == is_early
    assert set(out.copy_to_host()) == {2}
    here.package.launch.vector_add(sums, sums, sums, 64)
    here.package.scale_late(sums, sums, out)
    assert set(out.copy_to_host()) == {4 * (2 if is_early else 4)}


def test_softmax(world: Make) -> None:
    here = world()
    x = numpy.random.default_rng(1).normal(size=(3, 208)).astype(numpy.float32)
    out = here.driver.empty((3, 200), "f4")
    here.package.launch.softmax(here.driver.array(x), out, 208, 200, 200, 3)
    exponentials = numpy.exp(x[:, :200].astype(numpy.float64))
    numpy.testing.assert_allclose(
        out.copy_to_host(), exponentials / exponentials.sum(axis=1, keepdims=True), rtol=2e-6
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_dots_with_tma_and_without(world: Make, arch: str) -> None:
    """On Hopper the tiles are loaded by tensor maps, which the launcher has the driver encode."""
    here = world(arch, checks="lenient", schedule="random(1)")
    random = numpy.random.default_rng(2)
    a, b = (random.integers(-2, 3, (size, 96)).astype(numpy.float16) for size in (70, 75))
    c = here.driver.empty((70, 80), "f2")
    here.package.launch.matmul(here.driver.array(a), here.driver.array(b), c, 70, 75, 90, 96, 96, 80)
    expected = a[:, :90].astype(numpy.float32) @ b[:, :90].T.astype(numpy.float32)
    numpy.testing.assert_array_equal(c.copy_to_host()[:, :75], expected.astype(numpy.float16))
    encoded = [call for call in here.driver.calls if call.name == "cuTensorMapEncodeTiled"]
    assert len(encoded) == (2 if arch == "sm_90" else 0)
    assert {len(argument) for argument in here.driver.launches[-1].arguments} == (
        {4, 8, 128} if arch == "sm_90" else {4, 8}
    )


def attention(
    q: numpy.ndarray, k: numpy.ndarray, v: numpy.ndarray, scale: float, causal: bool
) -> numpy.ndarray:
    """The exact result, in float64."""
    scores = numpy.einsum("zhmd,zhnd->zhmn", q.astype(numpy.float64), k.astype(numpy.float64)) * scale
    if causal:
        scores = numpy.where(numpy.tri(*scores.shape[-2:], dtype=bool), scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    return numpy.einsum(
        "zhmn,zhnd->zhmd", weights / weights.sum(axis=-1, keepdims=True), v.astype(numpy.float64)
    )


@pytest.mark.parametrize("causal", [True, False])
def test_attention(world: Make, causal: bool) -> None:
    here = world("sm_90", "sm_80")
    random = numpy.random.default_rng(3)
    shape = (1, 2, 70, 64)
    q, k, v = (random.normal(size=shape).astype(numpy.float16) for _ in range(3))
    for device in (0, 1):
        out, lse = here.driver.empty(shape, "f2", device), here.driver.empty(shape[:3], "f4", device)
        arrays = [here.driver.array(values, device) for values in (q, k, v)]
        strides = (2 * 70 * 64, 70 * 64, 64)
        here.package.attention(
            *arrays, out, lse, 0.125, *strides * 4, 2, 2, 70, 70, 1, HEAD_DIM=64, IS_CAUSAL=causal
        )
        numpy.testing.assert_allclose(out.copy_to_host(), attention(q, k, v, 0.125, causal), atol=4e-3)
