"""Elementwise operations: one handler, which applies a scalar form to every register.

The form follows from the `llvm` entry of the operation's row; rows without one have theirs here, conversions
of floating-point types in `casts.py`, mathematical functions in `math.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS8,
    I1,
    I16,
    FloatType,
    IntType,
    TensorType,
    Type,
    element_of,
)
from kbuild.compiler.layout.linear import axis_bits
from kbuild.compiler.lower.core.casts import by_pairs, cast_registers, neighbours
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import constant, llvm_type
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.words import from_word, known_place, to_word
from kbuild.compiler.lower.math.functions import has_math, math_function
from kbuild.compiler.lower.math.real import Real
from kbuild.compiler.lower.math.wide_division import DIVISIONS, divide_at_once
from kbuild.compiler.lower.memory.global_memory import axis_info
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.elementwise import unsigned
from kbuild.errors import CompileError, InternalError

Form = Callable[..., str]
"""Emitter, operation, the element type it computes in, and one register per operand → the result's register."""

_FORMS: dict[type[Op], Form] = {}
_IN_F32 = (
    rows.DivF,
    rows.PreciseDivF,
    rows.RemF,
    rows.PreciseSqrt,
    rows.Sqrt,
    rows.RSqrt,
    rows.FastTanh,
    rows.ClampF,
)
"""Rows that 16-bit types compute in f32, besides mathematical functions; each is rounded once, at the end."""
_PACKED = (rows.AddF, rows.SubF, rows.MulF)
"""Rows that take two 16-bit floats in an instruction."""
_ROUNDINGS = (rows.Floor, rows.Ceil, rows.TruncateF, rows.RoundEven, rows.Round)


def form(*classes: type[Op]) -> Callable[[Form], Form]:
    """Register the scalar form of rows that have no `llvm` entry."""

    def register(function: Form) -> Form:
        _FORMS.update(dict.fromkeys(classes, function))
        return function

    return register


def lower_elementwise(emit: Emitter, op: rows.Elementwise) -> Sequence[str]:
    """Apply the operation's form to each register, computing 16-bit floats in f32 where that is how it is
    done."""
    sources = [emit.registers(operand) for operand in op.operands]
    element = element_of(op.operands[0].type)
    apply = _FORMS.get(type(op)) or _from_table(op, element)
    if element in FLOATS8 and not isinstance(op, rows.Select):
        raise CompileError(
            f"{op.op_name} has no {element} form", op.loc, "convert to float16 or float32 first"
        )
    if element in (F16, BF16) and _in_f32(op, element):
        return emit.lazy(
            len(sources[0]), lambda index: _through_f32(emit, op, apply, element, [s[index] for s in sources])
        )
    if len(sources[0]) > 1 and _has_packed_form(emit, op, element):
        return emit.lazy(
            len(sources[0]), by_pairs(emit, lambda index: _pair(emit, op, element, sources, index))
        )
    same = _equal_registers(emit, op)
    if isinstance(op, DIVISIONS) and (found := divide_at_once(emit, op, sources, same)) is not None:
        return found

    def make(index: int) -> str:
        first = same[index] if same else index
        return (
            registers[first]
            if first != index
            else apply(emit, op, element, *[source[index] for source in sources])
        )

    registers = emit.lazy(len(sources[0]), make)
    return registers


def _has_packed_form(emit: Emitter, op: rows.Elementwise, element: Type) -> bool:
    return isinstance(op, _PACKED) and (
        element == F16 or (element == BF16 and emit.target.has("bf16_arithmetic"))
    )


def _pair(
    emit: Emitter, op: rows.Elementwise, element: Type, sources: Sequence[Sequence[str]], index: int
) -> tuple[str, str]:
    """Two neighbouring results: by one instruction where an operand is a word already, and two where all would have to
    be packed first."""
    pairs, opcode, kind = [neighbours(source, index) for source in sources], type(op).llvm, llvm_type(element)
    if not any(known_place(emit, pair, 16) for pair in pairs):
        low, high = (emit.instruction(f"{opcode} {kind} {', '.join(half)}") for half in zip(*pairs))
        return low, high
    words = [
        emit.instruction(f"bitcast i32 {to_word(emit, pair, element)} to <2 x {kind}>") for pair in pairs
    ]
    both = emit.instruction(f"{opcode} <2 x {kind}> {', '.join(words)}")
    low, high = from_word(emit, emit.instruction(f"bitcast <2 x {kind}> {both} to i32"), element)
    return low, high


