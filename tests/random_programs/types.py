"""The generator's knowledge of a value: its element type, shape, and which numbers it may hold.

Results are compared bit for bit, so the generator keeps track of ranges: integers that may divide, index and
shift only where that is defined, and floats that hold whole numbers small enough that every sum and product
of them is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

WHOLE = "whole"
"""Integers; floats that hold whole numbers within the range."""
ANY = "any"
"""Floats of any size, known to the last bit except for the sign of zero and the payload of NaN."""
ROUNDED = "rounded"
"""Like ANY, from an operation that rounds: a sum of it might be contracted to an fma."""
INEXACT = "inexact"
"""Floats that depend on approximate instructions; they are only moved and stored."""
_ORDER = (WHOLE, ANY, ROUNDED, INEXACT)


@dataclass(frozen=True)
class DType:
    """An element type."""

    name: str
    """In `tl`."""
    signature: str
    bits: int
    is_float: bool = False
    is_signed: bool = True
    limit: int = 0
    """Of a float: the greatest whole number up to which all are exact."""
    storage: str = ""
    """numpy's dtype of an array in memory."""

    @property
    def low(self) -> int:
        return -self.limit if self.is_float else -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def high(self) -> int:
        return self.limit if self.is_float else (1 << (self.bits - self.is_signed)) - 1

    @property
    def is_fp8(self) -> bool:
        return self.is_float and self.bits == 8

    @property
    def is_bool(self) -> bool:
        return self.bits == 1


I1 = DType("int1", "i1", 1, is_signed=False, storage="uint8")
I8, I16, I32, I64 = (DType(f"int{n}", f"i{n}", n, storage=f"int{n}") for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (
    DType(f"uint{n}", f"u{n}", n, is_signed=False, storage=f"uint{n}") for n in (8, 16, 32, 64)
)
F16 = DType("float16", "fp16", 16, True, limit=2048, storage="float16")
BF16 = DType("bfloat16", "bf16", 16, True, limit=256, storage="uint16")
F32 = DType("float32", "fp32", 32, True, limit=1 << 24, storage="float32")
F64 = DType("float64", "fp64", 64, True, limit=1 << 53, storage="float64")
E4M3 = DType("float8e4nv", "fp8e4nv", 8, True, limit=16, storage="uint8")
E5M2 = DType("float8e5", "fp8e5", 8, True, limit=8, storage="uint8")

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F16, BF16, F32, F64)
FP8 = (E4M3, E5M2)
NUMBERS = INTEGERS + FLOATS


@dataclass(frozen=True)
class Type:
    """The type of an expression, and which values it may have."""

    dtype: DType
    shape: tuple[int, ...] = ()
    low: int = 0
    high: int = 0
    kind: str = WHOLE

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        return self.kind == WHOLE

    def fits(self, other: Type) -> bool:
        """Whether a value of this type may stand where one of the other is."""
        if (self.dtype, self.shape) != (other.dtype, other.shape) or _ORDER.index(self.kind) > _ORDER.index(
            other.kind
        ):
            return False
        return not other.is_whole or self.within(other.low, other.high)

    def within(self, low: int, high: int) -> bool:
        return self.is_whole and low <= self.low and self.high <= high

    def shaped(self, *shape: int) -> Type:
        return replace(self, shape=shape)

    def ranged(self, low: int, high: int) -> Type:
        return replace(self, low=low, high=high, kind=WHOLE)


def full(dtype: DType, shape: tuple[int, ...] = ()) -> Type:
    """Any value of an integer type, or any float."""
    return Type(dtype, shape, dtype.low, dtype.high, ANY if dtype.is_float else WHOLE)


def union(first: Type, second: Type) -> Type:
    """The type of a value that is one of two."""
    kind = max(first.kind, second.kind, key=_ORDER.index)
    return Type(first.dtype, first.shape, min(first.low, second.low), max(first.high, second.high), kind)


def worst(*types: Type) -> str:
    """The kind of what is one of several values."""
    return max((t.kind for t in types), key=_ORDER.index)


def result(dtype: DType, shape: tuple[int, ...], low: int, high: int) -> Type | None:
    """The type of an arithmetic result: integers wrap around; None where a float might not be exact."""
    if dtype.low <= low and high <= dtype.high:
        return Type(dtype, shape, low, high)
    return None if dtype.is_float else full(dtype, shape)


def corners(operation, a: Type, b: Type) -> tuple[int, int]:
    """The range of a function that is monotonic in each operand."""
    values = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(values), max(values)


@cache
def pow2(limit: int) -> tuple[int, ...]:
    return tuple(1 << n for n in range(limit.bit_length()) if 1 << n <= limit)
