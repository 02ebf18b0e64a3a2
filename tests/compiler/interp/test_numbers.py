"""Formats that numpy lacks, and arithmetic where Python, numpy and the IR disagree."""

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.interp.formats import round_to, value_dtype, wide_f32
from kbuild.compiler.interp.memory import Trace
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.types import BF16, F8E4M3B15, F8E4M3FN, F8E5M2, F16, F32, FloatType, Type


@pytest.mark.parametrize("type_", [BF16, F8E4M3FN, F8E5M2], ids=str)
def test_all_codes_survive(type_: FloatType) -> None:
    codes = np.arange(1 << type_.bits, dtype=np.uint16 if type_.bits == 16 else np.uint8)
    values = interp.decode(codes, type_)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(interp.encode(values, type_)[numbers], codes[numbers])
    assert np.isnan(interp.decode(interp.encode(np.float32(np.nan), type_), type_))


@pytest.mark.parametrize("type_", [BF16, F16, F8E4M3FN, F8E5M2], ids=str)
def test_rounding_is_to_the_nearest_and_ties_go_to_even(type_: FloatType) -> None:
    codes = np.arange(60, 110, dtype=np.uint16 if type_.bits == 16 else np.uint8)
    values = interp.decode(codes if type_ != F16 else codes.view(np.float16), type_).astype(np.float64)
    low, high = values[:-1], values[1:]
    tie = np.where(codes[:-1] % 2 == 0, low, high)
    for x, expected in (
        (low, low),
        (low + (high - low) * 0.25, low),
        (low + (high - low) * 0.75, high),
        ((low + high) / 2, tie),
    ):
        np.testing.assert_array_equal(round_to(x, type_), expected)
        np.testing.assert_array_equal(round_to(-x, type_), -expected)
        np.testing.assert_array_equal(round_to(x, type_, toward_zero=True), low)


def test_e4b15_has_neither_infinity_nor_nan() -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = interp.decode(codes, F8E4M3B15)
    halves = (codes.astype(np.uint16) & 0x7F) << 7 | (codes.astype(np.uint16) & 0x80) << 8
    np.testing.assert_array_equal(values, halves.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(interp.encode(values, F8E4M3B15), codes)
    assert F8E4M3B15.largest == 1.875 and F8E4M3FN.largest == 448 and F8E5M2.largest == 57344


def test_known_values() -> None:
    assert interp.decode(np.array([0x7E, 0x08, 0x01, 0xB8], np.uint8), F8E4M3FN).tolist() == [
        448.0,
        2**-6,
        2**-9,
        -1.0,
    ]
    assert interp.decode(np.array([0x7B, 0x7C, 0x04, 0x01], np.uint8), F8E5M2).tolist() == [
        57344.0,
        np.inf,
        2**-14,
        2**-16,
    ]
    assert round_to(np.float32(1e9), F8E4M3FN) == 448 and round_to(np.float32(-np.inf), F8E5M2) == -57344
    assert interp.encode(np.array([1.0, -2.5], np.float32), BF16).tolist() == [0x3F80, 0xC020]


def value(text: str, *arguments: float, result: str = "i32") -> float:
    """What a function of scalars i, j (i32), f (f32) computes in `%r`."""
    dtype = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "i1": np.uint8}[result]
    out = np.zeros(1, dtype)
    source = f"tt.func @f(%p: !tt.ptr<{result}>, %i: i32, %j: i32, %f: f32) {{\n{text}\n  tt.store %p, %r\n  tt.return\n}}\n"
    i, j, f = (*arguments, 0, 0, 0)[:3]
    interp.run(parse_module(source), [out, i, j, f])
    return out[0].item()


@pytest.mark.parametrize(("i", "j"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5)])
def test_division_rounds_toward_zero(i: int, j: int) -> None:
    quotient = int(i / j)
    assert value("%r: i32 = arith.divsi %i, %j", i, j) == quotient
    assert value("%r: i32 = arith.remsi %i, %j", i, j) == i - quotient * j


