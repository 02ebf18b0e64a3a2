"""Functions of libdevice that are written in the language: against values with more digits than they have, with and
without the PTX that becomes of them, and where they have no value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from tests.compiler.lower.host import ulps
from tests.emulator.artifacts import left_in

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Values:
    """What is known of one function."""

    name: str
    bounds: dict[type, float]
    x: np.ndarray
    exact: np.ndarray


def _read() -> Iterator[Values]:
    text = (Path(__file__).parent / "special_values.txt").read_text()
    blocks: list[list[list[str]]] = []
    for words in (line.split() for line in text.splitlines() if not line.startswith("#")):
        if len(words) == 3:
            blocks.append([])
        blocks[-1].append(words)
    for (name, double, single), *rows in blocks:
        bounds: dict[type, float] = {np.float32: float(single)}
        if double != "None":
            bounds[np.float64] = float(double)
        x, exact = (
            np.array([row[0] for row in rows], float),
            np.array([row[1] for row in rows], np.longdouble),
        )
        yield Values(name, bounds, x, exact)


# In fp32 the PTX is that of fp64, but for conversions: once is enough.
VALUES = [
    (values, dtype, arch)
    for values in _read()
    for dtype in values.bounds
    for arch in ("", "sm_80", "sm_90")
    if (dtype, arch) != (np.float32, "sm_80")
]
SIZE = 32


@kbuild.jit
def apply(x, out, name: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, getattr(tl.extra.libdevice, name)(tl.load(x + o)))


@kbuild.jit
def apply_both(x, y, out, name: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, getattr(tl.extra.libdevice, name)(tl.load(x + o), tl.load(y + o)))


@pytest.mark.parametrize(
    ("values", "dtype", "arch"),
    VALUES,
    ids=[f"{values.name}-{dtype.__name__}-{arch or 'interpreted'}" for values, dtype, arch in VALUES],
)
def test_values_with_more_digits(values: Values, dtype: type, arch: str) -> None:
    with np.errstate(over="ignore"):
        fits = values.x.astype(dtype) == values.x
    x, exact = np.resize(values.x[fits], SIZE).astype(dtype), np.resize(values.exact[fits], SIZE)
    out = np.zeros(SIZE, dtype)
    if not arch:
        with np.errstate(all="ignore"):
            apply.interpret[1](x, out, name=values.name, N=SIZE)
    else:
        type_ = "*fp32" if dtype is np.float32 else "*fp64"
        made = kbuild.compile(
            apply,
            signature={"x": type_, "out": type_},
            constexprs={"name": values.name, "N": SIZE},
            target=arch,
            stop="ptx",
            num_warps=1,
        )
        out = left_in("out", made, {"x": x, "out": out}, checks="")
    error = ulps(out, exact)
    worst = int(error.argmax())
    bound = values.bounds[dtype] + 1e-6
    assert error[worst] <= bound, f"{error[worst]:.2f} ulp at {x[worst]!r}: {out[worst]!r}"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("erfinv", [0, 1, -1, 1.5, NAN], [0, INF, -INF, NAN, NAN]),
        ("erfcinv", [0, 1, 2, -1, NAN], [INF, 0, -INF, NAN, NAN]),
        ("normcdfinv", [0, 0.5, 1, 2, NAN], [-INF, 0, INF, NAN, NAN]),
        ("erfcx", [0, INF, -INF, -30, NAN], [1, 0, INF, INF, NAN]),
        ("erfc", [INF, -INF, 0, NAN], [0, 2, 1, NAN]),
        ("lgamma", [1, 2, 0, -3, INF, -INF, NAN], [0, 0, INF, INF, INF, INF, NAN]),
        ("tgamma", [0, -0.0, -2, 5, 200, INF, NAN], [INF, -INF, NAN, 24, INF, INF, NAN]),
        ("cyl_bessel_i0", [0, INF, -INF, NAN], [1, INF, INF, NAN]),
        ("cyl_bessel_i1", [0, INF, -INF, NAN], [0, INF, -INF, NAN]),
        ("j0", [0, INF, -INF, NAN], [1, 0, 0, NAN]),
        ("j1", [0, INF, -INF, NAN], [0, 0, 0, NAN]),
        ("y0", [0, -1, INF, NAN], [-INF, NAN, 0, NAN]),
        ("y1", [0, -1, INF, NAN], [-INF, NAN, 0, NAN]),
        ("sinpi", [0, -0.0, 1, 2.5, -0.5, 1e30, INF, NAN], [0, -0.0, 0, 1, -1, 0, NAN, NAN]),
        ("cospi", [0, 1, 2.5, 0.25, 1e30, INF, NAN], [1, -1, 0, math.sqrt(0.5), 1, NAN, NAN]),
        ("ilogb", [1, 0.75, -8, 2.0**-140, 0, INF, NAN], [0, -1, 3, -140, -(2**31), 2**31 - 1, -(2**31)]),
        ("logb", [1, 0.75, -8, 2.0**-140, 0, -INF, NAN], [0, -1, 3, -140, -INF, INF, NAN]),
        ("cbrt", [8, -27, 0, -0.0, INF, NAN], [2, -3, 0, -0.0, INF, NAN]),
        ("rcbrt", [8, -8, 0, -0.0, INF, NAN], [0.5, -0.5, INF, -INF, 0, NAN]),
        ("rsqrt_rn", [4, 0, INF, -1, NAN], [0.5, INF, 0, NAN, NAN]),
        ("llround", [0.5, -2.5, 7.4], [1, -3, 7]),
        ("int2double_rn", [7, -3], [7, -3]),
        ("uint2double_rn", [7, 2.0**31], [7, 2.0**31]),
    ],
)
def test_where_functions_have_no_value_or_a_plain_one(
    name: str, x: list[float], expected: list[float], dtype: type
) -> None:
    given, out = np.resize(np.array(x), 8).astype(dtype), np.zeros(8, dtype)
    with np.errstate(all="ignore"):
        apply.interpret[1](given, out, name=name, N=8)
    wanted = np.resize(np.array(expected, float), 8).astype(dtype)
    np.testing.assert_allclose(out, wanted, rtol=1e-6 if dtype is np.float32 else 1e-15)
    if name in ("sinpi", "cbrt", "rcbrt"):
        assert (np.signbit(out) == np.signbit(wanted))[~np.isnan(wanted)].all(), "zero has a sign, too"


def far_apart(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of all exponents, every fourth pair with a quotient that is nearly a whole number and a half."""
    random = np.random.default_rng(2)
    most = 300 if dtype is np.float64 else 37
    x, y = (
        (random.standard_normal(256) * 10.0 ** random.uniform(-most, most, 256)).astype(dtype) for _ in "xy"
    )
    y[::4] = x[::4] / random.integers(1, 50, 64) * 2
    x[:10] = [INF, 0, NAN, 5, -3, 7, -0.0, 1, 0, np.finfo(dtype).smallest_subnormal]
    y[:10] = [1, 0, 1, INF, 2, 2, 3, 1, -1, -1]
    return x, y


