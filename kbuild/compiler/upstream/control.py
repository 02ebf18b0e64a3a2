"""Functions, loops, branches and calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.compiler.ir.core import Block, Func, Value
from kbuild.compiler.ir.types import I32, I64, DescriptorType, PointerType, Type, bit_width
from kbuild.compiler.ops.control import Call, Condition, For, If, Return, While, Yield
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import WarpPartition, WarpPartitions, WarpReturn, WarpYield
from kbuild.compiler.ops.tensor import MakeTensorDescriptor, ReduceReturn
from kbuild.compiler.upstream.attributes import TokenType
from kbuild.compiler.upstream.branches import structured
from kbuild.compiler.upstream.building import Building, Results, plain_name, reads
from kbuild.compiler.upstream.syntax import RawBlock, RawFunction, RawOp

_LOOP_HINTS = {
    "tt.num_stages": "num_stages",
    "tt.loop_unroll_factor": "loop_unroll_factor",
    "tt.disallow_acc_multi_buffer": "disallow_acc_multi_buffer",
    "tt.flatten": "flatten",
    "tt.warp_specialize": "warp_specialize",
}
_MAP_ALIGNMENT = 16
"""Bytes of which a tensor map's address and strides are multiples."""
_ARGUMENT_HINTS = {"tt.divisibility": "divisibility"}


def build_function(building: Building, raw: RawFunction, attributes: Mapping[str, Any]) -> Func:
    """A function of the text, with the attributes that ours has."""
    body = Block()
    hints: list[dict[str, Any]] = []
    building.entry = body
    is_kernel = not raw.attributes.get("noinline", False)
    arguments = iter(zip(raw.arguments, raw.names, raw.argument_attributes))
    for (name, type_), source_name, given in arguments:
        own = plain_name(source_name if name.startswith("%arg") else name)
        if isinstance(type_, DescriptorType) and is_kernel:
            rest = [next(arguments, None) for _ in range(2 * type_.block.rank)]
            names = [entry[0][0] for entry in rest if entry is not None]
            building.values.update(_descriptor(building, body, type_, (own, name, *names), hints))
            continue
        building.values[name] = body.add_argument(type_, own)
        hints.append({ours: given[key] for key, ours in _ARGUMENT_HINTS.items() if key in given})
    building.fill(body, structured(building, raw))
    func = Func(raw.name, body, dict(attributes), tuple(hints) if any(hints) else ())
    func.loc = raw.loc
    return func


