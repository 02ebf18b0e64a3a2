"""Conversions to and from f8 by integers (sm_80), against the formats' definition; constants; the numerics of
Triton."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, F64, I8, FloatType
from kbuild.compiler.lower.core.casts import convert_floats
from kbuild.compiler.lower.core.literals import constant, constant_bits, float_bits
from kbuild.compiler.ops.elementwise import round_float
from kbuild.emulator import run as emulate
from kbuild.errors import CompileError
from tests.compiler.lower.host import run
from tests.compiler.lower.kernels import RANGE, pointers, ptx

TINY = [F8E4M3FN, F8E5M2]
BYTES = np.arange(256, dtype=np.uint8)


def value_of(byte: int, type_: FloatType) -> float:
    """The number that an f8 stands for, by definition."""
    bias = 7 if type_ == F8E4M3FN else 15
    mantissa = type_.mantissa_bits
    exponent, fraction = (byte & 0x7F) >> mantissa, byte & ((1 << mantissa) - 1)
    if type_ == F8E4M3FN and byte & 0x7F == 0x7F:
        return float("nan")
    if type_ == F8E5M2 and exponent == 31:
        return float("nan") if fraction else float("-inf" if byte & 0x80 else "inf")
    magnitude = (
        fraction * 2.0 ** (1 - bias - mantissa)
        if not exponent
        else ((fraction + (1 << mantissa)) * 2.0 ** (exponent - bias - mantissa))
    )
    return -magnitude if byte & 0x80 else magnitude


@pytest.mark.parametrize("type_", TINY, ids=str)
def test_every_f8_widens_to_its_number(type_):
    halves = run(
        lambda emit, names: convert_floats(emit, names, type_, F16)[0], "i8", "half", np.float16, BYTES
    )
    exact = np.array([value_of(int(byte), type_) for byte in BYTES])
    np.testing.assert_array_equal(halves.astype(np.float64), exact)


@pytest.mark.parametrize("type_", TINY, ids=str)
def test_f32_narrows_to_the_nearest_f8(type_):
    finite = np.array([value_of(byte, type_) for byte in range(128)])
    finite = np.unique(finite[np.isfinite(finite)])
    between = (finite[1:] + finite[:-1]) / 2
    edges = np.concatenate([finite, between, np.nextafter(between, np.inf), [1e30, np.inf, 1e-30]])
    x = np.concatenate([edges, -edges, np.random.default_rng(1).normal(0, 3, 5000)]).astype(np.float32)
    got = run(lambda emit, names: convert_floats(emit, names, F32, type_)[0], "float", "i8", np.uint8, x)
    expected = np.array([float_bits(round_float(float(value), type_), type_) for value in x], np.uint8)
    np.testing.assert_array_equal(got, expected)
    # float_bits itself: the nearest of all, and saturation.
    numbers = np.array([value_of(int(byte), type_) for byte in got])
    clipped = np.clip(x.astype(np.float64), -finite[-1], finite[-1])
    signed = np.concatenate([-finite, finite])
    np.testing.assert_array_equal(np.abs(numbers - clipped), np.abs(signed[None] - clipped[:, None]).min(1))


@pytest.mark.parametrize(
    "type_, numpy_type", [(F16, np.float16), (F32, np.float32), (F64, np.float64)], ids=str
)
def test_constants_have_the_bits_that_numpy_gives_them(type_, numpy_type):
    values = [
        0.0,
        -0.0,
        1.0,
        1 / 3,
        65504.0,
        65520.0,
        1e-8,
        6e-8,
        1e-40,
        1e39,
        -1e300,
        float("inf"),
        float("nan"),
        2049.0,
    ]
    values.append(sys.float_info.max)
    with np.errstate(over="ignore"):
        expected = [int(np.array(value, numpy_type).view(f"u{type_.bits // 8}")) for value in values]
    assert [float_bits(value, type_) for value in values] == expected
    assert [constant_bits(constant(value, type_), type_) for value in values] == expected


def test_infinity_saturates_where_it_is_rounded_and_stays_where_it_is_kept():
    """A cast of a constant that is folded gives what the cast gives; bits that mean infinity are not changed
    by being written."""
    assert round_float(float("-inf"), F8E5M2) == -57344.0 and round_float(float("inf"), F8E4M3FN) == 448.0
    assert (
        float_bits(round_float(float("inf"), F8E5M2), F8E5M2) == 0x7B
        and float_bits(float("inf"), F8E5M2) == 0x7C
    )
    assert float_bits(float("inf"), F8E4M3FN) == 0x7E and round_float(float("inf"), F16) == float("inf")


def test_constants_of_llvm():
    assert constant(1.0, F32) == "0x3FF0000000000000" and constant(1.0, BF16) == "0xR3F80"
    assert constant(200, I8) == "-56" and constant(1.5, F8E4M3FN) == "60"


def narrowing(name: str, rounding: str) -> str:
    return (
        RANGE
        + pointers("x", "f32")
        + pointers("y", name)
        + f"""
      %v: tensor<1024xf32, #b> = tt.load %x_p
      %w: tensor<1024x{name}, #b> = arith.truncf %v {{rounding = "{rounding}"}}
      tt.store %y_p, %w
    """
    )


ALIGNED = "%x: !tt.ptr<f32> {{divisibility = 16}}, %y: !tt.ptr<{0}> {{divisibility = 16}}"


@pytest.mark.parametrize(
    "name, arch, instruction, count",
    [
        ("f16", "sm_80", "cvt.rn.f16x2.f32", 4),
        ("bf16", "sm_80", "cvt.rn.bf16x2.f32", 4),
        ("f8E4M3FN", "sm_90", "cvt.rn.satfinite.e4m3x2.f32", 4),
        ("f8E5M2", "sm_90", "cvt.rn.satfinite.e5m2x2.f32", 4),
    ],
)
def test_narrowing_takes_two_at_a_time(name, arch, instruction, count):
    assert ptx(narrowing(name, "rtne"), ALIGNED.format(name), arch).count(instruction) == count


def test_rounding_toward_zero():
    assert ptx(narrowing("bf16", "rtz"), ALIGNED.format("bf16")).count("cvt.rz.bf16.f32") == 8
    assert ptx(narrowing("f8E5M2", "rtz"), ALIGNED.format("f8E5M2"), "sm_90").count("e5m2x2.f32") == 4


@kbuild.jit
def widened(x, out, N: tl.constexpr, dtype: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, tl.load(x + o).to(dtype).to(tl.float32))


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16, tl.float32], ids=str)
@pytest.mark.parametrize("source", [np.int8, np.uint8])
@pytest.mark.parametrize("warps", [1, 4])
def test_every_byte_is_a_number(source, dtype, warps):
    """Eight or two elements for each thread; the hardware's conversions would take four times as long."""
    x, out = BYTES.view(source), np.zeros(256, np.float32)
    signature = {"x": "*i8:16" if source == np.int8 else "*u8:16", "out": "*fp32:16"}
    artifact = kbuild.compile(
        widened, signature=signature, constexprs={"N": 256, "dtype": dtype}, num_warps=warps, stop="ptx"
    )
    text = artifact.asm["ptx"]
    report = emulate(text, artifact.metadata.name, (1,), warps, artifact.metadata.shared, [x, out])
    np.testing.assert_array_equal(report.outputs[1], x.astype(np.float32))
    assert "prmt" in text and not re.search(r"cvt\.\w+\.\w+\.[su]\d", text)


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
def test_there_is_one_way_to_e4b15(rounding):
    with pytest.raises(CompileError, match="to f8E4M3B15 rounds by 'rtne'"):
        ptx(narrowing("f8E4M3B15", rounding), ALIGNED.format("f8E4M3B15"))