def _remainder(x: float, y: float) -> float:
    try:
        return math.remainder(x, y)
    except ValueError:
        return NAN


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "right"), [("remainder", np.vectorize(_remainder, otypes=[float])), ("nextafter", np.nextafter)]
)
@pytest.mark.parametrize("emulated", [False, True], ids=["interpreted", "emulated"])
def test_exact_functions_of_two_numbers(name: str, right: Any, dtype: type, emulated: bool) -> None:
    x, y = far_apart(dtype)
    out = np.zeros(256, dtype)
    if emulated:
        type_ = "*fp32" if dtype is np.float32 else "*fp64"
        made = kbuild.compile(
            apply_both,
            signature={"x": type_, "y": type_, "out": type_},
            constexprs={"name": name, "N": 256},
            stop="ptx",
        )
        out = left_in("out", made, {"x": x, "y": y, "out": out}, checks="")
    else:
        with np.errstate(all="ignore"):
            apply_both.interpret[1](x, y, out, name=name, N=256)
    with np.errstate(all="ignore"):
        wanted = right(x, y).astype(dtype)
    np.testing.assert_array_equal(out, wanted)
    assert (np.signbit(out) == np.signbit(wanted))[~np.isnan(wanted)].all(), "zero has a sign, too"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["norm3d", "norm4d", "rnorm3d", "rnorm4d", "rhypot"])
def test_lengths_without_overflow(name: str, dtype: type) -> None:
    count = {"norm3d": 3, "rnorm3d": 3, "rhypot": 2}.get(name, 4)
    random = np.random.default_rng(6)
    largest = float(np.finfo(dtype).max)
    parts = (random.uniform(0.1, 1, (4, 8)) * [1e-30, 1, 3, 1e10, largest / 3, 0, INF, NAN]).astype(dtype)
    out = np.zeros(8, dtype)
    with np.errstate(all="ignore"):
        lengths.interpret[1](parts, out, name=name, COUNT=count)
        exact = np.sqrt((parts[:count].astype(np.longdouble) ** 2).sum(axis=0))
        exact = 1 / exact if name[0] == "r" else exact
    assert ulps(out, exact).max() <= 2


