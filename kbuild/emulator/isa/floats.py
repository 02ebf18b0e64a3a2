"""Floating-point arithmetic: binary32 and binary64, binary16 and bfloat16, and pairs of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from kbuild.emulator import fp
from kbuild.emulator.isa.bits import flush
from kbuild.emulator.isa.instruction_spec import Accuracy, Form, InstructionSpec, Lanes

_ROUNDING = ("rn", "rz", "rm", "rp")
_HALF = np.dtype("f2")


def _bfloat_in(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32)


def _bfloat_out(values: np.ndarray) -> np.ndarray:
    return fp.convert(values, "f32", "bf16")


def lifted(form: Form, function: Lanes) -> Lanes:
    """A function of float values made to work on the form's registers: bfloat16 widened, pairs taken apart."""
    if form.type == "f16x2":
        return lambda *values: (
            function(*(value.view(_HALF) for value in values)).astype(_HALF).view(np.uint32)
        )
    if form.type == "bf16":
        return lambda *values: _bfloat_out(function(*map(_bfloat_in, values)))
    if form.type == "bf16x2":
        return lambda *values: _bfloat_out(
            function(*(_bfloat_in(value.view(np.uint16)) for value in values))
        ).view(np.uint32)
    return function


def finished(form: Form, function: Lanes) -> Lanes:
    """The modifiers `.ftz`, `.sat` and `.relu` around a function."""
    inner = function
    if form.has("ftz"):

        def flushed(*values: np.ndarray) -> np.ndarray:
            return flush(inner(*map(flush, values)))

        function = flushed
    plain = function
    if form.has("sat"):
        function = lambda *values: _saturate(plain(*values))  # noqa: E731
    elif form.has("relu"):
        function = lambda *values: _relu(plain(*values))  # noqa: E731
    return lifted(form, function)


def _saturate(values: np.ndarray) -> np.ndarray:
    """Into [0, 1]; NaN and -0 become 0."""
    return np.where(values > 0, np.minimum(values, 1), 0).astype(values.dtype)


def _relu(values: np.ndarray) -> np.ndarray:
    """At least 0; NaN stays, as the canonical one."""
    return _canonical(np.maximum(values, 0))


def _rounded(nearest: np.ufunc, name: str) -> Callable[[Form], Lanes]:
    """A basic operation: numpy rounds to nearest, `fp` does the directed roundings."""

    def meaning(form: Form) -> Lanes:
        rounding = form.choose(*_ROUNDING, default="rn")
        if rounding != "rn":
            directed = getattr(fp, name)
            return finished(form, lambda *values: directed(*values, rounding=rounding))
        if form.dtype.kind == "f" and not {"ftz", "sat", "relu"} & set(form.modifiers):
            return nearest
        return finished(form, nearest)

    return meaning


def _fused(form: Form) -> Lanes:
    rounding = form.choose(*_ROUNDING, default="rn")
    if form.type in ("bf16", "bf16x2"):
        return lifted(form, _relu_of(form, lambda a, b, c: fp.fma(a, b, c, rounding="rn", target="bf16")))
    return finished(form, lambda a, b, c: fp.fma(a, b, c, rounding=rounding))


def _widened(function: Callable[[Form], Lanes]) -> Callable[[Form], Lanes]:
    """An operation of binary32 all of whose operands but the last are halves, which it widens."""

    def meaning(form: Form) -> Lanes:
        inner = function(replace(form, modifiers=form.modifiers[:-1]))
        widen = _bfloat_in if form.type == "bf16" else lambda values: values.astype(np.float32)
        return lambda *values: inner(*map(widen, values[:-1]), values[-1])

    return meaning


def _relu_of(form: Form, function: Lanes) -> Lanes:
    return (lambda *values: _relu(function(*values))) if form.has("relu") else function


