"""Lets the lanes along a reduction's axis divide its results, where each of them would get all.

Before:
    %s: tensor<32xf32, #all> = tt.reduce %x {axis = 1} …            32 results, by 160 shuffles, in every lane
    %half: tensor<32xf16, #all> = arith.truncf %s
    %r: tensor<32xf16, #one> = ttg.convert_layout %half
After:
    %s: tensor<32xf32, #one> = tt.reduce %x {axis = 1, scatter = [1, 2, 4, 8, 16]} …   one per lane, by 31 shuffles
    %r: tensor<32xf16, #one> = arith.truncf %s

Lanes that meet to combine several results keep half of them each: a reduce-scatter, the first part of an
all-reduce.  Where all lanes need the results, a conversion gathers them, by one shuffle each.  Elementwise operations
on nothing but the results come before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbuild.compiler.analysis.scratch import plan_reduce
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.commutes import commutes
from kbuild.compiler.ir.core import Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import bit_width, layout_of
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.combine import function_cost, warp_instruction
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Reduce, Splat
from kbuild.compiler.transforms._support.layout_flow import Relaid, held_layout, tensor_operands, tensor_type
from kbuild.compiler.transforms.gpu.layout.remove_conversions.cost import conversion_cost
from kbuild.targets import Target

_WARP = 5
"""Bits of the lane number."""
_WORD_BITS = 32
_TRIP = 4
"""What a shuffle costs, in additions."""
_CONVERTED = 2
"""Additions for an instruction of `conversion_cost`."""
_WORTH = 0.75
"""What is left of the cost, at most, where it is worth the change."""


@gpu_pass
def scatter_reductions(module: Module, target: Target) -> None:
    """Divide the results of reductions among lanes where that costs less, conversions included."""
    for func in module.functions.values():
        reductions = [op for op in func.body.walk() if isinstance(op, Reduce)]
        divided = [(op, scatter) for op in reductions if (scatter := _cheapest(op, _lanes(op)))]
        filled = Relaid()
        for op, scatter in divided:
            _divide(op, scatter, filled)
        if divided:
            erase_dead(func.body)


def _lanes(op: Reduce) -> list[int]:
    """The bits of the lane number that may divide the results, in the order in which they are combined.  None where that
    order matters, where a single instruction combines all, or where partials are narrow, which share words."""
    types = [tensor_type(src).element for src in op.srcs]
    if (
        op.scatter
        or held_layout(op.srcs[0]).rank < 2
        or any(bit_width(type_) < _WORD_BITS for type_ in types)
    ):
        return []
    if not held_layout(op.results[0]).bits("register") or not (op.any_order or commutes(op.combine)):
        return []
    lanes = [step.distance.bit_length() - 1 for step in plan_reduce(op).steps]
    at_once = len(lanes) == _WARP and warp_instruction(op.combine, types[0])
    return [] if at_once else lanes


def _cheapest(op: Reduce, lanes: Sequence[int]) -> tuple[int, ...]:
    """The division with the lowest cost; an empty one where that of all for each is not much higher."""
    if not lanes:
        return ()
    result = held_layout(op.results[0])
    wanted = [use.layout for value in op.results for use in _uses(value) if use.layout is not None]
    whole = _cost(op, lanes, (0,) * _WARP)
    best, found = _WORTH * whole, ()
    for count in range(1, min(len(lanes), result.bits("register")) + 1):
        scatter = _matched(result, lanes[:count], wanted)
        cost = _cost(op, lanes, scatter)
        if cost <= best:
            best, found = cost, scatter
    return found


def _matched(result: LinearLayout, lanes: Sequence[int], wanted: Sequence[LinearLayout]) -> tuple[int, ...]:
    """For each of some lanes a register of the results: one that a later layout has there, or the highest left."""
    left, scatter = sorted(result.bases_of("register")), [0] * _WARP
    for layout in wanted:
        for lane in lanes:
            if not scatter[lane] and layout.bases_of("lane")[lane] in left:
                scatter[lane] = layout.bases_of("lane")[lane]
                left.remove(scatter[lane])
    for lane in lanes:
        scatter[lane] = scatter[lane] or left.pop()
    return tuple(scatter)


def _cost(op: Reduce, lanes: Sequence[int], scatter: Sequence[int]) -> float:
    """The steps over lanes and the conversions after them, in additions."""
    words = sum(bit_width(src.type) // _WORD_BITS for src in op.srcs)
    step = _TRIP * words + function_cost(op.combine)
    result = held_layout(op.results[0])
    partials, total = result.size("register"), 0.0
    for lane in lanes:
        if scatter[lane]:
            partials //= 2
            total += 2 * words * partials  # What to keep is selected, and what to give away.
        total += step * partials
    given = result.scatter(scatter)
    for value in op.results:
        for use in _uses(value):
            wanted = use.layout or result
            total += _CONVERTED * conversion_cost(given, wanted, use.bits)
    return total


@dataclass(frozen=True)
class _Use:
    """A layout that something needs a value in, or what is computed of it: None for its own."""

    layout: LinearLayout | None
    bits: int


def _uses(value: Value) -> Iterator[_Use]:
    """The conversions that follow a result."""
    plain = False
    for user in value.users:
        if isinstance(user, ConvertLayout):
            yield _Use(layout_of(user.type), bit_width(user.type))
        elif _follows(user, value):
            yield from _uses(user.results[0])
        else:
            plain = True
    if plain:
        yield _Use(None, bit_width(value.type))


def _follows(op: Op, value: Value) -> bool:
    """Whether an operation on a result, and on what is the same for all elements, may be done before they are
    gathered."""
    others = (other for _, other in tensor_operands(op) if other is not value)
    return (
        op.has(Trait.ELEMENTWISE)
        and op.has(Trait.PURE)
        and len(op.results) == 1
        and value.op is not None
        and op.parent is value.op.parent
        and all(isinstance(other.op, Splat | Constant) for other in others)
    )


def _divide(op: Reduce, scatter: tuple[int, ...], filled: Relaid) -> None:
    whole = held_layout(op.results[0])
    op.scatter = scatter
    for result, type_ in zip(op.results, op.infer(), strict=True):
        result.type = type_
        _gather(result, held_layout(result), whole, filled)


def _gather(value: Value, layout: LinearLayout, whole: LinearLayout, filled: Relaid) -> None:
    """Let what follows have a value in its new layout, and the others in its former one."""
    assert value.op is not None
    gathered: Value | None = None
    for user in list(value.users):
        if isinstance(user, ConvertLayout):
            continue
        if _follows(user, value):
            for index, other in tensor_operands(user):
                if other is not value:
                    user.set_operand(index, filled.get(other, layout))
            result = user.results[0]
            result.type = tensor_type(result).with_layout(layout)
            _gather(result, layout, whole, filled)
            continue
        if gathered is None:
            convert = ConvertLayout(value, tensor_type(value).with_layout(whole))
            gathered = Builder.after(value.op).add(convert, value.name).result
        user.replace_operand(value, gathered)