@kbuild.jit
def lengths(parts, out, name: tl.constexpr, COUNT: tl.constexpr):
    o = tl.arange(0, 8)
    a, b = tl.load(parts + o), tl.load(parts + 8 + o)
    c, d = tl.load(parts + 16 + o), tl.load(parts + 24 + o)
    function = getattr(tl.extra.libdevice, name)
    tl.store(
        out + o, function(a, b) if COUNT == 2 else function(a, b, c) if COUNT == 3 else function(a, b, c, d)
    )


ORDERS = np.array([0, 1, 2, 5, 20, 3, 7, 2], np.int32)
PLACES = np.array([2.5, 2.5, 0.5, 30.0, 10.0, -4.0, 100.0, 1e-3])
BESSEL_J = [
    *(
        -0.048383776468198,
        0.49709410246427405,
        0.03060402345868264,
        -0.14324029551207706,
        1.1513369247813398e-05,
        -0.43017147387562193,
        0.07017269098721272,
        1.2499998958333365e-07,
    ),
    *(),
]
BESSEL_Y = [
    *(
        0.4980703596152319,
        0.1459181379667858,
        -5.441370837174266,
        0.03162735928926443,
        -1597.483848269626,
        NAN,
        0.03817804831713343,
        -1273239.8630456675,
    ),
    *(),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bessel_functions_of_any_order(dtype: type) -> None:
    out, tolerance = np.zeros(8, dtype), 2e-7 if dtype is np.float32 else 1e-11
    with np.errstate(all="ignore"):
        apply_both.interpret[1](ORDERS, PLACES.astype(dtype), out, name="jn", N=8)
        np.testing.assert_allclose(
            out, BESSEL_J, rtol=10 * tolerance, atol=0 if dtype is np.float64 else 1e-12
        )
        apply_both.interpret[1](ORDERS, PLACES.astype(dtype), out, name="yn", N=8)
        np.testing.assert_allclose(out, BESSEL_Y, rtol=10 * tolerance)
        apply_both.interpret[1](ORDERS - 8 * (ORDERS > 3), PLACES.astype(dtype), out, name="jn", N=8)
    assert np.isnan(out[[3, 6]]).all(), "the order is below zero"


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers(dtype: type) -> None:
    random = np.random.default_rng(9)
    low, high = (0, 1 << 32) if dtype is np.uint32 else (-(1 << 31), 1 << 31)
    x, y = (random.integers(low, high, 16).astype(dtype) for _ in "xy")
    a, b = x.astype(np.int64), y.astype(np.int64)
    cut = [((v << 8).astype(dtype) >> 8).astype(np.int64) for v in (x, y)]
    for name, right in (("hadd", (a + b) >> 1), ("rhadd", (a + b + 1) >> 1), ("mul24", cut[0] * cut[1])):
        out = np.zeros(16, dtype)
        with np.errstate(all="ignore"):
            apply_both.interpret[1](x, y, out, name=name, N=16)
        np.testing.assert_array_equal(out, right.astype(dtype), name)
    out = np.zeros(16, dtype)
    with np.errstate(all="ignore"):
        distances.interpret[1](x, y, out)
    np.testing.assert_array_equal(out, (np.abs(a - b) + 5).astype(dtype))


@kbuild.jit
def distances(x, y, out):
    o = tl.arange(0, 16)
    z = tl.full([16], 5, tl.uint32)
    tl.store(out + o, tl.extra.libdevice.sad(tl.load(x + o), tl.load(y + o), z))


@kbuild.jit
def halves(x, out):
    o = tl.arange(0, 8)
    v = tl.load(x + o)
    high, low = tl.extra.libdevice.double2hiint(v), tl.extra.libdevice.double2loint(v)
    tl.store(out + o, tl.extra.libdevice.hiloint2double(high, low))


def test_halves_of_doubles_and_scalars() -> None:
    x, out = np.array([1.1, -2e300, 0, 5e-324, INF, -0.0, 3, -1.7]), np.zeros(8)
    halves.interpret[1](x, out)
    np.testing.assert_array_equal(out.view(np.int64), x.view(np.int64))
    of_scalars.interpret[1](x, out)
    np.testing.assert_allclose(out[:3], [math.gamma(1.1), math.remainder(1.1, 0.4), -0.4])


@kbuild.jit
def of_scalars(x, out):
    v = tl.load(x)
    tl.store(out, tl.extra.libdevice.tgamma(v))
    tl.store(out + 1, tl.extra.libdevice.remainder(v, 0.4 + 0 * v))
    tl.store(out + 2, tl.extra.libdevice.jn(2, v) * 0 - 0.4)
