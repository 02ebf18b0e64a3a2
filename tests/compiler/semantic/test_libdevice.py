"""libdevice: functions made of others against numpy, and single instructions by their PTX."""

import math

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ops.tensor import InlineAsm
from kbuild.compiler.semantic import TABLES
from kbuild.emulator import run as emulate
from tests.compiler.lower.host import every_exponent, ulps


@kbuild.jit
def apply(x, out, name: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, getattr(tl.extra.libdevice, name)(tl.load(x + o)))


X = np.array([-0.9, -0.3, -1e-4, 1e-5, 0.2, 0.5, 0.75, 0.99], np.float32)


@pytest.mark.parametrize(
    ("name", "x", "right"),
    [
        ("asinh", X * 50, np.arcsinh),
        ("acosh", 1 + abs(X) * 9, np.arccosh),
        ("atanh", X, np.arctanh),
        ("cbrt", X * 40, np.cbrt),
        ("normcdf", X * 3, lambda x: [0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]),
        ("erfc", X, lambda x: [math.erfc(v) for v in x]),
        ("exp10", X, lambda x: 10.0**x),
        ("signbit", X, np.signbit),
        ("saturatef", X * 2, lambda x: np.clip(x, 0, 1)),
        ("isnan", np.array([np.nan, 1.0] * 4, np.float32), np.isnan),
    ],
)
def test_functions_made_of_others(name, x, right):
    out = np.zeros(8, np.float32)
    apply.interpret[1](x.astype(np.float32), out, name=name, N=8)
    np.testing.assert_allclose(out, right(x.astype(np.float64)), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_are_rounded_away_from_zero(dtype):
    whole = np.array(
        [0, 1, 2, 3, 4, 7, 1000, 2.0**22, 2.0**23 - 1, 2.0**23, 2.0**24, 2.0**52, 2.0**60], dtype
    )
    halves = (whole + dtype(0.5)).astype(dtype)
    near = [np.nextafter(halves, dtype(0)), halves, np.nextafter(halves, dtype(np.inf)), whole]
    x = np.concatenate([*near, [dtype(1e-40), np.inf, np.nan]]).astype(dtype)
    x = np.concatenate([x, -x])
    x = np.concatenate([x, np.zeros(128 - len(x), dtype)])
    right = np.zeros_like(x)
    type_ = {np.float32: "*fp32", np.float64: "*fp64"}[dtype]
    artifact = kbuild.compile(
        apply, signature={"x": type_, "out": type_}, constexprs={"name": "round", "N": 128}, stop="ptx"
    )
    made = emulate(artifact.asm["ptx"], artifact.metadata.name, (1,), 4, 0, [x, right]).outputs[1]
    assert made is not None
    apply.interpret[1](x, right, name="round", N=128)
    np.testing.assert_array_equal(made.view(f"i{made.itemsize}"), right.view(f"i{made.itemsize}"))


def _everywhere() -> np.ndarray:
    random = np.random.default_rng(1)
    near = [random.uniform(-bound, bound, 20_000).astype(np.float32) for bound in (1, 14)]
    above_one = (1 + 2.0**-23 * np.arange(1000)).astype(np.float32)
    return np.concatenate([every_exponent(np.float32, 256), *near, above_one])


def _each(function):
    def found(x: float) -> float:
        try:
            return function(x)
        except (OverflowError, ValueError):
            return math.nan

    return np.vectorize(found, otypes=[float])


@pytest.mark.parametrize(
    ("name", "right", "most"),
    [
        ("asinh", np.arcsinh, 3),
        ("acosh", np.arccosh, 3),
        ("atanh", np.arctanh, 3),
        ("cbrt", np.cbrt, 1),
        ("exp10", lambda x: 10.0**x, 3),
        ("exp", np.exp, 3),
        ("erfc", _each(math.erfc), 12),
        ("normcdf", _each(lambda x: math.erfc(-x / math.sqrt(2)) / 2), 15),
    ],
)
def test_functions_made_of_others_over_all_arguments(name, right, most):
    """With functions of one instruction that are right: what the others add to that."""
    x, size = _everywhere(), 1 << 18
    given, out = np.resize(x, size).astype(np.float32), np.zeros(size, np.float32)
    with np.errstate(all="ignore"):
        apply.interpret[1](given, out, name=name, N=size)
        exact = right(given.astype(np.float64))
    error = np.where(np.abs(exact) < np.finfo(np.float32).tiny, 0, ulps(out, exact))
    assert error.max() <= most, f"{error.max():.2f} ulp at {given[error.argmax()]!r}: {out[error.argmax()]!r}"


@kbuild.jit
def apply_both(x, y, out, name: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, getattr(tl.extra.libdevice, name)(tl.load(x + o), tl.load(y + o)))


FAR = [1.0, -2.5, 1e30, -1e-30, 7.5, 0.0, np.inf, 3e38, -0.0, 5.0, np.nan, -7.0, 1.0, 2.0**-140, 1e4, 8.0]
NEAR = [0.1, 0.001, 3e29, 7e-31, -2.5, 3.0, 2.0, 3e38, 1.0, np.inf, 1.0, 7.0, 0.0, 2.0**-149, 1e-4, -3.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "right", "rtol"), [("fmod", np.fmod, 0), ("hypot", np.hypot, 2e-7)])
def test_functions_of_numbers_far_apart(name, right, rtol, dtype):
    x, y, out = np.array(FAR, dtype), np.array(NEAR, dtype), np.zeros(16, dtype)
    apply_both.interpret[1](x, y, out, name=name, N=16)
    with np.errstate(all="ignore"):
        wanted = right(x, y)
    np.testing.assert_allclose(out, wanted, rtol=rtol)
    assert (np.signbit(out) == np.signbit(wanted))[~np.isnan(wanted)].all(), "zero has a sign, too"