@pytest.mark.parametrize(
    ("text", "arguments", "result", "expected"),
    [
        ("%r: i32 = arith.divui %i, %j", (-2, 2), "i32", 0x7FFFFFFF),
        ("%r: i32 = arith.shrui %i, %j", (-1, 28), "i32", 15),
        ("%r: i32 = arith.shrsi %i, %j", (-64, 4), "i32", -4),
        ("%r: i32 = arith.shrsi %i, %j", (-(2**31), 31), "i32", -1),
        ("%r: i32 = arith.shrsi %i, %j", (2**30, 30), "i32", 1),
        ("%r: i32 = arith.shrsi %i, %j", (-8, 40), "i32", -1),
        ("%r: i32 = arith.shrsi %i, %j", (2**30, 32), "i32", 0),
        ("%r: i32 = arith.shrsi %i, %j", (2**30, -1), "i32", 0),
        ("%r: i32 = arith.shrui %i, %j", (-1, 32), "i32", 0),
        ("%r: i32 = arith.shrui %i, %j", (-1, -1), "i32", 0),
        ("%r: i32 = arith.shli %i, %j", (1, 31), "i32", -(2**31)),
        ("%r: i32 = arith.shli %i, %j", (1, 32), "i32", 0),
        ("%r: i32 = arith.shli %i, %j", (3, 40), "i32", 0),
        ("%r: i32 = arith.addi %i, %j", (2**31 - 1, 1), "i32", -(2**31)),
        ("%r: i32 = tt.mulhiui %i, %j", (-1, -1), "i32", -2),
        ("%r: i32 = math.ctlz %i", (1,), "i32", 31),
        ("%r: i32 = math.ctpop %i", (-1,), "i32", 32),
        ("%r: i32 = arith.maxui %i, %j", (-1, 5), "i32", -1),
        ('%r: i1 = arith.cmpi %i, %j {predicate = "ult"}', (-1, 5), "i1", 0),
        ('%r: i1 = arith.cmpi %i, %j {predicate = "slt"}', (-1, 5), "i1", 1),
        ("%r: i64 = arith.extui %i", (-1,), "i64", 2**32 - 1),
        ("%r: i64 = arith.extsi %i", (-1,), "i64", -1),
        ("%r: f32 = arith.uitofp %i", (-1,), "f32", 2.0**32),
        ("%r: i32 = arith.fptosi %f", (0, 0, 1e20), "i32", 2**31 - 1),
        ("%r: i32 = arith.fptosi %f", (0, 0, -1.9), "i32", -1),
        ("%r: i32 = arith.fptosi %f", (0, 0, np.nan), "i32", 0),
        ("%r: i32 = tt.bitcast %f", (0, 0, 1.0), "i32", 0x3F800000),
        ("%r: f32 = math.round %f", (0, 0, -2.5), "f32", -3.0),
        ("%r: f32 = math.roundeven %f", (0, 0, -2.5), "f32", -2.0),
        ("%r: f32 = arith.remf %f, %f", (0, 0, 3.0), "f32", 0.0),
        ('%r: i1 = arith.cmpf %f, %f {predicate = "une"}', (0, 0, np.nan), "i1", 1),
        ('%r: i1 = arith.cmpf %f, %f {predicate = "one"}', (0, 0, np.nan), "i1", 0),
        ("%h: f16 = arith.truncf %f\n%r: f32 = arith.extf %h", (0, 0, 2049.0), "f32", 2048.0),
        ("%h: bf16 = arith.truncf %f\n%r: f32 = arith.extf %h", (0, 0, 257.0), "f32", 256.0),
        (
            '%h: f16 = arith.truncf %f {rounding = "rtz"}\n%r: f32 = arith.extf %h',
            (0, 0, 2051.0),
            "f32",
            2050.0,
        ),
        ("%t: i1 = arith.trunci %i\n%r: i32 = arith.extsi %t", (3,), "i32", -1),
    ],
)
def test_scalar_operations(text: str, arguments: tuple[float, ...], result: str, expected: float) -> None:
    assert value(text, *arguments, result=result) == expected


