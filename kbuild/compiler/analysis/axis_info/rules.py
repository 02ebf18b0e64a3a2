"""How each operation on integers and pointers changes what is known of numbers."""

from __future__ import annotations

from math import gcd

from kbuild.compiler.analysis.axis_info.facts import (
    MAX_DIVISOR,
    AxisInfo,
    Info,
    aligned,
    axes_of,
    power_of_two_in,
    transfer,
    uniform,
    unit_of,
    unknown,
)
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.types import I1, bit_width, element_of, shape_of
from kbuild.compiler.ops.elementwise import (
    AddI,
    AddPtr,
    AndI,
    Binary,
    Bitcast,
    CmpI,
    DivSI,
    DivUI,
    ExtSI,
    ExtUI,
    IntToPtr,
    MaxSI,
    MaxUI,
    MinSI,
    MinUI,
    MulI,
    OrI,
    PtrToInt,
    RemSI,
    RemUI,
    Select,
    ShLI,
    ShRSI,
    ShRUI,
    SubI,
    TruncI,
    XOrI,
    unsigned,
    wrap,
)
from kbuild.compiler.ops.gpu import ConvertLayout, SetAutoLayout
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    ExpandDims,
    Load,
    MakeRange,
    Reshape,
    Splat,
    Trans,
    Unsplat,
)

Axes = tuple[int, ...]


def _common(a: Axes, b: Axes) -> Axes:
    return tuple(map(gcd, a, b))


def _capped(divisor: int) -> int:
    return min(divisor, MAX_DIVISOR)


def _everywhere(info: Info, axis: int) -> int:
    """A factor of every number, not only of the first of each group."""
    return info.divisibility_at(axis, 1)


# Making and shaping


@transfer(MakeRange)
def make_range(op: MakeRange, known: AxisInfo) -> Info:
    size = axes_of(op.type)[0]
    return Info((size,), (power_of_two_in(op.start),), (1,))


@transfer(Splat)
def splat(op: Splat, known: AxisInfo) -> Info:
    src = known.get(op.src)
    return uniform(axes_of(op.type), src.divisibility[0], src.constant)


@transfer(Unsplat)
def unsplat(op: Unsplat, known: AxisInfo) -> Info:
    src = known.get(op.src)
    return Info((1,), (max(src.divisibility),), (1,), src.constant)


@transfer(ExpandDims)
def expand_dims(op: ExpandDims, known: AxisInfo) -> Info:
    """Along the new axis every number is a group of its own, with the factor that all numbers share."""
    src, axis = known.get(op.src), op.axis
    shared = gcd(*(_everywhere(src, old) for old in range(len(src.contiguity))))
    return Info(
        (*src.contiguity[:axis], 1, *src.contiguity[axis:]),
        (*src.divisibility[:axis], shared, *src.divisibility[axis:]),
        (*src.constancy[:axis], 1, *src.constancy[axis:]),
        src.constant,
        (*src.prefixes[:axis], 1, *src.prefixes[axis:]),
    )


@transfer(Broadcast)
def broadcast(op: Broadcast, known: AxisInfo) -> Info:
    src = known.get(op.src)
    sizes = list(zip(shape_of(op.src.type), shape_of(op.type)))
    constancy, prefix = (
        tuple(fact if old == new else new for (old, new), fact in zip(sizes, facts))
        for facts in (src.constancy, src.prefixes)
    )
    return Info(src.contiguity, src.divisibility, constancy, src.constant, prefix)


@transfer(Trans)
def trans(op: Trans, known: AxisInfo) -> Info:
    src = known.get(op.src)
    contiguity, divisibility, constancy, prefix = (
        tuple(facts[axis] for axis in op.order)
        for facts in (src.contiguity, src.divisibility, src.constancy, src.prefixes)
    )
    return Info(contiguity, divisibility, constancy, src.constant, prefix)