def test_powers_of_two_beyond_the_type():
    x, y = (
        np.array([1.5, 1e-30, 1.0, 3e38, 1, -1, 0, 1], np.float32),
        np.array([3, 140, -149, -200, 128, -3000, 9999, 9]),
    )
    for dtype in (np.float32, np.float64):
        out = np.zeros(8, dtype)
        apply_both.interpret[1](x.astype(dtype), y, out, name="ldexp", N=8)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, np.ldexp(x.astype(dtype), y))


def test_powers_of_ten():
    x = np.array([38.2, -37.3, 0.1, 20.7, np.inf, -np.inf, 300, np.nan], np.float32)
    out = np.zeros(8, np.float32)
    apply.interpret[1](x, out, name="exp10", N=8)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(out, (10.0 ** x.astype(np.float64)).astype(np.float32), rtol=4e-7)


@kbuild.jit
def instructions(x, out):
    v = tl.load(x)
    tl.store(out, tl.extra.libdevice.fma_ru(v, v, 1.0) + tl.extra.libdevice.div_rz(v, 3.0))
    tl.store(out, tl.extra.cuda.libdevice.float2int_rd(v) + tl.extra.cuda.libdevice.llrint(v))
    tl.store(out, tl.extra.libdevice.ull2double_rz(v.to(tl.uint64)))


def test_single_instructions():
    module = build_module(instructions, {"x": "*fp32", "out": "*fp32"}, {})
    found = [(op.asm, op.constraints) for op in module.kernel.body if isinstance(op, InlineAsm)]
    assert found == [
        ("fma.rp.f32 $0, $1, $2, $3;", "=f,f,f,f"),
        ("div.rz.f32 $0, $1, $2;", "=f,f,f"),
        ("cvt.rmi.s32.f32 $0, $1;", "=r,f"),
        ("cvt.rni.s64.f32 $0, $1;", "=l,f"),
        ("cvt.rz.f64.u64 $0, $1;", "=d,l"),
    ]


def test_the_functions_that_kernels_use_are_there():
    used = (
        "pow tanh erf rsqrt trunc div_rn exp fast_tanh div_rz finitef isfinited isnan fast_erf fmod exp2 isinf atan2 atan rint "
        "fast_expf fast_logf fast_log2f fast_tanhf"
    )
    assert not set(used.split()) - set(TABLES["libdevice"])
