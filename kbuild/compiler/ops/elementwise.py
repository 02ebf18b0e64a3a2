"""Operations on single elements: one class of one or two lines each, the table of arithmetic and mathematics.

The class keywords are the whole definition: `llvm` is the instruction (`add`) or intrinsic (`@llvm.maxnum`;
empty where `lower/` has a handler or formula), `numpy` the name of the function that means the same in numpy
(or in the interpreter's own table), `fold` the meaning on Python numbers, for constant folding.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.traits import PURE, Trait
from kbuild.compiler.ir.types import I1, FloatType, IntType, Type, element_of, like

Number = bool | int | float


def wrap(value: int, bits: int) -> int:
    """An integer as the signed number its low `bits` bits stand for; a truth value for one bit."""
    if bits == 1:
        return bool(value & 1)
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    """The unsigned number with the same bits."""
    return value & ((1 << bits) - 1)


def shift_factor(count: int, bits: int) -> int:
    """The factor of `ShLI` by a constant: counts have no sign, and the width or more shifts all bits
    out."""
    count = unsigned(count, bits)
    return 1 << count if count < bits else 0


def round_float(value: float, type_: FloatType) -> float:
    """The nearest number of a floating-point type, ties to even; f8 saturates, the others overflow to
    infinity."""
    if type_.bits == 64 or math.isnan(value) or value == 0:
        return value
    largest = type_.largest
    beyond = math.copysign(largest if type_.bits == 8 else math.inf, value)
    # Rounding the largest doubles to fewer digits would give more than a double holds.
    if abs(value) > 2 * largest:
        return beyond
    exponent = max(math.frexp(value)[1] - 1, 1 - type_.bias)
    steps = round(math.ldexp(value, type_.mantissa_bits - exponent))
    rounded = math.copysign(
        math.ldexp(steps, exponent - type_.mantissa_bits), value
    )  # -0.0 of a tiny negative number
    return beyond if abs(rounded) > largest else rounded


class Constant(Op, name="arith.constant", traits=PURE):
    """A number; of tensor type, the tensor filled with it.  Integers are kept signed, `i1` as truth values."""

    value: Number
    type: Type

    @staticmethod
    def of(value: Number, type_: Type) -> Constant:
        """The constant `value` of a type: integers wrapped to the type's width, floating-point numbers
        rounded."""
        element = element_of(type_)
        if isinstance(element, IntType):
            return Constant(wrap(int(value), element.bits), type_)
        return Constant(
            round_float(float(value), element) if isinstance(element, FloatType) else float(value), type_
        )


class Elementwise(Op):
    """Acts on each element alone."""

    llvm: ClassVar[str] = ""
    numpy: ClassVar[str] = ""
    fold: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(
        cls,
        name: str = "",
        llvm: str = "",
        numpy: str = "",
        fold: Callable[..., Any] | None = None,
        traits: Trait = Trait.NONE,
    ) -> None:
        super().__init_subclass__(name=name, traits=PURE | Trait.ELEMENTWISE | traits)
        cls.llvm, cls.numpy, cls.fold = llvm, numpy, staticmethod(fold) if fold is not None else None


class Unary(Elementwise):
    src: Value

    def infer(self) -> list[Type]:
        return [self.src.type]


class Binary(Elementwise):
    lhs: Value
    rhs: Value

    def infer(self) -> list[Type]:
        return [self.lhs.type]


class Ternary(Elementwise):
    a: Value
    b: Value
    c: Value

    def infer(self) -> list[Type]:
        return [self.a.type]


class Compare(Elementwise):
    lhs: Value
    rhs: Value
    predicate: str

    def infer(self) -> list[Type]:
        return [like(self.lhs.type, I1)]


class Cast(Elementwise):
    """To the element type of `type`, which has the shape and layout of `src`."""

    src: Value
    type: Type


COMMUTES = Trait.COMMUTES


def _divide_toward_zero(a: int, b: int) -> int | None:
    return None if b == 0 else int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


def _remainder_toward_zero(a: int, b: int) -> int | None:
    return None if b == 0 else a - b * (int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b)))


# Integers.  Folding sees signed numbers and wraps the result; operations on unsigned ones say so by their
# class.


class AddI(Binary, name="arith.addi", llvm="add", numpy="add", fold=operator.add, traits=COMMUTES): ...


class SubI(Binary, name="arith.subi", llvm="sub", numpy="subtract", fold=operator.sub): ...


class MulI(Binary, name="arith.muli", llvm="mul", numpy="multiply", fold=operator.mul, traits=COMMUTES): ...


class DivSI(Binary, name="arith.divsi", llvm="sdiv", numpy="divsi", fold=_divide_toward_zero):
    """Rounds toward zero, as C does.  By zero it gives some number, and does no more harm than that."""


class RemSI(Binary, name="arith.remsi", llvm="srem", numpy="remsi", fold=_remainder_toward_zero):
    """Has the sign of the dividend, as in C.  By zero: some number."""


class DivUI(Binary, name="arith.divui", llvm="udiv", numpy="divui"):
    """By zero: some number."""


class RemUI(Binary, name="arith.remui", llvm="urem", numpy="remui"):
    """By zero: some number."""


class AndI(
    Binary, name="arith.andi", llvm="and", numpy="bitwise_and", fold=operator.and_, traits=COMMUTES
): ...


class OrI(Binary, name="arith.ori", llvm="or", numpy="bitwise_or", fold=operator.or_, traits=COMMUTES): ...


class XOrI(
    Binary, name="arith.xori", llvm="xor", numpy="bitwise_xor", fold=operator.xor, traits=COMMUTES
): ...


class ShLI(Binary, name="arith.shli", llvm="shl", numpy="left_shift"):
    """`rhs`, here and in the other shifts, counts without sign; the element's width or more shifts all bits
    out, as in PTX."""


class ShRSI(Binary, name="arith.shrsi", llvm="ashr", numpy="right_shift"): ...


class ShRUI(Binary, name="arith.shrui", llvm="lshr", numpy="shrui"): ...


class MaxSI(Binary, name="arith.maxsi", llvm="@llvm.smax", numpy="maximum", fold=max, traits=COMMUTES): ...


class MinSI(Binary, name="arith.minsi", llvm="@llvm.smin", numpy="minimum", fold=min, traits=COMMUTES): ...


class MaxUI(Binary, name="arith.maxui", llvm="@llvm.umax", numpy="maxui", traits=COMMUTES): ...


class MinUI(Binary, name="arith.minui", llvm="@llvm.umin", numpy="minui", traits=COMMUTES): ...


class MulHiUI(Binary, name="tt.mulhiui", numpy="mulhiui", traits=COMMUTES):
    """The upper half of the unsigned product."""


class AbsI(Unary, name="math.absi", numpy="abs", fold=abs): ...


class CountOnes(Unary, name="math.ctpop", llvm="@llvm.ctpop", numpy="bitwise_count"): ...


class CountLeadingZeros(Unary, name="math.ctlz", numpy="ctlz"):
    """How many zeros stand before the first one; all bits of zero."""


class CmpI(Compare, name="arith.cmpi", numpy="cmpi"):
    """`predicate`: eq ne slt sle sgt sge ult ule ugt uge."""


# Floating point


class AddF(Binary, name="arith.addf", llvm="fadd", numpy="add", fold=operator.add, traits=COMMUTES): ...


class SubF(Binary, name="arith.subf", llvm="fsub", numpy="subtract", fold=operator.sub): ...


class MulF(Binary, name="arith.mulf", llvm="fmul", numpy="multiply", fold=operator.mul, traits=COMMUTES): ...


class DivF(Binary, name="arith.divf", numpy="divide"):
    """The fast quotient: f32 within 2 ulp (PTX `div.full.f32`)."""


class PreciseDivF(Binary, name="tt.precise_divf", llvm="fdiv", numpy="divide"):
    """The correctly rounded quotient."""


class RemF(Binary, name="arith.remf", numpy="fmod"):
    """C's fmod: the sign of the dividend."""