def _descriptor(
    building: Building, body: Block, type_: DescriptorType, names: Sequence[str], hints: list[dict[str, Any]]
) -> dict[str, Value]:
    """The values of a descriptor among the arguments of a kernel: Triton passes it with the sizes and strides of its
    tensor, kbuild the address, the sizes, and the strides but the last, which is 1."""
    own, name, *others = names
    rank, element = type_.block.rank, type_.block.element
    if len(others) != 2 * rank:
        building.syntax.fail(
            f"{name}: a descriptor of {rank} axes is followed by {rank} sizes and {rank} strides"
        )
    base = body.add_argument(PointerType(element), own)
    sizes = [body.add_argument(I32, f"{own}_shape_{axis}") for axis in range(rank)]
    strides = [body.add_argument(I64, f"{own}_stride_{axis}") for axis in range(rank - 1)]
    step = {"divisibility": _MAP_ALIGNMENT * 8 // bit_width(element)}
    hints += [{"divisibility": _MAP_ALIGNMENT}, *[{}] * rank, *[step] * (rank - 1)]
    with building.builder.inside(body):
        one = building.add(Constant(1, I64)).result
        made = building.add(MakeTensorDescriptor(base, tuple(sizes), (*strides, one), type_)).result
    return dict(zip((name, *others), (made, *sizes, *strides, one)))


def without_tokens(building: Building, op: RawOp, names: Sequence[str], types: Sequence[Type]) -> list[Value]:
    """The values of names, of which those of tokens are left out."""
    return [
        building.value(op, name, type_)
        for name, type_ in zip(names, types)
        if not isinstance(type_, TokenType)
    ]


def with_tokens(types: Sequence[Type], values: Sequence[Value]) -> list[Value | None]:
    """The results of an operation that passes no tokens, in the places that the text has for them."""
    following = iter(values)
    return [None if isinstance(type_, TokenType) else next(following) for type_ in types]


def yielded(building: Building, op: RawOp) -> tuple[Value, ...]:
    """The values that a terminator passes on, without tokens."""
    names = [name for name in op.operands if building.values.get(name, name) is not None]
    types = [type_ for type_ in op.operand_types if not isinstance(type_, TokenType)]
    return tuple(
        building.value(op, name, types[index] if index < len(types) else None)
        for index, name in enumerate(names)
    )


def region(building: Building, raw: Sequence[RawBlock], op: RawOp, is_yielding: bool = True) -> Block:
    """The block of a region; one that passes nothing on may go without its terminator."""
    if len(raw) != 1:
        building.fail(op, "a region of several blocks")
    block = building.fill(building.block(raw[0]), raw[0].ops)
    if is_yielding and (block.last is None or not block.last.is_terminator):
        with building.builder.inside(block):
            building.add(Yield(()))
    return block


@reads("scf.for")
def read_for(building: Building, op: RawOp) -> Results:
    types = op.result_types
    counter = op.regions[0][0].arguments[0][1]
    lower, upper, step = (building.value(op, name, counter) for name in op.operands[:3])
    init = without_tokens(building, op, op.operands[3:], types)
    given = {ours: op.attributes[key] for key, ours in _LOOP_HINTS.items() if key in op.attributes}
    loop = For(lower, upper, step, tuple(init), region(building, op.regions[0], op), **given)
    return with_tokens(types, building.add(loop).results)


@reads("scf.if")
def read_if(building: Building, op: RawOp) -> Results:
    condition = building.operand(op, 0) if op.operand_types else building.value(op, op.operands[0])
    then_body, else_body = (region(building, raw, op) for raw in op.regions)
    types = tuple(type_ for type_ in op.result_types if not isinstance(type_, TokenType))
    return with_tokens(op.result_types, building.add(If(condition, then_body, else_body, types)).results)


@reads("scf.while")
def read_while(building: Building, op: RawOp) -> Results:
    init = without_tokens(building, op, op.operands, op.operand_types)
    before, after = (region(building, raw, op, is_yielding=False) for raw in op.regions)
    types = tuple(type_ for type_ in op.result_types if not isinstance(type_, TokenType))
    return with_tokens(op.result_types, building.add(While(tuple(init), before, after, types)).results)


@reads("scf.yield")
def read_yield(building: Building, op: RawOp) -> Results:
    return building.add(Yield(yielded(building, op))).results


@reads("scf.condition")
def read_condition(building: Building, op: RawOp) -> Results:
    """`scf.condition(%go_on) %a, %b : i32, f32`."""
    condition = building.value(op, op.operands.pop(0))
    return building.add(Condition(condition, yielded(building, op))).results


@reads("tt.return", "func.return")
def read_return(building: Building, op: RawOp) -> Results:
    return building.add(Return(yielded(building, op))).results


@reads("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")
def read_combined(building: Building, op: RawOp) -> Results:
    return building.add(ReduceReturn(yielded(building, op))).results


@reads("tt.call", "func.call")
def read_call(building: Building, op: RawOp) -> Results:
    types = tuple(op.result_types) if op.has_result_types else ()
    return building.add(Call(tuple(building.operands(op)), op.symbol, types)).results


# Partitions of warps


@reads("ttg.warp_yield")
def read_warp_yield(building: Building, op: RawOp) -> Results:
    return building.add(WarpYield(yielded(building, op))).results


@reads("ttg.warp_return")
def read_warp_return(building: Building, op: RawOp) -> Results:
    return building.add(WarpReturn()).results


@reads("ttg.warp_specialize")
def read_warp_specialize(building: Building, op: RawOp) -> Results:
    """What a partition captures is used in it directly; the pass `capture` finds out how it gets there."""
    captured = building.operands(op)
    default = region(building, op.regions[0], op, is_yielding=False)
    registers = op.attributes.get("requestedRegisters", ())
    partitions = Block()
    for number, ((raw, *_), warps) in enumerate(zip(op.regions[1:], op.literals)):
        building.values.update(zip((name for name, _ in raw.arguments), captured))
        body = building.fill(Block(), raw.ops)
        own = int(registers[number]) if number < len(registers) else None
        with building.builder.inside(partitions):
            building.add(WarpPartition(body, warps, own))
    with building.builder.inside(partitions):
        building.add(WarpReturn())
    types = tuple(op.result_types)
    return building.add(WarpPartitions((), default, partitions, types)).results
