"""Gives tensor cores the numbers that were loaded, where they were widened to f32 for a dot by tensor cores.

    Before:  %0: tensor<64x64xf32> = arith.extf %a
             %1: tensor<64x64xf32> = arith.extf %b
             %2: tensor<64x64xf32> = tt.dot %0, %1, %c
    After:   %2: tensor<64x64xf32> = tt.dot %a, %b, %c

A tf32 has all digits of f16, bf16 and fp8, and more exponents, so that the products are the same, and so is the type in
which they are summed.  The shorter numbers take half the instructions and half the shared memory, where the copies of the
pipeline leave them as wgmma reads them, in either order.  Of the precisions that take operands apart (`split_dots`) one dot
is left, to which %c is added in f32, as there.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import (
    BF16,
    F16,
    F32,
    FLOATS8,
    FloatType,
    TensorType,
    bit_width,
    element_of,
    like,
)
from kbuild.compiler.ops.elementwise import AddF, Constant, ExtF, Select, round_float
from kbuild.compiler.ops.tensor import Broadcast, Dot, ExpandDims, Reshape, Trans
from kbuild.targets import Target

narrowing = Rewrites()
_MOVES = (Trans, Reshape, ExpandDims, Broadcast)
"""Operations that give elements other places."""
_STEP = 16
"""Elements along k that an instruction for 16 bits takes: twice those for tf32."""


@tensor_pass
def narrow_dots(module: Module, target: Target) -> None:
    for function in module.functions.values():
        if any(isinstance(op, Dot) for op in function.body.walk()):
            narrowing.apply(function)


@narrowing.on(Dot)
def of_widened(op: Dot) -> Dot | AddF | None:
    """dot(extf(a), extf(b), c) = dot(a, b, c)"""
    assert isinstance(op.a.type, TensorType)
    if element_of(op.a.type) != F32 or op.input_precision == "ieee" or op.a.type.shape[-1] < _STEP:
        return None
    for element in (F16, BF16):
        if _is_exact(op.a, element) and _is_exact(op.b, element):
            a, b = (_narrowed(operand, element) for operand in (op.a, op.b))
            if op.input_precision == "tf32":
                return Dot(a, b, op.c, op.input_precision, op.max_num_imprecise_acc, op.atom)
            zeros = Constant.of(0.0, op.c.type).result
            return AddF(Dot(a, b, zeros, max_num_imprecise_acc=op.max_num_imprecise_acc).result, op.c)
    return None


def _is_exact(value: Value, element: FloatType) -> bool:
    """Whether a value consists of numbers of 8 or 16 bits that `element` holds, too, and of constants."""
    op = value.op
    if isinstance(op, ExtF):
        return element_of(op.src.type) in (element, *FLOATS8)
    if isinstance(op, Constant):
        return round_float(float(op.value), element) == float(op.value)
    if isinstance(op, Select):
        return _is_exact(op.true_value, element) and _is_exact(op.false_value, element)
    return isinstance(op, _MOVES) and _is_exact(op.src, element)


def _narrowed(value: Value, element: FloatType) -> Value:
    """The same numbers as `element`."""
    op = value.op
    if isinstance(op, ExtF):
        return op.src if bit_width(op.src.type) == 16 else ExtF(op.src, like(value.type, element)).result
    if isinstance(op, Constant):
        return Constant.of(op.value, like(value.type, element)).result
    assert isinstance(op, (Select, *_MOVES))
    numbers = (op.true_value, op.false_value) if isinstance(op, Select) else (op.src,)
    copy = op.clone({number: _narrowed(number, element) for number in numbers})
    copy.results[0].type = like(value.type, element)
    return copy.results[0]