@pytest.mark.parametrize(
    "old, new, shuffles, others",
    [
        ("f8E4M3B15", "f16", 4, 0),  # two words for each of four bytes
        ("f16", "f8E4M3B15", 2, 4),
    ],
)
def test_e4b15_takes_four_at_a_time(old, new, shuffles, others):
    cast = "arith.extf %v" if new == "f16" else 'arith.truncf %v {rounding = "rna"}'
    body = (
        RANGE
        + pointers("x", old)
        + pointers("y", new)
        + f"""
      %v: tensor<1024x{old}, #b> = tt.load %x_p
      %w: tensor<1024x{new}, #b> = {cast}
      tt.store %y_p, %w
    """
    )
    text = ptx(body, f"%x: !tt.ptr<{old}> {{divisibility = 16}}, %y: !tt.ptr<{new}> {{divisibility = 16}}")
    assert text.count("prmt") == shuffles and text.count("min.f16x2") == others


@pytest.mark.parametrize(
    "operation, instruction",
    [
        ("arith.divf %v, %v", "div.full.f32"),
        ("tt.precise_divf %v, %v", "div.rn.f32"),
        ("math.exp %v", "ex2.approx.ftz.f32"),
        ("math.exp2 %v", "ex2.approx.ftz.f32"),
        ("math.sqrt %v", "sqrt.approx.ftz.f32"),
        ("tt.precise_sqrt %v", "sqrt.rn.f32"),
        ("math.rsqrt %v", "rsqrt.approx.ftz.f32"),
        ("tt.fast_tanh %v", "tanh.approx.f32"),
        ("arith.maximumf %v, %v", "max.NaN.f32"),
        ("math.sin %v", "call.uni"),
    ],
)
def test_the_numerics_are_those_of_triton(operation, instruction):
    body = (
        RANGE
        + pointers("x", "f32")
        + f"""
      %v: tensor<1024xf32, #b> = tt.load %x_p
      %w: tensor<1024xf32, #b> = {operation}
      tt.store %x_p, %w
    """
    )
    if "maximum" in operation:
        body = body.replace("%v, %v", "%v, %c").replace(
            "  %w", "  %c: tensor<1024xf32, #b> = arith.sitofp %r\n  %w"
        )
    assert instruction in ptx(body, "%x: !tt.ptr<f32>")
