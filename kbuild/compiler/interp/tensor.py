"""The meaning of operations on tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kbuild.compiler.interp.formats import Array, decode, dot_operand, encode, poison, round_to, value_dtype
from kbuild.compiler.interp.machine import Machine, means
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import (
    DescriptorType,
    FloatType,
    PointerType,
    TensorType,
    Type,
    bit_width,
    element_of,
    shape_of,
)
from kbuild.compiler.ops.tensor import (
    Advance,
    Assert,
    AtomicCAS,
    AtomicRMW,
    AxisAttributes,
    Barrier,
    Broadcast,
    Cat,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Dot,
    ExpandDims,
    Gather,
    GetNumPrograms,
    GetProgramId,
    GridDependencyWait,
    Histogram,
    Join,
    LaunchDependents,
    Load,
    MakeRange,
    MakeTensorDescriptor,
    MakeTensorPtr,
    MapElementwise,
    Print,
    Reduce,
    Reshape,
    Scan,
    Splat,
    Split,
    Store,
    Trans,
    Unsplat,
)
from kbuild.errors import InterpretError

# Programs


@means(GetProgramId)
def get_program_id(machine: Machine, op: GetProgramId) -> Array:
    return np.int32(machine.program[op.axis])


@means(GetNumPrograms)
def get_num_programs(machine: Machine, op: GetNumPrograms) -> Array:
    return np.int32(machine.grid[op.axis])


# Making and shaping


@means(MakeRange)
def make_range(machine: Machine, op: MakeRange) -> Array:
    return np.arange(op.start, op.end, dtype=value_dtype(op.type))


@means(Splat)
def splat(machine: Machine, op: Splat) -> Array:
    return np.broadcast_to(machine[op.src], shape_of(op.type))


@means(Unsplat)
def unsplat(machine: Machine, op: Unsplat) -> Array:
    return machine[op.src].reshape(())


@means(Broadcast)
def broadcast(machine: Machine, op: Broadcast) -> Array:
    return np.broadcast_to(machine[op.src], shape_of(op.type))


@means(ExpandDims)
def expand_dims(machine: Machine, op: ExpandDims) -> Array:
    return np.expand_dims(machine[op.src], op.axis)


@means(Reshape)
def reshape(machine: Machine, op: Reshape) -> Array:
    return machine[op.src].reshape(shape_of(op.type))


@means(Trans)
def trans(machine: Machine, op: Trans) -> Array:
    return np.transpose(machine[op.src], op.order)


@means(Join)
def join(machine: Machine, op: Join) -> Array:
    return np.stack([machine[op.lhs], machine[op.rhs]], -1)


@means(Split)
def split(machine: Machine, op: Split) -> tuple[Array, Array]:
    return machine[op.src][..., 0], machine[op.src][..., 1]


@means(AxisAttributes)
def axis_attributes(machine: Machine, op: AxisAttributes) -> Array:
    return machine[op.src]


@means(Cat)
def cat(machine: Machine, op: Cat) -> Array:
    return np.concatenate([machine[op.lhs], machine[op.rhs]])


# Memory

DESCRIPTOR_ALIGNMENT = 16
"""Bytes."""


@dataclass(frozen=True)
class BlockPointer:
    """A tile of a tensor in memory: base address, the tensor's shape and strides, and the tile's offsets."""

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    tile: TensorType
    padding: str = ""
    """The value that is read beyond a descriptor's tensor."""

    def addresses(self) -> Array:
        """The address of each element of the tile."""
        size = max(bit_width(self.tile), 8) // 8
        total = np.full((), self.base, np.int64)
        for axis, stride in enumerate(self.strides):
            total = total + self.indices(axis) * (stride * size)
        return np.broadcast_to(total, self.tile.shape)

    def indices(self, axis: int) -> Array:
        """The tensor's coordinate along an axis, in a shape that broadcasts over the tile."""
        shape = [1] * self.tile.rank
        shape[axis] = -1
        return (np.arange(self.tile.shape[axis], dtype=np.int64) + self.offsets[axis]).reshape(shape)

    def inside(self, axes: Sequence[int]) -> Array | None:
        """Which elements lie inside the tensor along some axes; None when no axis is asked for."""
        if not axes:
            return None
        mask = np.ones(self.tile.shape, np.bool_)
        for axis in axes:
            mask &= (self.indices(axis) >= 0) & (self.indices(axis) < self.shape[axis])
        return mask


