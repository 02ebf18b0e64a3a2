"""Computes dots of f32 from several of shorter numbers, whose sums are nearly those of f32.

Before:
    %d: tensor<128x128xf32> = tt.dot %a, %b, %c {input_precision = "bf16x3"}
After (with x = high + low for the elements of %a and %b):
    %1: tensor<128x128xf32> = tt.dot %a_low, %b_high, %zero
    %2: tensor<128x128xf32> = tt.dot %a_high, %b_low, %1
    %3: tensor<128x128xf32> = … %2 where it is a number, else zero …
    %4: tensor<128x128xf32> = tt.dot %a_high, %b_high, %3
    %d: tensor<128x128xf32> = arith.addf %4, %c

`tf32x3` and `bf16x3` take two parts of each operand, `bf16x6` takes three; products of parts that are too small to
matter are left out (for tf32, Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores").  The small
terms come first.  Where an operand is infinite its low part is NaN, and so are their sums: those count as zero,
for the last dot has the right answer.  %c is added to the end result: tensor cores cut what they add, which over a loop of
128 steps was 40 times the error of sums that are rounded.

The parts keep the precision of their dot: computed in registers, they suit `mma.sync`.  With `wgmma`, B's have to be
stored to shared memory first, and products of 4096×4096×4096 at `tf32x3` took twice as long on an H200.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import BF16, F32, I32, TensorType, Type, element_of, like
from kbuild.compiler.ops.elementwise import (
    AddF,
    AndI,
    Bitcast,
    CmpF,
    Constant,
    ExtF,
    Select,
    SubF,
    TruncF,
)
from kbuild.compiler.ops.tensor import Dot
from kbuild.compiler.transforms.gpu.dot.accelerate_matmul import choose_atom
from kbuild.targets import Target

_TF32_MASK = -(1 << 13)
"""Clears the bits of an f32 that a tf32 lacks."""


class _Splitting(NamedTuple):
    """How the operands of a precision are taken apart."""

    element: Type
    """The type of the parts; f32 stands for tf32."""
    parts: int


_SPLITTINGS = {"tf32x3": _Splitting(F32, 2), "bf16x3": _Splitting(BF16, 2), "bf16x6": _Splitting(BF16, 3)}


@gpu_pass
def split_dots(module: Module, target: Target) -> None:
    """Replace dots of the precisions above; those with tiles below the instruction's become `ieee`."""
    for func in module.functions.values():
        for op in list(func.body.walk()):
            if (
                isinstance(op, Dot)
                and not op.atom
                and element_of(op.a.type) == F32
                and op.input_precision in _SPLITTINGS
            ):
                splitting = _SPLITTINGS[op.input_precision]
                if _fits(op, splitting.element, target):
                    _split(op, splitting)
                else:
                    op.input_precision = "ieee"


def _fits(dot: Dot, element: Type, target: Target) -> bool:
    """Whether a tensor core takes dots of the parts."""
    atom = choose_atom(target, element, element, F32, "tf32")
    assert isinstance(dot.a.type, TensorType) and isinstance(dot.b.type, TensorType)
    (m, k), n = dot.a.type.shape[-2:], dot.b.type.shape[-1]
    return atom is not None and m >= atom.m and n >= atom.n and k >= atom.k


def _split(dot: Dot, splitting: _Splitting) -> None:
    build = Builder.before(dot)

    def product(a: Value, b: Value, c: Value) -> Value:
        return build.add(Dot(a, b, c, dot.input_precision), dot.result.name).result

    a, b = (_parts(build, operand, splitting) for operand in (dot.a, dot.b))
    zero = build.add(Constant.of(0.0, dot.c.type)).result
    total = zero
    for place in range(splitting.parts - 1, 0, -1):
        for index in reversed(range(place + 1)):
            total = product(a[index], b[place - index], total)
    is_number = build.add(CmpF(total, total, "oeq")).result
    total = product(a[0], b[0], build.add(Select(is_number, total, zero)).result)
    dot.replace_by(build.add(AddF(total, dot.c), dot.result.name).result)


def _parts(build: Builder, value: Value, splitting: _Splitting) -> list[Value]:
    """Numbers whose sum is nearly the value, the largest first."""
    found: list[Value] = []
    for _ in range(splitting.parts - 1):
        part, exact = _rounded(build, value, splitting.element)
        found.append(part)
        value = build.add(SubF(value, exact)).result
    if splitting.element != F32:  # The instruction itself drops the bits that a tf32 lacks.
        value = build.add(TruncF(value, like(value.type, splitting.element))).result
    return [*found, value]


def _rounded(build: Builder, value: Value, element: Type) -> tuple[Value, Value]:
    """A value with the bits of a part: in its type, and as f32."""
    if element == F32:
        bits = build.add(Bitcast(value, like(value.type, I32))).result
        mask = build.add(Constant.of(_TF32_MASK, bits.type)).result
        part = build.add(Bitcast(build.add(AndI(bits, mask)).result, value.type)).result
        return part, part
    part = build.add(TruncF(value, like(value.type, element))).result
    return part, build.add(ExtF(part, value.type)).result