def _equal_registers(emit: Emitter, op: rows.Elementwise) -> Sequence[int]:
    """For each register of an integer or truth value, the first one known to hold the same: a mask whose
    boundary falls on multiples of 16 is computed once for 16 neighbours.  Empty where nothing is known."""
    type_ = op.result.type
    if not isinstance(type_, TensorType) or not isinstance(type_.element, IntType) or type_.layout is None:
        return ()
    constancy = axis_info(emit).get(op.result).constancy
    ignored = sum(
        (min(run, type_.shape[axis]) - 1) << axis_bits(type_.shape, axis).start
        for axis, run in enumerate(constancy)
    )
    if not ignored:
        return ()
    first: dict[int, int] = {}
    return [
        first.setdefault(flat & ~ignored, register) for register, flat in enumerate(type_.layout.registers())
    ]


def _in_f32(op: rows.Elementwise, element: Type) -> bool:
    return isinstance(op, _IN_F32) or has_math(type(op)) or (element == BF16 and isinstance(op, _ROUNDINGS))


def _through_f32(
    emit: Emitter, op: rows.Elementwise, apply: Form, element: Type, operands: Sequence[str]
) -> str:
    kind = llvm_type(element)
    wide = [emit.instruction(f"fpext {kind} {register} to float") for register in operands]
    return emit.instruction(f"fptrunc float {apply(emit, op, F32, *wide)} to {kind}")


def _from_table(op: rows.Elementwise, element: Type) -> Form:
    entry = type(op).llvm
    if not entry:
        if has_math(type(op)):
            write = math_function(op, F32 if element in (F16, BF16) else element)
            return lambda emit, op, element, *operands: write(emit, operands)
        raise InternalError(f"{op.op_name} has no LLVM form", op.loc)
    if entry.startswith("@"):
        return lambda emit, op, element, *operands: intrinsic(emit, entry[1:], element, operands)
    return lambda emit, op, element, *operands: emit.instruction(
        f"{entry} {llvm_type(element)} {', '.join(operands)}"
    )


def intrinsic(emit: Emitter, name: str, element: Type, operands: Sequence[str]) -> str:
    """An intrinsic overloaded on the type of its operands and result (`llvm.smax`)."""
    kind = llvm_type(element)
    suffix = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(kind, kind)
    return emit.call(f"{name}.{suffix}", kind, [(kind, operand) for operand in operands])


def lower_cast(emit: Emitter, op: rows.Cast) -> Sequence[str]:
    """Conversions: see `casts`, which may take several registers at a time."""
    return cast_registers(emit, op, emit.registers(op.src))


# Rows without an LLVM entry


@lower(rows.Constant)
def lower_constant(emit: Emitter, op: rows.Constant) -> Sequence[str]:
    layout = getattr(op.type, "layout", None)
    return [constant(op.value, op.type)] * (layout.size("register") if layout is not None else 1)


@lower(rows.Select)
def lower_select(emit: Emitter, op: rows.Select) -> Sequence[str]:
    conditions, first, second = (emit.registers(operand) for operand in op.operands)
    kind = llvm_type(op.true_value.type)
    # A scalar condition may choose between tensors.
    return emit.lazy(
        len(first),
        lambda i: emit.select(conditions[i if len(conditions) > 1 else 0], first[i], second[i], kind),
    )


@form(rows.CmpI)
def _compare_integers(emit: Emitter, op: rows.CmpI, element: Type, a: str, b: str) -> str:
    return emit.compare(op.predicate, a, b, llvm_type(element))


@form(rows.CmpF)
def _compare_floats(emit: Emitter, op: rows.CmpF, element: Type, a: str, b: str) -> str:
    return emit.instruction(f"fcmp {op.predicate} {llvm_type(element)} {a}, {b}")


@form(rows.AddI)
def _add(emit: Emitter, op: rows.AddI, element: Type, a: str, b: str) -> str:
    return emit.instruction(f"xor i1 {a}, {b}") if element == I1 else emit.add(a, b, llvm_type(element))


@form(rows.MulI)
def _multiply(emit: Emitter, op: rows.MulI, element: Type, a: str, b: str) -> str:
    return emit.instruction(f"and i1 {a}, {b}") if element == I1 else emit.mul(a, b, llvm_type(element))