@means(MakeTensorPtr)
def make_tensor_ptr(machine: Machine, op: MakeTensorPtr) -> BlockPointer:
    shape, strides, offsets = (
        tuple(int(machine[v]) for v in values) for values in (op.shape, op.strides, op.offsets)
    )
    assert isinstance(op.type, PointerType) and isinstance(op.type.pointee, TensorType)
    return BlockPointer(int(machine[op.base]), shape, strides, offsets, op.type.pointee)


@means(Advance)
def advance(machine: Machine, op: Advance) -> BlockPointer:
    pointer: BlockPointer = machine[op.ptr]
    moved = tuple(at + int(machine[by]) for at, by in zip(pointer.offsets, op.offsets))
    return replace(pointer, offsets=moved)


@means(MakeTensorDescriptor)
def make_tensor_descriptor(machine: Machine, op: MakeTensorDescriptor) -> BlockPointer:
    """A block pointer at offset zero, checked for what TMA requires."""
    assert isinstance(op.type, DescriptorType)
    base, block = int(machine[op.base]), op.type.block
    shape, strides = (tuple(int(machine[v]) for v in values) for values in (op.shape, op.strides))
    size = max(bit_width(block), 8) // 8
    pitches = {
        f"stride {axis} is {stride} elements": stride * size for axis, stride in enumerate(strides[:-1])
    }
    for text, number in {f"the base is address {base:#x}": base, **pitches}.items():
        if number % DESCRIPTOR_ALIGNMENT:
            raise InterpretError(
                f"a tensor descriptor's base and strides are divisible by 16 bytes, {text}", op.loc
            )
    return BlockPointer(base, shape, strides, (0,) * block.rank, block, op.padding)


@means(DescriptorLoad)
def descriptor_load(machine: Machine, op: DescriptorLoad) -> Array:
    block = _block_at(machine, op.desc, op.indices)
    type_ = op.results[0].type
    filling = np.full(shape_of(type_), np.nan if block.padding == "nan" else 0, value_dtype(type_))
    return masked_load(
        machine, block.addresses(), block.inside(range(block.tile.rank)), filling, type_, op.loc
    )


@means(DescriptorStore)
def descriptor_store(machine: Machine, op: DescriptorStore) -> None:
    block = _block_at(machine, op.desc, op.indices)
    inside = block.inside(range(block.tile.rank))
    machine.memory.store(block.addresses()[inside], np.asarray(machine[op.src])[inside], op.src.type, op.loc)


@means(DescriptorReduce)
def descriptor_reduce(machine: Machine, op: DescriptorReduce) -> None:
    block = _block_at(machine, op.desc, op.indices)
    inside = block.inside(range(block.tile.rank))
    combine_at(
        machine, block.addresses()[inside], np.asarray(machine[op.src])[inside], op.kind, op.src.type, op.loc
    )


@means(DescriptorGather)
def descriptor_gather(machine: Machine, op: DescriptorGather) -> Array:
    type_, padding = op.results[0].type, machine[op.desc].padding
    addresses, inside = _row_places(machine, op.desc, op.rows, op.column)
    filling = np.full(shape_of(type_), np.nan if padding == "nan" else 0, value_dtype(type_))
    return masked_load(machine, addresses, inside, filling, type_, op.loc)


@means(DescriptorScatter)
def descriptor_scatter(machine: Machine, op: DescriptorScatter) -> None:
    addresses, inside = _row_places(machine, op.desc, op.rows, op.column)
    machine.memory.store(addresses[inside], np.asarray(machine[op.src])[inside], op.src.type, op.loc)


def _row_places(machine: Machine, descriptor: Value, rows: Value, column: Value) -> tuple[Array, Array]:
    """The addresses of rows of a tensor, and which of them lie in it."""
    block: BlockPointer = machine[descriptor]
    down = np.asarray(machine[rows], np.int64)[:, None]
    along = int(machine[column]) + np.arange(block.tile.shape[1], dtype=np.int64)[None, :]
    size = max(bit_width(block.tile), 8) // 8
    inside = (down >= 0) & (down < block.shape[0]) & (along >= 0) & (along < block.shape[1])
    return block.base + (down * block.strides[0] + along * block.strides[1]) * size, inside


def _block_at(machine: Machine, descriptor: Value, indices: Sequence[Value]) -> BlockPointer:
    return replace(machine[descriptor], offsets=tuple(int(machine[index]) for index in indices))


