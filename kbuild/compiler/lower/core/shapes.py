"""Making and shaping tensors: mostly the same registers in another order."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.types import TensorType, Type
from kbuild.compiler.layout import LinearLayout, joined_layout
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import coordinate, register_moves
from kbuild.compiler.lower.core.lowering import Results, lower
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    Cat,
    ExpandDims,
    GetNumPrograms,
    GetProgramId,
    Join,
    MakeRange,
    Reshape,
    Splat,
    Split,
    Trans,
    Unsplat,
)
from kbuild.errors import InternalError


def layout(type_: Type) -> LinearLayout:
    """The layout of a tensor type, which ttgir guarantees."""
    if not isinstance(type_, TensorType) or type_.layout is None:
        raise InternalError(f"{type_} has no layout: run the gpu pipeline first")
    return type_.layout


def chosen(emit: Emitter, source: Sequence[str], indices: Sequence[int]) -> Sequence[str]:
    """Some registers of a value, in some order, still lazy."""
    return emit.lazy(len(indices), lambda index: source[indices[index]])


@lower(GetProgramId)
def lower_program_id(emit: Emitter, op: GetProgramId) -> Sequence[str]:
    with emit.at_entry():
        return [emit.call(f"llvm.nvvm.read.ptx.sreg.ctaid.{'xyz'[op.axis]}", "i32", [])]


@lower(GetNumPrograms)
def lower_num_programs(emit: Emitter, op: GetNumPrograms) -> Sequence[str]:
    with emit.at_entry():
        return [emit.call(f"llvm.nvvm.read.ptx.sreg.nctaid.{'xyz'[op.axis]}", "i32", [])]


@lower(MakeRange)
def lower_make_range(emit: Emitter, op: MakeRange) -> Sequence[str]:
    own = layout(op.type)

    def element(register: int) -> str:
        base, constant = coordinate(emit, own, 0, register)
        return emit.add(base, str(constant + op.start))

    return emit.lazy(own.size("register"), element)


@lower(Splat)
def lower_splat(emit: Emitter, op: Splat) -> Sequence[str]:
    source = emit.registers(op.src)
    return emit.lazy(layout(op.type).size("register"), lambda index: source[0])


@lower(Unsplat)
def lower_unsplat(emit: Emitter, op: Unsplat) -> Sequence[str]:
    return chosen(emit, emit.registers(op.src), [0])


@lower(AxisAttributes)
def lower_axis_attributes(emit: Emitter, op: AxisAttributes) -> Sequence[str]:
    return emit.registers(op.src)


View = Broadcast | ExpandDims | Reshape | Trans


def source_registers(emit: Emitter, op: View) -> Sequence[int]:
    """For each register of the result, the register of the operand that it is."""
    if op not in emit.views:
        own = layout(op.src.type)
        if isinstance(op, Trans):
            own = own.transpose(op.order)
        elif isinstance(op, ExpandDims):
            own = own.expand_dims(op.axis)
        elif isinstance(op, Reshape):
            own = own.reshape(layout(op.type).shape)
        result = layout(op.results[0].type)
        emit.views[op] = range(own.size("register")) if own == result else register_moves(own, result)
    return emit.views[op]


@lower(Broadcast, ExpandDims, Trans)
def lower_view(emit: Emitter, op: View) -> Sequence[str]:
    return chosen(emit, emit.registers(op.src), source_registers(emit, op))


@lower(Reshape)
def lower_reshape(emit: Emitter, op: Reshape) -> Sequence[str]:
    source = emit.registers(op.src)
    if op.allow_reorder and layout(op.type).size("register") == len(source):
        return source
    return chosen(emit, source, source_registers(emit, op))


@lower(Join)
def lower_join(emit: Emitter, op: Join) -> Sequence[str]:
    """One register bit chooses the half, as the result's layout says."""
    halves = emit.registers(op.lhs), emit.registers(op.rhs)
    moves = register_moves(joined_layout(layout(op.lhs.type)), layout(op.results[0].type))
    return emit.lazy(len(moves), lambda index: halves[moves[index] & 1][moves[index] >> 1])


@lower(Split)
def lower_split(emit: Emitter, op: Split) -> Results:
    """One register bit chooses the half."""
    source, halves = emit.registers(op.src), joined_layout(layout(op.results[0].type))
    moves = register_moves(layout(op.src.type), halves)
    return Results([chosen(emit, source, moves[half::2]) for half in (0, 1)])


@lower(Cat)
def lower_cat(emit: Emitter, op: Cat) -> Sequence[str]:
    """Any order will do: the registers of one after those of the other."""
    first, second = emit.registers(op.lhs), emit.registers(op.rhs)
    count = layout(op.type).size("register")
    if count != len(first) + len(second):
        raise InternalError(
            f"{op.op_name}: {len(first)} + {len(second)} registers do not make {count}", op.loc
        )
    return emit.lazy(count, lambda index: first[index] if index < len(first) else second[index - len(first)])