@transfer(Reshape)
def reshape(op: Reshape, known: AxisInfo) -> Info:
    """The rows of the new shape are pieces of the last axis, or whole ones of it; nothing is kept along other
    axes."""
    src, shape = known.get(op.src), axes_of(op.type)
    if op.allow_reorder or shape_of(op.src.type)[-1] % shape[-1]:
        return unknown(op.type)
    rest = len(shape) - 1
    group = gcd(src.contiguity[-1], shape[-1])
    ones = (1,) * rest
    constancy, prefix = ((*ones, gcd(facts[-1], shape[-1])) for facts in (src.constancy, src.prefixes))
    return Info((*ones, group), (*ones, src.divisibility_at(-1, group)), constancy, src.constant, prefix)


@transfer(ExtSI, ExtUI, TruncI, IntToPtr, PtrToInt, Bitcast, ConvertLayout, SetAutoLayout)
def same_numbers(op: Op, known: AxisInfo) -> Info:
    src, result = op.operands[0], op.results[0]
    info = known.get(src)
    if isinstance(op, ExtUI | TruncI) and info.constant is not None:
        narrow = min(bit_width(src.type), bit_width(op.type))
        changed = unsigned(info.constant, narrow) if isinstance(op, ExtUI) else wrap(info.constant, narrow)
        info = info._replace(constant=int(changed))
    if isinstance(op, ExtUI) and not known.signs.is_non_negative_value(src):
        info = aligned(info)
    if unit_of(src.type) == unit_of(result.type):
        return info
    # Addresses are consecutive in steps of elements, integers in steps of one.
    ones = (1,) * len(info.contiguity)
    divisibility = tuple(info.divisibility_at(axis, 1, unit_of(src.type)) for axis in range(len(ones)))
    return Info(ones, divisibility, info.constancy, info.constant)


@transfer(AxisAttributes)
def axis_attributes(op: AxisAttributes, known: AxisInfo) -> Info:
    """The facts that are known, or those that the kernel's author asserts where they say more."""
    src = known.get(op.src)
    sizes = axes_of(op.src.type)

    def at_least(facts: Axes, hints: Axes, limits: Axes) -> Axes:
        return (
            tuple(max(f, min(power_of_two_in(h), limit)) for f, h, limit in zip(facts, hints, limits))
            if hints
            else facts
        )

    return Info(
        at_least(src.contiguity, op.contiguity, sizes),
        at_least(src.divisibility, op.divisibility, (MAX_DIVISOR,) * len(sizes)),
        at_least(src.constancy, op.constancy, sizes),
        src.constant,
    )


@transfer(Load)
def load(op: Load, known: AxisInfo) -> Info:
    """Equal addresses load equal numbers."""
    info = unknown(op.results[0].type)
    constancy = known.get(op.ptr).constancy
    for operand in (op.mask, op.other):
        if operand is not None:
            constancy = _common(constancy, known.get(operand).constancy)
    return Info(info.contiguity, info.divisibility, constancy)


# Arithmetic


def _folded(op: Binary, a: Info, b: Info) -> Info | None:
    """The facts of a constant."""
    if a.constant is None or b.constant is None or op.fold is None:
        return None
    value = op.fold(a.constant, b.constant)
    if value is None:
        return None
    value = int(wrap(value, bit_width(op.lhs.type)))
    return uniform(axes_of(op.lhs.type), power_of_two_in(value), value)


@transfer(AddI, AddPtr)
def add(op: AddI | AddPtr, known: AxisInfo) -> Info:
    """Consecutive numbers stay so when the same is added to all of a group."""
    a, b = (known.get(operand) for operand in op.operands)
    if isinstance(op, AddI) and (folded := _folded(op, a, b)):
        return folded
    contiguity = tuple(
        max(gcd(ca, kb), gcd(cb, ka))
        for ca, ka, cb, kb in zip(a.contiguity, a.constancy, b.contiguity, b.constancy)
    )
    unit = unit_of(op.operands[0].type)
    divisibility = tuple(
        gcd(a.divisibility_at(axis, group, unit), _capped(b.divisibility_at(axis, group) * unit))
        for axis, group in enumerate(contiguity)
    )
    return Info(contiguity, divisibility, _common(a.constancy, b.constancy))