class MaxNumF(Binary, name="arith.maxnumf", llvm="@llvm.maxnum", numpy="fmax", traits=COMMUTES):
    """A number wins over NaN."""


class MinNumF(Binary, name="arith.minnumf", llvm="@llvm.minnum", numpy="fmin", traits=COMMUTES):
    """A number wins over NaN."""


class MaximumF(Binary, name="arith.maximumf", llvm="@llvm.maximum", numpy="maximum", traits=COMMUTES):
    """NaN wins."""


class MinimumF(Binary, name="arith.minimumf", llvm="@llvm.minimum", numpy="minimum", traits=COMMUTES):
    """NaN wins."""


class NegF(Unary, name="arith.negf", llvm="fneg", numpy="negative", fold=operator.neg): ...


class CmpF(Compare, name="arith.cmpf", numpy="cmpf"):
    """`predicate`: oeq one olt ole ogt oge (false with a NaN) and ueq une ult ule ugt uge (true with one)."""


class Fma(Ternary, name="math.fma", llvm="@llvm.fma", numpy="fma"):
    """a·b + c, rounded once."""


class ClampF(Ternary, name="tt.clampf", numpy="clampf"):
    """`a` clamped between `b` and `c`; `propagate_nan` keeps a NaN of `a`."""

    propagate_nan: bool = False


class AbsF(Unary, name="math.absf", llvm="@llvm.fabs", numpy="abs", fold=abs): ...


class Exp(Unary, name="math.exp", numpy="exp"): ...


class PreciseExp(Unary, name="tt.precise_exp", numpy="exp"):
    """e^x to the last digits, where `math.exp` has fewer of large exponents."""


class Exp2(Unary, name="math.exp2", numpy="exp2"): ...


class ExpM1(Unary, name="math.expm1", numpy="expm1"): ...


class Log(Unary, name="math.log", numpy="log"): ...


class Log2(Unary, name="math.log2", numpy="log2"): ...


class Log10(Unary, name="math.log10", numpy="log10"): ...


class Log1P(Unary, name="math.log1p", numpy="log1p"): ...


