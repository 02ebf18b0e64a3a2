"""TMA and barriers in shared memory.

Triton makes a tensor map in memory of the grid's, from the values of a descriptor; here it is a descriptor again, which
the pass `tma_lowering` makes an argument of the kernel.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import I1, I32, I64, DescriptorType, bit_width
from kbuild.compiler.ops.elementwise import Constant, DivSI, ExtSI, ExtUI, MulI
from kbuild.compiler.ops.nvidia import (
    ArriveBarrier,
    AsyncTmaCopyGlobalToLocal,
    AsyncTmaCopyLocalToGlobal,
    BarrierExpect,
    InitBarrier,
    InvalBarrier,
    TmaStoreWait,
    WaitBarrier,
)
from kbuild.compiler.ops.tensor import MakeTensorDescriptor
from kbuild.compiler.upstream.building import Building, Results, reads
from kbuild.compiler.upstream.memory import reduction_of
from kbuild.compiler.upstream.syntax import RawOp

_UNIT = 16
"""Bytes of which strides of tensor maps are multiples."""


@reads("ttg.global_scratch_alloc")
def read_global_scratch_alloc(building: Building, op: RawOp) -> Results:
    """Memory for a tensor map, which needs none here."""
    return [None]


@reads("ttng.tensormap_create")
def read_tensormap_create(building: Building, op: RawOp) -> Results:
    """`ttng.tensormap_create %place, %base, [box], [sizes], [bytes between indices], [steps] {…}`, the contiguous axis
    first.  What it makes is known by the name of its place."""
    if len(op.lists) != 4:
        building.fail(op, "expected the box, the sizes, the strides and the steps")
    if building.values.get(op.operands[0], op.operands[0]) is not None:
        building.fail(
            op,
            "a tensor map at a place that is not its own",
            "kbuild makes tensor maps before the kernel starts",
        )
    building.maps[op.operands[0]] = op
    return []


@reads("ttng.tensormap_fenceproxy_acquire")
def read_tensormap_acquire(building: Building, op: RawOp) -> Results:
    """The launcher makes maps, which are seen when the kernel starts."""
    return []


@reads("ttng.reinterpret_tensor_descriptor")
def read_reinterpret_tensor_descriptor(building: Building, op: RawOp) -> Results:
    made, type_ = building.maps.get(op.operands[0]), building.result_type(op)
    if made is None or not isinstance(type_, DescriptorType):
        building.fail(op, "no ttng.tensormap_create has made this tensor map")
    _, sizes, pitches, _ = (building.listed(made, items) for items in made.lists)
    size = bit_width(type_.block) // 8
    strides = [
        # Of an axis of size one any stride will do, such as one that the launcher knows.
        building.add(Constant(_UNIT // size, I64)).result
        if isinstance(extent.op, Constant) and extent.op.value == 1
        else _elements(building, pitch, size)
        for extent, pitch in zip(reversed(sizes[1:]), reversed(pitches))
    ]
    one = building.add(Constant(1, I64)).result
    base = building.value(op, made.operands[1])
    padding = "nan" if made.attributes.get("fill_mode") == 1 else "zero"
    descriptor = MakeTensorDescriptor(base, tuple(reversed(sizes)), (*strides, one), type_, padding)
    return building.add(descriptor).results


def _elements(building: Building, pitch: Value, size: int) -> Value:
    """A number of bytes as one of elements: the other factor where it is a product with their size."""
    op = pitch.op
    if size == 1:
        return pitch
    if isinstance(op, Constant):
        return building.add(Constant(int(op.value) // size, I64)).result
    if isinstance(op, MulI):
        for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            if isinstance(other.op, Constant) and other.op.value == size:
                return one
    return building.add(DivSI(pitch, building.add(Constant(size, I64)).result)).result


# Barriers


def _always(building: Building) -> Value:
    return building.add(Constant(True, I1)).result


def _count(op: RawOp) -> int:
    """The number among the operands; in newer versions it is an attribute."""
    return int(op.literals[0] if op.literals else op.attributes.get("count", 1))


@reads("ttng.init_barrier")
def read_init_barrier(building: Building, op: RawOp) -> Results:
    return building.add(InitBarrier(building.operand(op, 0), _count(op))).results


@reads("ttng.inval_barrier")
def read_inval_barrier(building: Building, op: RawOp) -> Results:
    return building.add(InvalBarrier(building.operand(op, 0))).results


@reads("ttng.barrier_expect")
def read_barrier_expect(building: Building, op: RawOp) -> Results:
    size = int(op.literals[0] if op.literals else op.attributes["size"])
    predicate = building.value(op, op.operands[1], I1) if len(op.operands) > 1 else _always(building)
    return building.add(BarrierExpect(building.operand(op, 0), predicate, size)).results


def _parity(building: Building, phase: Value) -> Value:
    """The phase of a wait, of which the lowest bit counts: where Triton extends a truth value by its sign, by zeros."""
    if isinstance(phase.op, ExtSI) and phase.op.src.type == I1:
        return building.add(ExtUI(phase.op.src, phase.type)).result
    return phase


@reads("ttng.wait_barrier")
def read_wait_barrier(building: Building, op: RawOp) -> Results:
    """`ttng.wait_barrier %barrier, %phase, %predicate deps %tile`."""
    phase = _parity(building, building.value(op, op.operands[1], I32))
    predicate = building.value(op, op.operands[2], I1) if len(op.operands) > 2 else None
    names = op.groups.get("deps", [])
    types = op.operand_types[-len(names) :] if len(op.operand_types) > len(names) else [None] * len(names)
    tiles = tuple(building.value(op, name, type_) for name, type_ in zip(names, types))
    return building.add(WaitBarrier(building.operand(op, 0), phase, tiles, predicate)).results


@reads("ttng.arrive_barrier")
def read_arrive_barrier(building: Building, op: RawOp) -> Results:
    """`ttng.arrive_barrier %barrier, 2, %predicate`."""
    if op.attributes.get("perThread"):
        building.fail(op, "an arrival of each thread", "kbuild has those of one thread for all")
    predicate = building.value(op, op.operands[1], I1) if len(op.operands) > 1 else _always(building)
    return building.add(ArriveBarrier(building.operand(op, 0), predicate, count=_count(op))).results


# Copies


@reads("ttng.async_tma_copy_global_to_local")
def read_copy_in(building: Building, op: RawOp) -> Results:
    """`… %desc[%i, %j] %tile, %barrier, %predicate : …`."""
    if op.words or op.attributes.get("multicast"):
        building.fail(op, "a copy to several programs of a cluster")
    desc, tile, barrier = (building.value(op, name) for name in op.operands[:3])
    predicate = building.value(op, op.operands[3], I1) if len(op.operands) > 3 else _always(building)
    indices = building.listed(op, op.lists[0])
    return building.add(AsyncTmaCopyGlobalToLocal(desc, tile, barrier, predicate, indices)).results


@reads("ttng.async_tma_copy_local_to_global")
def read_copy_out(building: Building, op: RawOp) -> Results:
    desc, tile = (building.value(op, name) for name in op.operands[:2])
    indices = building.listed(op, op.lists[0])
    return building.add(AsyncTmaCopyLocalToGlobal(desc, tile, _always(building), indices)).results


@reads("ttng.async_tma_reduce")
def read_reduce_out(building: Building, op: RawOp) -> Results:
    """Triton's descriptor says whether integers have signs; here the kind of the reduction does."""
    desc, tile = (building.value(op, name) for name in op.operands[:2])
    assert isinstance(desc.type, DescriptorType)
    kind = reduction_of(op, op.words[0], desc.type.block)
    indices = building.listed(op, op.lists[0])
    return building.add(AsyncTmaCopyLocalToGlobal(desc, tile, _always(building), indices, kind)).results


@reads("ttng.async_tma_store_wait", "ttng.tma_store_wait")
def read_store_wait(building: Building, op: RawOp) -> Results:
    """Until the tiles have been read; what is written is seen when the kernel ends."""
    return building.add(TmaStoreWait((), int(op.attributes["pendings"]), only_reads=True)).results