@means(Load)
def load(machine: Machine, op: Load) -> Array:
    type_ = op.results[0].type
    pointer = machine[op.ptr]
    mask = machine[op.mask] if op.mask is not None else None
    other = machine[op.other] if op.other is not None else None
    if isinstance(pointer, BlockPointer):
        mask = pointer.inside(op.boundary_check)
        pointer = pointer.addresses()
        if op.padding:
            other = np.full(shape_of(type_), {"zero": 0, "nan": np.nan}[op.padding], value_dtype(type_))
    return masked_load(machine, pointer, mask, other, type_, op.loc)


def masked_load(
    machine: Machine, addresses: Array, mask: Array | None, other: Array | None, type_: Type, loc: Any
) -> Array:
    """The values at addresses; `other`, or else an undefined value, where the mask is false."""
    if mask is None:
        return machine.memory.load(addresses, type_, loc)
    result = poison(type_, shape_of(type_)) if other is None else np.array(other)
    mask = np.asarray(mask)
    result[mask] = machine.memory.load(np.asarray(addresses)[mask], type_, loc)
    return result


@means(Store)
def store(machine: Machine, op: Store) -> None:
    pointer, value = machine[op.ptr], np.asarray(machine[op.value])
    mask = np.asarray(machine[op.mask]) if op.mask is not None else None
    if isinstance(pointer, BlockPointer):
        mask = pointer.inside(op.boundary_check)
        pointer = pointer.addresses()
    if mask is not None:
        pointer, value = np.asarray(pointer)[mask], value[mask]
    machine.memory.store(pointer, value, op.value.type, op.loc)