@pytest.mark.parametrize(
    "element, values, rounds",
    [
        (F32, [1.0, 3.0], False),
        (F32, [1.0, 0.1], True),
        (F16, [2049.0], True),
        (F16, [2048.0], False),
        (BF16, [257.0], True),
        (BF16, [256.0, np.nan, np.inf], False),
    ],
)
def test_rounding_is_noticed_where_values_are_wide(element: Type, values: list[float], rounds: bool) -> None:
    with wide_f32() as wide:
        rounded = round_to(np.array(values), element)
        assert rounded.dtype == value_dtype(element) and wide.rounded == rounds
    assert value_dtype(F32) is np.float32


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        ("arith.addf %a, %b", True),
        ("arith.subf %a, %b", True),
        ("arith.mulf %a, %b", True),
        ("arith.divf %a, %b", True),
        ("math.fma %a, %b, %b", True),
        ("arith.addf %a, %a", False),
    ],
)
@pytest.mark.parametrize(("type_", "a", "b"), [("f32", 2.0**25 + 4, 7.0), ("f16", 2.0**12 + 4, 7.0)])
def test_arithmetic_on_wide_values_notices_what_is_rounded(
    text: str, rounds: bool, type_: str, a: float, b: float
) -> None:
    """The operands have no sum, difference, product or quotient of 24 bits, or of 11."""
    source = f"""tt.func @f(%p: !tt.ptr<{type_}>, %q: !tt.ptr<{type_}>) {{
  %a: {type_} = tt.load %p
  %b: {type_} = tt.load %q
  %r: {type_} = {text}
  tt.store %p, %r
  tt.return
}}
"""
    with wide_f32() as wide:
        interp.run(
            parse_module(source),
            [np.array([number], {"f32": np.float32, "f16": np.float16}[type_]) for number in (a, b)],
        )
    assert wide.rounded == rounds


def test_wide_values_are_rounded_when_they_are_stored() -> None:
    """(a + b) - a is b there, and 8 in f32."""
    text = "%s: f32 = arith.addf %f, %b\n%r: f32 = arith.subf %s, %f"
    constant = "%b: f32 = arith.constant {value = 7.0}\n"
    assert value(constant + text, 0, 0, 2.0**25 + 4, result="f32") == 8
    with wide_f32():
        assert value(constant + text, 0, 0, 2.0**25 + 4, result="f32") == 7


def test_only_conversions_of_numbers_to_f8_saturate() -> None:
    """A bitcast brings infinities into f8E5M2, and `select` hands them on."""
    source = """tt.func @f(%p: !tt.ptr<f8E4M3FN>, %q: !tt.ptr<f8E5M2>, %x: f32, %c: i1) {
  %v: f8E4M3FN = tt.load %p
  %w: f8E5M2 = tt.bitcast %v
  %n: f8E5M2 = arith.truncf %x
  %r: f8E5M2 = arith.select %c, %w, %n
  tt.store %q, %r
  tt.return
}
"""
    for bits, condition, right in ((0x7C, 1, 0x7C), (0xFC, 1, 0xFC), (0x7C, 0, 0x7B)):
        out = np.zeros(1, np.uint8)
        interp.run(parse_module(source), [np.array([bits], np.uint8), out, float("inf"), condition])
        assert out[0] == right