def least(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smaller; a NaN loses, and two give the canonical one; -0 is smaller than +0."""
    found = np.fmin(a, b)
    # Which of two zeros numpy takes depends on the processor.
    return _canonical(np.where(a == b, np.where(np.signbit(b), b, a), found) if (found == 0).any() else found)


def greatest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger; a NaN loses, and two give the canonical one; +0 is larger than -0."""
    found = np.fmax(a, b)
    return _canonical(np.where(a == b, np.where(np.signbit(b), a, b), found) if (found == 0).any() else found)


def _canonical(values: np.ndarray) -> np.ndarray:
    """The same with one NaN in place of all: numpy passes payloads on, and of two NaN the first one's."""
    unordered = np.isnan(values)
    return np.where(unordered, values.dtype.type(np.nan), values) if unordered.any() else values


def _or_nan(function: Lanes, *values: np.ndarray) -> np.ndarray:
    return np.where(_any_nan(values), np.nan, function(*values)).astype(values[0].dtype)


def _extreme(choose: Lanes) -> Callable[[Form], Lanes]:
    def meaning(form: Form) -> Lanes:
        function = choose
        if form.has("abs"):
            function = lambda a, b: np.copysign(choose(np.abs(a), np.abs(b)), _sign_product(a, b))  # noqa: E731
        if form.has("NaN"):
            inner = function
            function = partial(_or_nan, inner)
        if form.has("ftz"):
            plain = function
            function = lambda *values: plain(*map(flush, values))  # noqa: E731
        return lifted(form, function)

    return meaning


def _any_nan(values: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.logical_or.reduce([np.isnan(value) for value in values])


def _sign_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.signbit(a) != np.signbit(b), a.dtype.type(-1), a.dtype.type(1))


def _sign_bits(operation: Lanes) -> Callable[[Form], Lanes]:
    """`abs` and `neg`: bits alone, so that a NaN keeps its payload."""

    def meaning(form: Form) -> Lanes:
        function = (lambda value: operation(flush(value))) if form.has("ftz") else operation
        if form.type in ("bf16", "bf16x2", "f16x2"):
            return lambda value: function(value.view(_HALF)).view(value.dtype)
        return function

    return meaning


def _approximate(exact: Callable[[np.ndarray], np.ndarray]) -> Callable[[Form], Lanes]:
    """An approximation of the hardware's: the exact value, computed in binary64, rounded once."""

    def meaning(form: Form) -> Lanes:
        def function(value: np.ndarray) -> np.ndarray:
            return exact(value.astype(np.float64)).astype(value.dtype)

        return finished(form, function)

    return meaning


def _reciprocal_root(values: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(values)


def _upper_half(function: Callable[[Form], Lanes]) -> Callable[[Form], Lanes]:
    """A function of binary64 that reads the upper words of its operands, and returns one."""

    def meaning(form: Form) -> Lanes:
        inner, kept = function(form), np.uint64(0xFFFFFFFF00000000)
        return lambda value: (
            inner((value.view(np.uint64) & kept).view(np.float64)).view(np.uint64) & kept
        ).view(np.float64)

    return meaning


def _divide(form: Form) -> Lanes:
    """`div.full` and `div.approx`: the quotient rounded once, well within their two ulp."""
    if form.has("approx"):

        def approximate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            # The hardware multiplies by a reciprocal, which underflows to zero for divisors beyond 2^126.
            huge = (np.abs(b) > 2.0**126) & np.isfinite(b)
            undefined = np.isinf(a) | np.isnan(a)
            return np.where(huge, np.where(undefined, np.nan, np.copysign(0, a * np.sign(b))), a / b).astype(
                np.float32
            )

        return finished(form, approximate)
    return finished(form, np.divide)


def _test(form: Form) -> Lanes:
    kind = form.modifiers[0]
    tiny = np.finfo(form.dtype).tiny
    return {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0)),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }[kind]


