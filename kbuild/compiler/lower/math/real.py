"""Arithmetic on f32 or f64 registers, for writing mathematical functions as formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kbuild.compiler.ir.types import F64, FloatType
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import constant

_NO_FRACTION = 1.5 * 2.0**52
"""A number of f64 whose neighbours are integers, as are all for 2^51 around it: its last bits count them."""


class Real:
    """Writes arithmetic of one type; operands are registers or Python numbers."""

    def __init__(self, emit: Emitter, type_: FloatType) -> None:
        self.emit = emit
        self.type = type_
        self.double = type_ == F64
        self.kind = "double" if self.double else "float"
        self.suffix = "f64" if self.double else "f32"
        self.integer = "i64" if self.double else "i32"

    def register(self, value: str | float) -> str:
        return value if isinstance(value, str) else constant(value, self.type)

    def _write(self, opcode: str, *operands: str | float) -> str:
        return self.emit.instruction(f"{opcode} {self.kind} {', '.join(map(self.register, operands))}")

    def call(self, name: str, *operands: str | float) -> str:
        """An intrinsic of this type's operands and result."""
        return self.emit.call(name, self.kind, [(self.kind, self.register(operand)) for operand in operands])

    def add(self, a: str | float, b: str | float) -> str:
        return self._write("fadd", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        return self._write("fsub", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        return self._write("fmul", a, b)

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        return self.call(f"llvm.fma.{self.suffix}", a, b, c)

    def div(self, a: str | float, b: str | float) -> str:
        """The quotient: f32 within 2 ulp, f64 correctly rounded."""
        if self.double:
            return self._write("fdiv", a, b)
        operands = [(self.kind, self.register(operand)) for operand in (a, b)]
        return self.emit.asm("div.full.f32 $0, $1, $2;", "=f,f,f", operands, [self.kind])[0]

    def div_by_common(self, a: str, b: str) -> str:
        """The same quotient of f32, bit by bit, in two instructions where several are divided by the same
        `b`.

        `div.full.f32` is a times 1 / b, both scaled where b or its reciprocal is not a normal number; what
        depends on b alone is written once.
        """
        magnitude = self.absolute(b)
        scale = self.select(self.compare("ogt", magnitude, 2.0**126), 0.25, 1.0)
        scale = self.select(self.compare("olt", magnitude, 2.0**-126), 2.0**24, scale)
        return self.mul(self.mul(a, scale), self.reciprocal(self.mul(b, scale)))

    def reciprocal(self, a: str | float) -> str:
        """1 / a: f32 within 1 ulp and flushing subnormals, f64 correctly rounded."""
        return self.div(1.0, a) if self.double else self.call("llvm.nvvm.rcp.approx.ftz.f", a)

    def sqrt(self, a: str | float) -> str:
        return self.call(f"llvm.sqrt.{self.suffix}", a)

    def negate(self, a: str) -> str:
        return self.emit.instruction(f"fneg {self.kind} {a}")

    def absolute(self, a: str) -> str:
        return self.call(f"llvm.fabs.{self.suffix}", a)

    def with_sign(self, magnitude: str | float, sign: str) -> str:
        return self.call(f"llvm.copysign.{self.suffix}", magnitude, sign)

    def round(self, a: str) -> str:
        """To the nearest integer, ties to even; a number of f64 of less than 2^51.

        In f64 by additions: the hardware converts a quarter as many numbers, and rounds them no faster.
        """
        if self.double:
            return self.sub(self.add(a, _NO_FRACTION), _NO_FRACTION)
        return self.call("llvm.rint.f32", a)

    def compare(self, predicate: str, a: str | float, b: str | float) -> str:
        """An i1 register; `predicate` as in LLVM's fcmp."""
        return self._write(f"fcmp {predicate}", a, b)

    def select(self, condition: str, a: str | float, b: str | float) -> str:
        return self.emit.select(condition, self.register(a), self.register(b), self.kind)

    def either(self, a: str, b: str) -> str:
        return self.emit.instruction(f"or i1 {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.emit.instruction(f"and i1 {a}, {b}")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """c[0] + c[1]·x + c[2]·x² + …, by Horner's scheme."""
        result: str | float = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return self.register(result)

    def split_constant(self, value: float, tail: float) -> tuple[float, float]:
        """The constant `value + tail` as another sum, whose first part has half of this type's bits, so that
        multiples by small integers are exact."""
        bits = 32 if self.double else 14
        mantissa, exponent = math.frexp(value)
        high = math.ldexp(math.floor(math.ldexp(mantissa, bits)), exponent - bits)
        return high, value - high + tail

    # -- bits ------------------------------------------------------------------------------------------------------

    @property
    def _mantissa_bits(self) -> int:
        return self.type.mantissa_bits

    def bits(self, a: str) -> str:
        return self.emit.instruction(f"bitcast {self.kind} {a} to {self.integer}")

    def from_bits(self, a: str) -> str:
        return self.emit.instruction(f"bitcast {self.integer} {a} to {self.kind}")

    def normalized(self, a: str) -> tuple[str, str]:
        """`a` and 0; for what is less than all positive normal numbers a · 2^64 and -64."""
        subnormal = self.compare("olt", a, 2.2250738585072014e-308 if self.double else 1.1754944e-38)
        return self.select(subnormal, self.mul(a, 2.0**64), a), self.select(subnormal, -64.0, 0.0)

    def split(self, a: str, more: str) -> tuple[str, str]:
        """A positive normal number as m · 2^e: m in [2/3, 4/3), and e + `more`, both of this type."""
        emit, kind, shift = self.emit, self.integer, self._mantissa_bits
        two_thirds = 0x3FE5555555555555 if self.double else 0x3F2AAAAB
        raw = self.bits(a)
        above = emit.instruction(f"sub {kind} {raw}, {two_thirds}")
        shifted = emit.instruction(f"and {kind} {above}, {-1 << shift}")
        mantissa = self.from_bits(emit.instruction(f"sub {kind} {raw}, {shifted}"))
        if self.double:
            exponent = emit.instruction(f"ashr {kind} {above}, {shift}")
            return mantissa, self.add(emit.instruction(f"sitofp {kind} {exponent} to double"), more)
        # A float has all of these integers, so the multiplication takes the place of the shift.
        exponent = emit.instruction(f"sitofp {kind} {shifted} to float")
        return mantissa, self.fma(exponent, 2.0**-shift, more)

    def power_of_two(self, exponent: str) -> str:
        """2^exponent for an integral number in the range of normal exponents."""
        return self._power(self._integer(exponent))

    def scale(self, a: str, exponent: str) -> str:
        """a · 2^exponent in two steps, so that the result may overflow or be subnormal; an integral exponent up to
        twice a normal one."""
        number = self._integer(exponent)
        half = self.emit.instruction(f"ashr i32 {number}, 1")
        rest = self.emit.instruction(f"sub i32 {number}, {half}")
        return self.mul(self.mul(a, self._power(half)), self._power(rest))

    def _integer(self, number: str) -> str:
        """An integral number as i32; any for those that it does not have."""
        emit = self.emit
        if self.double:  # What remains of its bits where those of fractions are none.
            return emit.instruction(f"trunc i64 {self.bits(self.add(number, _NO_FRACTION))} to i32")
        return emit.instruction(f"freeze i32 {emit.instruction(f'fptosi float {number} to i32')}")

    def _power(self, number: str) -> str:
        """2^number for an i32 in the range of normal exponents."""
        emit, kind = self.emit, self.integer
        biased = emit.add(number, "1023" if self.double else "127", "i32")
        wide = emit.instruction(f"zext i32 {biased} to i64") if self.double else biased
        return self.from_bits(emit.shift(wide, self._mantissa_bits, kind))
