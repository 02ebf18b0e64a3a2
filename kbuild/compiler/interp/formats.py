"""Numbers of the IR's types in numpy.

A value of a type numpy has is an array of that dtype.  bf16 and the f8 types have none: their values are float32 arrays
that hold only representable numbers, and in memory they are unsigned integers of their bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from kbuild.compiler.ir.types import (
    BF16,
    F8E4M3B15,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    FloatType,
    IntType,
    PointerType,
    Type,
    element_of,
)

Array = Any
"""A numpy array or scalar."""

_CODES = {8: np.uint8, 16: np.uint16}
_SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_FLOATS: dict[Type, Any] = {F16: np.float16, F32: np.float32, F64: np.float64}


_SIGNATURE_FLOATS = {
    "fp16": F16,
    "bf16": BF16,
    "fp32": F32,
    "fp64": F64,
    "fp8e4nv": F8E4M3FN,
    "fp8e4b15": F8E4M3B15,
    "fp8e5": F8E5M2,
}


def element_named(name: str) -> Type:
    """The type of an element by its name in signatures: `fp16`, `i32`, `u8`."""
    return _SIGNATURE_FLOATS[name] if name in _SIGNATURE_FLOATS else IntType(int(name[1:]))


class Wide:
    """What is found while f32 is computed in float64."""

    def __init__(self) -> None:
        self.rounded = False
        """Whether there was a result that its type cannot hold."""


_wide: ContextVar[Wide | None] = ContextVar("wide", default=None)


@contextmanager
def wide_f32() -> Iterator[Wide]:
    """Within it values of f32 are computed in float64, and rounded when they are stored or made narrower;
    those of smaller types are computed in float64 too, and rounded at once."""
    token = _wide.set(Wide())
    try:
        found = _wide.get()
        assert found is not None
        yield found
    finally:
        _wide.reset(token)


_narrow: ContextVar[bool] = ContextVar("narrow", default=False)


@contextmanager
def tf32_cut() -> Iterator[None]:
    """Within it dots in tf32 cut their operands, as hardware does."""
    token = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(token)


def dot_operand(values: Array, precision: str) -> Array:
    """An operand of a dot of a precision, cut where that is asked for."""
    if not _narrow.get() or precision != "tf32" or values.dtype != np.float32:
        return values
    return (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def value_dtype(type_: Type) -> Any:
    """The dtype in which values of a type are computed; pointers are 64-bit addresses."""
    element = element_of(type_)
    if isinstance(element, PointerType):
        return np.int64
    if isinstance(element, IntType):
        return np.bool_ if element.bits == 1 else _SIGNED[element.bits]
    if element == F32 and _wide.get() is not None:
        return np.float64
    return _FLOATS.get(element, np.float32)


def memory_dtype(type_: Type) -> Any:
    """The dtype of a type in memory: `i1` takes a byte."""
    element = element_of(type_)
    if isinstance(element, FloatType) and element not in _FLOATS:
        return _CODES[element.bits]
    if element == IntType(1):
        return np.uint8
    return np.float32 if element == F32 else value_dtype(element)


def encode(values: Array, type_: Type) -> Array:
    """Numbers as they are kept in memory, rounded to the type."""
    element = element_of(type_)
    if isinstance(element, FloatType) and element not in _FLOATS:
        rounded = round_to(np.asarray(values, np.float32), element)
        if element == BF16:
            return (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return _encode_small(np.where(np.isinf(values), values, rounded), element)
    return np.asarray(values).astype(memory_dtype(element))


def decode(stored: Array, type_: Type) -> Array:
    """The values of numbers as they are kept in memory."""
    element = element_of(type_)
    if element == BF16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if isinstance(element, FloatType) and element not in _FLOATS:
        return _small_table(element)[stored]
    return stored.astype(value_dtype(element))


def widened(values: Array) -> Array:
    """Operands of arithmetic, in float64 where that is asked for."""
    return (
        values.astype(np.float64)
        if _wide.get() is not None and np.asarray(values).dtype.kind == "f"
        else values
    )


def round_to(values: Array, type_: Type, toward_zero: bool = False) -> Array:
    """Floating-point numbers rounded to a type (ties to even, or toward zero) as values of it; f8 saturates."""
    rounded, wide = _rounded(values, type_, toward_zero), _wide.get()
    if wide is not None and not wide.rounded:
        narrow = rounded.astype(np.float32) if element_of(type_) == F32 else rounded
        wide.rounded = bool(((narrow != values) & ~np.isnan(values)).any())
    return rounded


def round_away(values: Array, type_: FloatType) -> Array:
    """Numbers as an 8-bit type without NaN takes them by `rna`: what is beyond the last but one, and NaN, becomes
    that."""
    sizes = np.abs(np.asarray(values, np.float64))
    limit = float(_small_table(type_)[type_.largest_code - 1])
    sizes = np.where(np.isnan(sizes), limit, np.minimum(sizes, limit))
    step = _small_step(sizes, type_)
    return np.copysign(np.floor(sizes / step + 0.5) * step, values).astype(np.float32)


def _rounded(values: Array, type_: Type, toward_zero: bool) -> Array:
    element = element_of(type_)
    if toward_zero and element != F32 and np.asarray(values).dtype == np.float64:
        values = _rounded(values, F32, toward_zero)  # What is cut off in two steps is what is cut off in one.
    if element == BF16:
        bits = np.ascontiguousarray(np.asarray(values, np.float32)).view(np.uint32)
        carry = np.uint32(0) if toward_zero else np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        rounded = ((bits + carry) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isnan(values), np.float32(np.nan), rounded).reshape(np.shape(values))
    if isinstance(element, FloatType) and element not in _FLOATS:
        return _round_small(np.asarray(values, np.float32), element, toward_zero)
    dtype = value_dtype(element)
    rounded = np.asarray(values).astype(dtype)
    if toward_zero and dtype is not np.float64:
        rounded = np.where(
            np.abs(rounded.astype(np.float64)) > np.abs(values), np.nextafter(rounded, dtype(0)), rounded
        )
    return rounded


def poison(type_: Type, shape: tuple[int, ...]) -> Array:
    """The content of an undefined value: NaN, or a conspicuous number."""
    element = element_of(type_)
    if isinstance(element, FloatType):
        return np.full(shape, np.nan, value_dtype(element))
    if element == IntType(1):
        return np.ones(shape, np.bool_)
    dtype = np.dtype(value_dtype(element))
    return np.full(shape, int.from_bytes(b"\xa5" * dtype.itemsize, "little", signed=True), dtype)


@cache
def _small_table(type_: FloatType) -> Array:
    """The values of all 256 codes of an 8-bit type."""
    mantissa = type_.mantissa_bits
    codes = np.arange(128)
    exponent, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
    normal = (fraction + (1 << mantissa)) * np.exp2(float(-type_.bias - mantissa) + exponent)
    positive = np.where(exponent == 0, fraction * np.exp2(1.0 - type_.bias - mantissa), normal)
    positive[type_.largest_code + 1 :] = np.nan
    if type_.specials == "ieee":
        positive[type_.largest_code + 1] = np.inf
    return np.concatenate([positive, -positive]).astype(np.float32)


def _small_step(magnitudes: Array, type_: FloatType) -> Array:
    """The distance of an 8-bit type's numbers from one to the next, where some float64 numbers are."""
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.floor(np.log2(magnitudes)), 1 - type_.bias)
    return np.exp2(exponent - type_.mantissa_bits)


def _round_small(values: Array, type_: FloatType, toward_zero: bool) -> Array:
    magnitude = np.abs(values).astype(np.float64)
    with np.errstate(all="ignore"):
        step = _small_step(magnitude, type_)
        rounded = (np.trunc if toward_zero else np.rint)(magnitude / step) * step
    rounded = np.minimum(np.where(np.isinf(magnitude), np.inf, rounded), type_.largest)
    return np.copysign(rounded, values).astype(np.float32)


def _encode_small(values: Array, type_: FloatType) -> Array:
    positive = _small_table(type_)[:128]
    count = int(np.isfinite(positive).sum())
    codes = np.searchsorted(positive[:count], np.abs(values))
    codes = np.where(np.isnan(values), 127, np.where(np.isinf(values), count, codes))
    return (codes | np.where(np.signbit(values), 128, 0)).astype(np.uint8)