@form(rows.DivSI, rows.RemSI, rows.DivUI, rows.RemUI)
def _divide_integers(emit: Emitter, op: rows.Binary, element: Type, a: str, b: str) -> str:
    """From a division LLVM concludes that the divisor is not zero: it drops later comparisons with zero, and
    assumes that a remainder is below its dividend's bound, which is false for the hardware's division by zero.
    So unless the divisor is a constant, an opaque copy of it divides, and the result is opaque, too.  Narrow
    types divide in 16 bits, as the hardware does."""
    assert isinstance(element, IntType)
    signed, kind = isinstance(op, rows.DivSI | rows.RemSI), llvm_type(element)
    if element.bits < 16:
        wide = [
            emit.instruction(f"{'sext' if signed else 'zext'} {kind} {register} to i16")
            for register in (a, b)
        ]
        return emit.instruction(f"trunc i16 {_divide_integers(emit, op, I16, *wide)} to {kind}")
    if b == "-1" and signed:
        # The quotient of the least number overflows.
        return emit.instruction(f"sub {kind} 0, {a}") if isinstance(op, rows.DivSI) else "0"
    if b[0] != "%" and b != "0":
        return emit.instruction(f"{op.llvm} {kind} {a}, {b}")
    return emit.opaque(emit.instruction(f"{op.llvm} {kind} {a}, {emit.opaque(b, kind)}"), kind)


@form(rows.ShLI, rows.ShRUI, rows.ShRSI)
def _shift(emit: Emitter, op: rows.Binary, element: Type, a: str, b: str) -> str:
    """PTX clamps the count, of which it takes 32 bits, to the width.  LLVM gives poison for one that reaches
    the width, and from comparisons of the result it concludes that none does.  The back end knows the choice
    for the two forms that fill with zeros in 32 bits, and takes one instruction (in 64 bits it would cut the
    count off); the others are PTX.  8 bits shift in 16."""
    assert isinstance(element, IntType)
    bits, kind, arithmetic = element.bits, llvm_type(element), isinstance(op, rows.ShRSI)
    if b[0] != "%":
        count = unsigned(int(b), bits)
        if count >= bits and not arithmetic:
            return "0"
        result = emit.instruction(f"{op.llvm} {kind} {a}, {min(count, bits - 1)}")
        if isinstance(op, rows.ShRUI) and kind == "i32":
            emit.places.setdefault(
                result, (a, count)
            )  # What is cut from it, from its lowest bits on, is of `a`.
        return result
    if bits < 16:
        wide = emit.instruction(f"{'sext' if arithmetic else 'zext'} {kind} {a} to i16")
        shifted = _shift(emit, op, I16, wide, emit.instruction(f"zext {kind} {b} to i16"))
        return emit.instruction(f"trunc i16 {shifted} to {kind}")
    if arithmetic or bits != 32:
        if bits == 64:
            count = emit.instruction(
                f"trunc i64 {emit.call('llvm.umin.i64', kind, [(kind, b), (kind, '64')])} to i32"
            )
        else:
            count = emit.instruction(f"zext i16 {b} to i32") if bits == 16 else b
        opcode, letter = (
            {"shl": "shl.b", "lshr": "shr.u", "ashr": "shr.s"}[op.llvm],
            {16: "h", 32: "r", 64: "l"}[bits],
        )
        return emit.asm(
            f"{opcode}{bits} $0, $1, $2;", f"={letter},{letter},r", [(kind, a), ("i32", count)], [kind]
        )[0]
    shifted = emit.instruction(f"{op.llvm} {kind} {a}, {b}")
    return emit.select(emit.compare("ult", b, str(bits), kind), shifted, "0", kind)


@form(rows.Round)
def _round_half_away(emit: Emitter, op: rows.Round, element: Type, a: str) -> str:
    """Half a unit is added toward zero, and the fraction cut off: a number just below a half stays below one, and numbers
    without a fraction remain.  LLVM's own form compares and selects, and keeps the cut apart from a conversion after it."""
    kind = llvm_type(element)
    if kind not in ("float", "double"):
        return intrinsic(emit, "llvm.round", element, [a])
    half = intrinsic(emit, "llvm.copysign", element, ["0.5", a])
    moved = emit.call(f"llvm.nvvm.add.rz.{kind[0]}", kind, [(kind, a), (kind, half)])
    return intrinsic(emit, "llvm.trunc", element, [moved])