_ROUND = "[rn|rz|rm|rp]"
_NEWER = "it begins with sm_100, and the answers are an H200's"
ROWS = [
    InstructionSpec("add" + _ROUND + "[ftz][sat].f32", "t = t t", "sum", _rounded(np.add, "add")),
    InstructionSpec("sub" + _ROUND + "[ftz][sat].f32", "t = t t", "difference", _rounded(np.subtract, "sub")),
    InstructionSpec("mul" + _ROUND + "[ftz][sat].f32", "t = t t", "product", _rounded(np.multiply, "mul")),
    InstructionSpec("add" + _ROUND + ".f64", "t = t t", "sum", _rounded(np.add, "add")),
    InstructionSpec("sub" + _ROUND + ".f64", "t = t t", "difference", _rounded(np.subtract, "sub")),
    InstructionSpec("mul" + _ROUND + ".f64", "t = t t", "product", _rounded(np.multiply, "mul")),
    InstructionSpec("add[rn][ftz][sat]{f16|f16x2|bf16|bf16x2}", "t = t t", "sum", _rounded(np.add, "add")),
    InstructionSpec(
        "sub[rn][ftz][sat]{f16|f16x2|bf16|bf16x2}", "t = t t", "difference", _rounded(np.subtract, "sub")
    ),
    InstructionSpec(
        "mul[rn][ftz][sat]{f16|f16x2|bf16|bf16x2}", "t = t t", "product", _rounded(np.multiply, "mul")
    ),
    InstructionSpec(
        "fma{rn|rz|rm|rp}[ftz][sat].f32", "t = t t t", "product plus addend, rounded once", _fused
    ),
    InstructionSpec("fma{rn|rz|rm|rp}.f64", "t = t t t", "product plus addend, rounded once", _fused),
    InstructionSpec(
        "fma.rn[ftz][sat|relu]{f16|f16x2|bf16|bf16x2}",
        "t = t t t",
        "product plus addend, rounded once",
        _fused,
    ),
    InstructionSpec(
        "add" + _ROUND + "[sat].f32{f16|bf16}",
        "t0 = t t0",
        "sum",
        _widened(_rounded(np.add, "add")),
        unasked=_NEWER,
    ),
    InstructionSpec(
        "sub" + _ROUND + "[sat].f32{f16|bf16}",
        "t0 = t t0",
        "difference",
        _widened(_rounded(np.subtract, "sub")),
        unasked=_NEWER,
    ),
    InstructionSpec(
        "fma{rn|rz|rm|rp}[sat].f32{f16|bf16}",
        "t0 = t t t0",
        "product plus addend, rounded once",
        _widened(_fused),
        unasked=_NEWER,
    ),
    InstructionSpec("mad{rn|rz|rm|rp}[ftz][sat].f32", "t = t t t", "the same as fma", _fused),
    InstructionSpec("mad{rn|rz|rm|rp}.f64", "t = t t t", "the same as fma", _fused),
    InstructionSpec("div{rn|rz|rm|rp}[ftz].f32", "t = t t", "quotient", _rounded(np.divide, "div")),
    InstructionSpec("div{rn|rz|rm|rp}.f64", "t = t t", "quotient", _rounded(np.divide, "div")),
    InstructionSpec(
        "div{full|approx}[ftz].f32",
        "t = t t",
        "quotient",
        _divide,
        accuracy=Accuracy(2.1, "ulp", "2.06 ulp", "divisors from 2^-126 to 2^126"),
    ),
    InstructionSpec("rcp{rn|rz|rm|rp}[ftz].f32", "t = t", "reciprocal", _rounded(np.reciprocal, "rcp")),
    InstructionSpec("rcp{rn|rz|rm|rp}.f64", "t = t", "reciprocal", _rounded(np.reciprocal, "rcp")),
    InstructionSpec(
        "rcp.approx[ftz].f32",
        "t = t",
        "reciprocal",
        _approximate(np.reciprocal),
        accuracy=Accuracy(1, "ulp", "0.98 ulp"),
    ),
    InstructionSpec(
        "rcp.approx.ftz.f64",
        "t = t",
        "reciprocal, upper half",
        _upper_half(_approximate(np.reciprocal)),
        accuracy=Accuracy(2.0**-20, "relative", "not measured"),
        unasked="it is of CUDA C++ alone, and waits for the next measurement",
    ),
    InstructionSpec("sqrt{rn|rz|rm|rp}[ftz].f32", "t = t", "square root", _rounded(np.sqrt, "sqrt")),
    InstructionSpec("sqrt{rn|rz|rm|rp}.f64", "t = t", "square root", _rounded(np.sqrt, "sqrt")),
    InstructionSpec(
        "sqrt.approx[ftz].f32",
        "t = t",
        "square root",
        _approximate(np.sqrt),
        accuracy=Accuracy(1, "ulp", "0.94 ulp"),
    ),
    InstructionSpec(
        "rsqrt.approx[ftz].f32",
        "t = t",
        "reciprocal of the square root",
        _approximate(_reciprocal_root),
        accuracy=Accuracy(2, "ulp", "1.49 ulp"),
    ),
    InstructionSpec(
        "rsqrt.approx.f64",
        "t = t",
        "reciprocal of the square root",
        _approximate(_reciprocal_root),
        accuracy=Accuracy(1, "ulp", "0.51 ulp"),
    ),
    InstructionSpec(
        "rsqrt.approx.ftz.f64",
        "t = t",
        "reciprocal of the square root, upper half",
        _upper_half(_approximate(_reciprocal_root)),
        accuracy=Accuracy(2.0**-20, "relative", "2^-20.1"),
    ),
    InstructionSpec(
        "sin.approx[ftz].f32",
        "t = t",
        "sine",
        _approximate(np.sin),
        accuracy=Accuracy(2.0**-20.5, "absolute", "2^-21.5", "arguments from -pi to pi"),
    ),
    InstructionSpec(
        "cos.approx[ftz].f32",
        "t = t",
        "cosine",
        _approximate(np.cos),
        accuracy=Accuracy(2.0**-20.5, "absolute", "2^-21.3", "arguments from -pi to pi"),
    ),
    InstructionSpec(
        "tanh.approx.f32",
        "t = t",
        "hyperbolic tangent",
        _approximate(np.tanh),
        accuracy=Accuracy(2.0**-11, "relative", "2^-16.5"),
    ),
    InstructionSpec(
        "tanh.approx{f16|f16x2|bf16|bf16x2}",
        "t = t",
        "hyperbolic tangent",
        _approximate(np.tanh),
        accuracy=Accuracy(1.1, "ulp", "1.01 ulp"),
    ),
    InstructionSpec(
        "ex2.approx[ftz].f32",
        "t = t",
        "power of two",
        _approximate(np.exp2),
        accuracy=Accuracy(2.1, "ulp", "2.06 ulp"),
    ),
    InstructionSpec(
        "ex2.approx{f16|f16x2}",
        "t = t",
        "power of two",
        _approximate(np.exp2),
        accuracy=Accuracy(1.1, "ulp", "1.00 ulp"),
    ),
    InstructionSpec(
        "ex2.approx.ftz{bf16|bf16x2}",
        "t = t",
        "power of two",
        _approximate(np.exp2),
        accuracy=Accuracy(1.1, "ulp", "1 ulp from the rounded result, of 256 operands"),
    ),
    InstructionSpec(
        "lg2.approx[ftz].f32",
        "t = t",
        "logarithm to base two",
        _approximate(np.log2),
        accuracy=Accuracy(2.0**-22, "either", "2^-22.2"),
    ),
    InstructionSpec(
        "min[ftz][NaN][xorsign][abs]{f32|f16|f16x2|bf16|bf16x2}", "t = t t", "smaller", _extreme(least)
    ),
    InstructionSpec(
        "max[ftz][NaN][xorsign][abs]{f32|f16|f16x2|bf16|bf16x2}", "t = t t", "larger", _extreme(greatest)
    ),
    InstructionSpec("min.f64", "t = t t", "smaller", _extreme(least)),
    InstructionSpec("max.f64", "t = t t", "larger", _extreme(greatest)),
    InstructionSpec(
        "abs[ftz]{f32|f64|f16|f16x2|bf16|bf16x2}", "t = t", "absolute value", _sign_bits(np.absolute)
    ),
    InstructionSpec("neg[ftz]{f32|f64|f16|f16x2|bf16|bf16x2}", "t = t", "negative", _sign_bits(np.negative)),
    InstructionSpec(
        "copysign{f32|f64}",
        "t = t t",
        "the second's magnitude with the first's sign",
        lambda _: lambda a, b: np.copysign(b, a),
    ),
    InstructionSpec(
        "testp{finite|infinite|number|notanumber|normal|subnormal}{f32|f64}",
        "pred = t",
        "kind of number",
        _test,
    ),
]