@transfer(SubI)
def subtract(op: SubI, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    if folded := _folded(op, a, b):
        return folded
    contiguity = _common(a.contiguity, b.constancy)
    divisibility = tuple(
        gcd(a.divisibility_at(x, g), b.divisibility_at(x, g)) for x, g in enumerate(contiguity)
    )
    return Info(contiguity, divisibility, _common(a.constancy, b.constancy))


@transfer(MulI)
def multiply(op: MulI, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    if folded := _folded(op, a, b):
        return folded
    for one, other in ((a, b), (b, a)):
        if one.constant == 1:
            return other
    return _scaled(a, b)


def _scaled(a: Info, b: Info) -> Info:
    """A product: no run of consecutive numbers is left, but factors multiply."""
    axes = range(len(a.contiguity))
    divisibility = tuple(_capped(_everywhere(a, axis) * _everywhere(b, axis)) for axis in axes)
    return Info((1,) * len(axes), divisibility, _common(a.constancy, b.constancy))


@transfer(DivSI, DivUI)
def divide(op: DivSI | DivUI, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    return (_folded(op, a, b) if isinstance(op, DivSI) else None) or _divided(_rounded_down(op, known), b)


def _divided(a: Info, b: Info) -> Info:
    """Consecutive numbers have one quotient as long as none of them reaches the next multiple of the divisor."""
    if b.constant == 1:
        return a
    axes = range(len(a.contiguity))
    constancy = tuple(max(gcd(a.constancy[x], b.constancy[x]), _aligned_group(a, b, x)) for x in axes)
    divisor = (
        b.constant
        if b.constant is not None and b.constant > 0 and power_of_two_in(b.constant) == b.constant
        else None
    )
    divisibility = tuple(max(_everywhere(a, x) // divisor, 1) if divisor else 1 for x in axes)
    return Info((1,) * len(axes), divisibility, constancy)


def _aligned_group(a: Info, b: Info, axis: int) -> int:
    """How many consecutive numbers, aligned to as many, fit between two multiples of the same number."""
    return gcd(a.contiguity[axis], a.divisibility[axis], _everywhere(b, axis), b.constancy[axis])


@transfer(RemSI, RemUI)
def remainder(op: RemSI | RemUI, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    return (_folded(op, a, b) if isinstance(op, RemSI) else None) or _remaining(_rounded_down(op, known), b)


def _rounded_down(op: Binary, known: AxisInfo) -> Info:
    """The facts of a dividend, without its runs where they may lie below zero: there quotients are rounded
    up."""
    a = known.get(op.lhs)
    if isinstance(op, DivUI | RemUI) or max(a.contiguity) == 1 or known.signs.is_non_negative_value(op.lhs):
        return a
    axes = range(len(a.contiguity))
    return a._replace(contiguity=(1,) * len(axes), divisibility=tuple(_everywhere(a, axis) for axis in axes))


def _remaining(a: Info, b: Info) -> Info:
    axes = range(len(a.contiguity))
    contiguity = tuple(_aligned_group(a, b, axis) for axis in axes)
    divisibility = tuple(gcd(a.divisibility_at(x, g), _everywhere(b, x)) for x, g in enumerate(contiguity))
    return Info(contiguity, divisibility, _common(a.constancy, b.constancy))


@transfer(ShLI)
def shift_left(op: ShLI, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    return _scaled(a, uniform(b.constancy, 1 << _shift(b, op)))


@transfer(ShRSI, ShRUI)
def shift_right(op: ShRSI | ShRUI, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    if b.constant is None:
        return Info((1,) * len(a.contiguity), (1,) * len(a.contiguity), _common(a.constancy, b.constancy))
    power = 1 << _shift(b, op)
    return _divided(a, Info(b.contiguity, (power,) * len(b.contiguity), b.constancy, power))


def _shift(amount: Info, op: Binary) -> int:
    """The bits of a shift, as far as they are known; counts have no sign, and beyond the width nothing is
    left to shift."""
    bits = bit_width(op.lhs.type)
    return min(unsigned(amount.constant or 0, bits), bits - 1)


@transfer(AndI)
def bitwise_and(op: AndI, known: AxisInfo) -> Info:
    """A mask of low bits is a remainder; one without low bits rounds down; truth values agree where both
    agree, and come first where they do in both."""
    a, b = known.get(op.lhs), known.get(op.rhs)
    if folded := _folded(op, a, b):
        return folded
    mask = b.constant
    if element_of(op.lhs.type) == I1:
        return _agreeing(a, b)._replace(prefix=_common(a.prefixes, b.prefixes))
    if mask is not None:
        if mask > 0 and mask & (mask + 1) == 0:
            return _remaining(a, Info(b.contiguity, (mask + 1,) * len(b.contiguity), b.constancy, mask + 1))
        step = Info(b.contiguity, (power_of_two_in(mask),) * len(b.contiguity), b.constancy)
        axes = range(len(a.contiguity))
        constancy = tuple(max(gcd(a.constancy[x], b.constancy[x]), _aligned_group(a, step, x)) for x in axes)
        return Info(
            (1,) * len(axes), tuple(max(_everywhere(a, x), step.divisibility[x]) for x in axes), constancy
        )
    return _agreeing(a, b)


@transfer(OrI, XOrI, MinSI, MaxSI, MinUI, MaxUI)
def agreeing(op: Binary, known: AxisInfo) -> Info:
    a, b = known.get(op.lhs), known.get(op.rhs)
    return _folded(op, a, b) or _agreeing(a, b)


def _agreeing(a: Info, b: Info) -> Info:
    """A result that has the factors of both, and is constant where both are."""
    axes = range(len(a.contiguity))
    divisibility = tuple(gcd(_everywhere(a, axis), _everywhere(b, axis)) for axis in axes)
    return Info((1,) * len(axes), divisibility, _common(a.constancy, b.constancy))


# Comparison and choice


@transfer(CmpI)
def compare(op: CmpI, known: AxisInfo) -> Info:
    """All or none of an aligned group of consecutive numbers are less than a multiple of the group's size; those
    less than any number come first."""
    a, b = known.get(op.lhs), known.get(op.rhs)
    axes = range(len(a.contiguity))
    constancy = list(_common(a.constancy, b.constancy))
    prefix = constancy[:]
    for axis in axes:
        if op.predicate in ("slt", "sge", "ult", "uge"):
            constancy[axis] = max(constancy[axis], _aligned_group(a, b, axis))
        elif op.predicate in ("sgt", "sle", "ugt", "ule"):
            constancy[axis] = max(constancy[axis], _aligned_group(b, a, axis))
        if op.predicate in ("slt", "sle", "ult", "ule"):
            prefix[axis] = _rising_group(a, b, axis, op.predicate[0] == "u")
        elif op.predicate in ("sgt", "sge", "ugt", "uge"):
            prefix[axis] = _rising_group(b, a, axis, op.predicate[0] == "u")
    return Info((1,) * len(axes), (1,) * len(axes), tuple(constancy), None, tuple(prefix))


def _rising_group(a: Info, b: Info, axis: int, unsigned: bool) -> int:
    """How many consecutive numbers are compared with the same one.  Without sign, a group must not pass from
    -1 to 0."""
    group = gcd(a.contiguity[axis], b.constancy[axis])
    return gcd(group, a.divisibility[axis]) if unsigned else group


@transfer(Select)
def select(op: Select, known: AxisInfo) -> Info:
    condition, a, b = (known.get(operand) for operand in op.operands)
    if condition.constant is not None:
        return a if condition.constant else b
    unit = unit_of(op.true_value.type)
    contiguity = tuple(gcd(*facts) for facts in zip(a.contiguity, b.contiguity, condition.constancy))
    if element_of(op.true_value.type) == I1 or not shape_of(op.true_value.type):
        contiguity = (1,) * len(contiguity)
    divisibility = tuple(
        gcd(a.divisibility_at(axis, group, unit), b.divisibility_at(axis, group, unit))
        for axis, group in enumerate(contiguity)
    )
    constancy = tuple(gcd(*facts) for facts in zip(a.constancy, b.constancy, condition.constancy))
    return Info(contiguity, divisibility, constancy)