class Sqrt(Unary, name="math.sqrt", numpy="sqrt"):
    """The fast square root (PTX `sqrt.approx.ftz.f32`)."""


class PreciseSqrt(Unary, name="tt.precise_sqrt", llvm="@llvm.sqrt", numpy="sqrt"):
    """The correctly rounded square root."""


class RSqrt(Unary, name="math.rsqrt", numpy="rsqrt"): ...


class Sin(Unary, name="math.sin", numpy="sin"): ...


class Cos(Unary, name="math.cos", numpy="cos"): ...


class Tan(Unary, name="math.tan", numpy="tan"): ...


class Tanh(Unary, name="math.tanh", numpy="tanh"): ...


class FastTanh(Unary, name="tt.fast_tanh", numpy="tanh"):
    """One instruction, relative error about 2^-11 (PTX `tanh.approx.f32`)."""


class ASin(Unary, name="math.asin", numpy="arcsin"): ...


class ACos(Unary, name="math.acos", numpy="arccos"): ...


class ATan(Unary, name="math.atan", numpy="arctan"): ...


class ATan2(Binary, name="math.atan2", numpy="arctan2"): ...


class Sinh(Unary, name="math.sinh", numpy="sinh"): ...


class Cosh(Unary, name="math.cosh", numpy="cosh"): ...


class Erf(Unary, name="math.erf", numpy="erf"): ...


class PowF(Binary, name="math.powf", numpy="power"): ...


class Floor(Unary, name="math.floor", llvm="@llvm.floor", numpy="floor", fold=math.floor): ...


class Ceil(Unary, name="math.ceil", llvm="@llvm.ceil", numpy="ceil", fold=math.ceil): ...


class TruncateF(Unary, name="math.trunc", llvm="@llvm.trunc", numpy="trunc", fold=math.trunc): ...


class RoundEven(Unary, name="math.roundeven", llvm="@llvm.roundeven", numpy="rint", fold=round): ...


class Round(Unary, name="math.round", llvm="@llvm.round", numpy="round_half_away"): ...


class CopySign(Binary, name="math.copysign", llvm="@llvm.copysign", numpy="copysign", fold=math.copysign): ...


class IsNan(Unary, name="math.isnan", numpy="isnan"):
    def infer(self) -> list[Type]:
        return [like(self.src.type, I1)]


class IsInf(Unary, name="math.isinf", numpy="isinf"):
    def infer(self) -> list[Type]:
        return [like(self.src.type, I1)]


class IsFinite(Unary, name="math.isfinite", numpy="isfinite"):
    def infer(self) -> list[Type]:
        return [like(self.src.type, I1)]


# Choice and conversion


class Select(Elementwise, name="arith.select", llvm="select", numpy="where"):
    """`true_value` where `condition` (i1) holds; both are evaluated."""

    condition: Value
    true_value: Value
    false_value: Value

    def infer(self) -> list[Type]:
        return [self.true_value.type]


class ExtSI(Cast, name="arith.extsi", llvm="sext", numpy="extsi"): ...


class ExtUI(Cast, name="arith.extui", llvm="zext", numpy="extui"): ...


class TruncI(Cast, name="arith.trunci", llvm="trunc", numpy="trunci"): ...


class SIToFP(Cast, name="arith.sitofp", llvm="sitofp", numpy="sitofp"): ...


class UIToFP(Cast, name="arith.uitofp", llvm="uitofp", numpy="uitofp"): ...


class FPToSI(Cast, name="arith.fptosi", llvm="fptosi", numpy="fptosi"):
    """Toward zero; values out of range saturate and NaN gives zero, as PTX's `cvt.rzi` has it: 8 bits are the
    low ones of 16, and NaN gives the top bit alone where the source or the result has 64 bits."""


class FPToUI(Cast, name="arith.fptoui", llvm="fptoui", numpy="fptoui"):
    """Toward zero, as `arith.fptosi`."""


class ExtF(Cast, name="arith.extf", llvm="fpext", numpy="extf"):
    """To a wider floating-point type: exact."""


class TruncF(Cast, name="arith.truncf", llvm="fptrunc", numpy="truncf"):
    """To a narrower floating-point type; `rounding` is `rtne` (nearest, ties to even) or `rtz`; f8 saturates.
    To f8E4M3B15 it is `rna` (nearest, ties away from zero), from f16 alone: more than 1.75, and NaN, become 1.75."""

    rounding: str = "rtne"


class Bitcast(Cast, name="tt.bitcast", llvm="bitcast", numpy="bitcast"):
    """The same bits as another type of the same width."""


class IntToPtr(Cast, name="tt.int_to_ptr", llvm="inttoptr", numpy="int_to_ptr"): ...


class PtrToInt(Cast, name="tt.ptr_to_int", llvm="ptrtoint", numpy="ptr_to_int"): ...


class AddPtr(Elementwise, name="tt.addptr", numpy="addptr"):
    """A pointer moved by `offset` elements (i32, sign-extended, or i64)."""

    ptr: Value
    offset: Value

    def infer(self) -> list[Type]:
        return [self.ptr.type]