@form(rows.AbsI)
def _absolute(emit: Emitter, op: rows.AbsI, element: Type, a: str) -> str:
    kind = llvm_type(element)
    return emit.call(f"llvm.abs.{kind}", kind, [(kind, a), ("i1", "false")])


@form(rows.CountLeadingZeros)
def _leading_zeros(emit: Emitter, op: rows.CountLeadingZeros, element: Type, a: str) -> str:
    kind = llvm_type(element)
    return emit.call(f"llvm.ctlz.{kind}", kind, [(kind, a), ("i1", "false")])


@form(rows.MulHiUI)
def _upper_product(emit: Emitter, op: rows.MulHiUI, element: Type, a: str, b: str) -> str:
    assert isinstance(element, IntType)
    kind, wide = f"i{element.bits}", f"i{2 * element.bits}"
    left, right = (emit.instruction(f"zext {kind} {register} to {wide}") for register in (a, b))
    product = emit.instruction(f"mul {wide} {left}, {right}")
    return emit.instruction(
        f"trunc {wide} {emit.instruction(f'lshr {wide} {product}, {element.bits}')} to {kind}"
    )


@form(rows.DivF)
def _divide(emit: Emitter, op: rows.DivF, element: Type, a: str, b: str) -> str:
    """f32: `div.full.f32`, within 2 ulp over the full range, as in Triton; f64 rounds correctly."""
    assert isinstance(element, FloatType)
    real = Real(emit, element)
    return real.div_by_common(a, b) if element != F64 and _is_common(emit, op.operands[1]) else real.div(a, b)


def _is_common(emit: Emitter, value: Value) -> bool:
    """Whether several registers of a tensor are the same one, as after a broadcast."""
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.layout is None:
        return False
    registers = emit.registers(value)
    return len(registers) > 1 and registers[0] == registers[1]


@form(rows.RemF)
def _remainder(emit: Emitter, op: rows.RemF, element: Type, a: str, b: str) -> str:
    return emit.instruction(f"frem {llvm_type(element)} {a}, {b}")


@form(rows.ClampF)
def _clamp(emit: Emitter, op: rows.ClampF, element: Type, value: str, low: str, high: str) -> str:
    upper, lower_ = ("llvm.maximum", "llvm.minimum") if op.propagate_nan else ("llvm.maxnum", "llvm.minnum")
    return intrinsic(emit, lower_, element, [intrinsic(emit, upper, element, [value, low]), high])


@form(rows.MaximumF, rows.MinimumF)
def _extreme_with_nan(emit: Emitter, op: rows.Elementwise, element: Type, a: str, b: str) -> str:
    if element != F64:
        return intrinsic(emit, type(op).llvm[1:], element, [a, b])
    # There is no max.NaN.f64: a NaN operand is found by comparison, and wins.
    number = intrinsic(
        emit, "llvm.maxnum" if isinstance(op, rows.MaximumF) else "llvm.minnum", element, [a, b]
    )
    unordered = emit.instruction(f"fcmp uno double {a}, {b}")
    return emit.select(unordered, constant(float("nan"), F64), number, "double")


@form(rows.IsNan)
def _is_nan(emit: Emitter, op: rows.IsNan, element: Type, a: str) -> str:
    return emit.instruction(f"fcmp uno {llvm_type(element)} {a}, {a}")


@form(rows.IsInf, rows.IsFinite)
def _is_infinite(emit: Emitter, op: rows.IsInf | rows.IsFinite, element: Type, a: str) -> str:
    predicate = "oeq" if isinstance(op, rows.IsInf) else "olt"
    magnitude = intrinsic(emit, "llvm.fabs", element, [a])
    return emit.instruction(
        f"fcmp {predicate} {llvm_type(element)} {magnitude}, {constant(float('inf'), element)}"
    )


def _register_rows() -> None:
    for cls in vars(rows).values():
        if (
            isinstance(cls, type)
            and issubclass(cls, rows.Elementwise)
            and cls.op_name
            and cls not in (rows.Select, rows.AddPtr)
        ):
            handler: Any = lower_cast if issubclass(cls, rows.Cast) else lower_elementwise
            lower(cls)(handler)


_register_rows()