def _combined(kind: str, old: Array, value: Array) -> Array:
    if kind in ("umax", "umin"):
        unsigned = f"u{np.asarray(old).dtype.itemsize}"
        function = np.maximum if kind == "umax" else np.minimum
        return function(np.asarray(old).view(unsigned), np.asarray(value).view(unsigned)).view(
            np.asarray(old).dtype
        )
    functions = {
        "add": np.add,
        "fadd": np.add,
        **dict.fromkeys(("max", "fmax"), np.fmax),
        **dict.fromkeys(("min", "fmin"), np.fmin),
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    return value if kind == "xchg" else functions[kind](old, value)


@means(AtomicRMW)
def atomic_rmw(machine: Machine, op: AtomicRMW) -> Array:
    type_ = op.value.type
    addresses, values = np.asarray(machine[op.ptr]), np.asarray(machine[op.value])
    result = poison(type_, addresses.shape)
    mask = np.broadcast_to(machine[op.mask] if op.mask is not None else True, addresses.shape)
    result, places = np.atleast_1d(result), np.flatnonzero(mask)
    for where in (places[chosen] for chosen in rounds_of(addresses.flat[places])):
        result.flat[where] = combine_at(
            machine, addresses.flat[where], values.flat[where], op.kind, type_, op.loc
        )
    return result.reshape(addresses.shape)


def rounds_of(addresses: Array) -> list[Array]:
    """The places in a row of addresses where one is the first of its kind, those where one is the second, and so on: within
    a round all addresses differ, so that its elements can be combined with memory together."""
    _, counts = np.unique(addresses, return_counts=True)
    turns = np.empty(len(addresses), np.int64)
    turns[np.argsort(addresses, kind="stable")] = np.arange(len(addresses)) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    return np.split(np.argsort(turns, kind="stable"), np.cumsum(np.bincount(turns))[:-1])


def combine_at(machine: Machine, addresses: Array, values: Array, kind: str, type_: Type, loc: Any) -> Array:
    """Combine memory at addresses, all different, with values; what was there before."""
    old = machine.memory.load(addresses, type_, loc)
    machine.memory.store(addresses, _rounded(_combined(kind, old, values), type_), type_, loc, atomic=True)
    return old


@means(AtomicCAS)
def atomic_cas(machine: Machine, op: AtomicCAS) -> Array:
    type_ = op.value.type
    addresses, values = np.asarray(machine[op.ptr]), np.asarray(machine[op.value])
    compare = encode(machine[op.compare], type_)
    result = poison(type_, addresses.shape)
    for place in np.ndindex(addresses.shape):
        old = machine.memory.load(addresses[place], type_, op.loc)
        if encode(old, type_) == compare[place]:
            machine.memory.store(addresses[place], values[place], type_, op.loc, atomic=True)
        result[place] = old
    return result


def _rounded(values: Array, type_: Type) -> Array:
    return round_to(values, type_) if isinstance(element_of(type_), FloatType) else values


# Dots, reductions, scans


@means(Dot)
def dot(machine: Machine, op: Dot) -> Array:
    a, b = (dot_operand(machine[value], op.input_precision) for value in (op.a, op.b))
    return matmul_add(a, b, machine[op.c], op.c.type)


def matmul_add(a: Array, b: Array, c: Array, type_: Type) -> Array:
    """a·b + c.  Sums are exact enough in float64 (and in int64) that their order does not show; f32 operands
    are not cut to tf32 here."""
    wide = np.float64 if isinstance(element_of(type_), FloatType) else np.int64
    dot = np.matmul(a.astype(wide), b.astype(wide))
    total = dot + c.astype(dot.dtype)
    return (
        round_to(total, type_)
        if isinstance(element_of(type_), FloatType)
        else total.astype(value_dtype(type_))
    )


def _combine(
    machine: Machine, block: Block, left: Sequence[Array], right: Sequence[Array]
) -> tuple[Array, ...]:
    return machine.run(block, (*left, *right))


@means(Reduce)
def reduce(machine: Machine, op: Reduce) -> tuple[Array, ...]:
    """Neighbours are combined in pairs, in order, until one is left."""
    parts = tuple(np.moveaxis(machine[src], op.axis, 0) for src in op.srcs)
    while parts[0].shape[0] > 1:
        parts = _combine(machine, op.combine, [part[0::2] for part in parts], [part[1::2] for part in parts])
    return tuple(np.asarray(part)[0] for part in parts)


@means(MapElementwise)
def map_elementwise(machine: Machine, op: MapElementwise) -> tuple[Array, ...]:
    """The function runs for each group of neighbours along the last axis."""
    shape, packed = shape_of(op.srcs[0].type), op.packed
    groups = [np.asarray(machine[src]).reshape(-1, packed) for src in op.srcs]
    results = [np.empty(groups[0].shape, value_dtype(element_of(type_))) for type_ in op.types]
    for place in range(len(groups[0])):
        found = machine.run(op.body, tuple(part for group in groups for part in group[place]))
        for number, result in enumerate(results):
            result[place] = found[number * packed : (number + 1) * packed]
    return tuple(result.reshape(shape) for result in results)


@means(Scan)
def scan(machine: Machine, op: Scan) -> tuple[Array, ...]:
    parts = tuple(np.moveaxis(machine[src], op.axis, 0) for src in op.srcs)
    if op.reverse:
        parts = tuple(part[::-1] for part in parts)
    total = tuple(part[0] for part in parts)
    steps = [total]
    for position in range(1, parts[0].shape[0]):
        total = _combine(machine, op.combine, total, [part[position] for part in parts])
        steps.append(total)
    results = [np.stack(column) for column in zip(*steps)]
    if op.reverse:
        results = [result[::-1] for result in results]
    return tuple(np.moveaxis(result, 0, op.axis) for result in results)


@means(Gather)
def gather(machine: Machine, op: Gather) -> Array:
    indices = machine[op.indices]
    size = shape_of(op.src.type)[op.axis]
    if ((indices < 0) | (indices >= size)).any():
        raise InterpretError(f"tt.gather: an index is outside 0 … {size - 1}", op.loc)
    return np.take_along_axis(machine[op.src], indices.astype(np.int64), op.axis)


@means(Histogram)
def histogram(machine: Machine, op: Histogram) -> Array:
    values = machine[op.src]
    if op.mask is not None:
        values = values[machine[op.mask]]
    (bins,) = shape_of(op.type)
    if ((values < 0) | (values >= bins)).any():
        raise InterpretError(f"tt.histogram: an element is outside 0 … {bins - 1}", op.loc)
    return np.bincount(values.reshape(-1), minlength=bins).astype(value_dtype(op.type))


# Debugging


@means(Barrier, GridDependencyWait, LaunchDependents)
def barrier(machine: Machine, op: Barrier | GridDependencyWait | LaunchDependents) -> None:
    """Does nothing: the program has one thread here, and launches do not overlap."""


@means(Assert)
def check(machine: Machine, op: Assert) -> None:
    condition = np.asarray(machine[op.condition], bool)
    if not condition.all():
        element = f" at element {np.argwhere(~condition)[0].tolist()}" if condition.ndim else ""
        program = ", ".join(str(index) for index in machine.program)
        raise InterpretError(f"assertion failed{element} in program ({program}): {op.message}", op.loc)


@means(Print)
def show(machine: Machine, op: Print) -> None:
    program = ", ".join(str(index) for index in machine.program)
    for arg in op.args:
        values = decode(encode(machine[arg], arg.type), arg.type)
        sys.stdout.write(f"pid ({program}) {op.prefix}{values}\n")