def test_fma_rounds_once() -> None:
    """The rounding errors of the product or the sum of doubles decide."""
    third, tiny = 1 + 2.0**-30, 2.0**-60
    for type_, a, b, c, right in (
        ("f64", third, 1 - 2.0**-30, -1.0, -tiny),
        ("f64", 1e300, 1e5, -np.inf, -np.inf),
        ("f64", 2.0, 3.0, 4.0, 10.0),
        ("f64", -0.0, 3.0, -0.0, -0.0),
        ("f32", -0.0, 3.0, -0.0, -0.0),
        ("f32", 1 + 2.0**-23, 1 + 2.0**-23, 2.0**-80, np.float32(1 + 2.0**-22)),
        ("f32", 2.5, np.float32(1e30), 2.5, np.float32(np.float64(np.float32(1e30)) * 2.5 * (1 + 2.0**-40))),
        ("f32", 2.5, np.float32(1e30), -2.5, np.float32(np.float64(np.float32(1e30)) * 2.5 * (1 - 2.0**-40))),
    ):
        values = np.array([a, b, c, 0], {"f32": np.float32, "f64": np.float64}[type_])
        loads = "".join(f"  %{name}: {type_} = tt.load %p{place}\n" for place, name in enumerate("abc"))
        places = "".join(
            f"  %i{place}: i32 = arith.constant {{value = {place}}}\n  %p{place}: !tt.ptr<{type_}> = tt.addptr %p, %i{place}\n"
            for place in range(4)
        )
        body = f"{places}{loads}  %r: {type_} = math.fma %a, %b, %c\n  tt.store %p3, %r\n  tt.return\n"
        interp.run(parse_module(f"tt.func @f(%p: !tt.ptr<{type_}>) {{\n{body}}}\n"), [values])
        assert values[3] == right and np.signbit(values[3]) == np.signbit(right)


@pytest.mark.parametrize("name", ["minnumf", "maxnumf", "minimumf", "maximumf"])
def test_of_two_zeros_the_negative_one_is_less(name: str) -> None:
    tensor = "tensor<64xf32>"
    source = f"""tt.func @f(%p: !tt.ptr<f32>) {{
  %o: tensor<64xi32> = tt.make_range {{start = 0, end = 64}}
  %s: tensor<64x!tt.ptr<f32>> = tt.splat %p
  %q: tensor<64x!tt.ptr<f32>> = tt.addptr %s, %o
  %x: {tensor} = tt.load %q
  %y: {tensor} = arith.negf %x
  %r: {tensor} = arith.{name} %x, %y
  tt.store %q, %r
  tt.return
}}
"""
    for zero in (0.0, -0.0):
        values = np.full(64, zero, np.float32)
        interp.run(parse_module(source), [values])
        assert (np.signbit(values) == name.startswith("min")).all()


def test_pointers_to_truth_values_move_by_bytes() -> None:
    source = """tt.func @f(%p: !tt.ptr<i1>, %i: i32) {
  %q: !tt.ptr<i1> = tt.addptr %p, %i
  %v: i1 = tt.load %q
  tt.store %p, %v
  tt.return
}
"""
    values = np.array([0, 0, 1], np.uint8)
    interp.run(parse_module(source), [values, 2])
    assert values.tolist() == [1, 0, 1]


def test_a_trace_holds_the_bytes_of_every_array() -> None:
    source = """tt.func @f(%p: !tt.ptr<i32>, %q: !tt.ptr<i16>, %i: i32) {
  %a: !tt.ptr<i32> = tt.addptr %p, %i
  %v: i32 = tt.load %a
  %w: i16 = arith.trunci %v
  %b: !tt.ptr<i16> = tt.addptr %q, %i
  tt.store %b, %w
  tt.return
}
"""
    trace = Trace()
    interp.run(parse_module(source), [np.zeros(3, np.int32), np.zeros(4, np.int16), 2], trace=trace)
    assert (
        trace.read["p"].tolist() == [False] * 8 + [True] * 4 and trace.written["p"].tolist() == [False] * 12
    )
    assert (
        trace.read["q"].tolist() == [False] * 8
        and trace.written["q"].tolist() == [False] * 4 + [True] * 2 + [False] * 2
    )
