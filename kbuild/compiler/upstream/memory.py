"""Shared memory and asynchronous copies.  Triton orders these by tokens, kbuild by their place in the program, which
is the same in Triton's texts; tokens are left out."""

from __future__ import annotations

import re

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import I32, MemDescType, TensorType, Type, element_of, is_float
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    LocalStore,
    MemDescIndex,
    MemDescReshape,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.compiler.ops.nvidia import FenceAsyncShared
from kbuild.compiler.ops.tensor import (
    AtomicCAS,
    AtomicRMW,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Load,
    Reshape,
)
from kbuild.compiler.upstream.building import Building, Results, Row, reads
from kbuild.compiler.upstream.rows import cache_of, eviction_of
from kbuild.compiler.upstream.syntax import RawOp

_KINDS = {"exch": "xchg"}
_UNSIGNED = re.compile(r"tensordesc<[^,>]*xui\d")


def _memdesc(building: Building, op: RawOp) -> MemDescType:
    type_ = building.result_type(op)
    if not isinstance(type_, MemDescType):
        building.fail(op, f"the result is {type_}, expected a !ttg.memdesc")
    return type_


@reads("ttg.local_alloc")
def read_local_alloc(building: Building, op: RawOp) -> Results:
    source = building.operand(op, 0) if op.operands else None
    return building.add(LocalAlloc(_memdesc(building, op), source)).results


@reads("ttg.memdesc_index")
def read_memdesc_index(building: Building, op: RawOp) -> Results:
    """`ttg.memdesc_index %tiles[%i]`; in older versions the index is an operand."""
    indices = [*building.listed(op, op.lists[0])] if op.lists else [building.value(op, op.operands[1], I32)]
    index = indices[0]
    if isinstance(index, int):
        index = building.add(Constant(index, I32)).result
    made = building.add(MemDescIndex(building.operand(op, 0), index))
    return [building.declared(op, made.result, _memdesc(building, op))]


@reads("ttg.memdesc_subslice")
def read_memdesc_subslice(building: Building, op: RawOp) -> Results:
    source, type_ = building.operand(op, 0), _memdesc(building, op)
    assert isinstance(source.type, MemDescType)
    if source.type.buffers is not None or type_.buffers is not None:
        building.fail(op, "several buffers of an allocation", "kbuild takes parts of single buffers")
    return building.add(MemDescSubslice(source, tuple(op.lists[0]), type_)).results


@reads("ttg.memdesc_trans")
def read_memdesc_trans(building: Building, op: RawOp) -> Results:
    """The memory stays as it is, so the layout of the result is the one that follows."""
    return building.add(MemDescTrans(building.operand(op, 0), tuple(op.attributes["order"]))).results


@reads("ttg.memdesc_reshape")
def read_memdesc_reshape(building: Building, op: RawOp) -> Results:
    """As of `ttg.memdesc_trans`."""
    return building.add(MemDescReshape(building.operand(op, 0), _memdesc(building, op).shape)).results


# Copies


@reads("ttg.async_copy_global_to_local")
def read_async_copy(building: Building, op: RawOp) -> Results:
    pointers, tile = building.operand(op, 0), building.value(op, op.operands[1])
    mask, other = (_grouped(building, op, word) for word in ("mask", "other"))
    cache = cache_of(op.attributes.get("cacheModifier", "none"))
    eviction = eviction_of(op.attributes.get("evictionPolicy", "evict_normal"))
    if mask is None or other is None or _is_zero(other):
        building.add(AsyncCopyGlobalToLocal(pointers, tile, mask, None, cache, eviction))
    else:
        # Asynchronous copies have only zeros for what the mask leaves out.
        loaded = building.add(Load(pointers, mask, other, (), "", cache, eviction)).result
        building.add(LocalStore(loaded, tile))
    return [None]


def _grouped(building: Building, op: RawOp, word: str) -> Value | None:
    return building.value(op, op.groups[word][0]) if word in op.groups else None


def _is_zero(value: Value) -> bool:
    return isinstance(value.op, Constant) and value.op.value == 0


@reads("ttg.async_commit_group")
def read_async_commit_group(building: Building, op: RawOp) -> Results:
    building.add(AsyncCommitGroup())
    return [None]


@reads("ttg.async_wait")
def read_async_wait(building: Building, op: RawOp) -> Results:
    """Where there are dots of warpgroups, with the fence that makes what threads have copied visible to them: Triton
    leaves it out, although PTX asks for it."""
    building.add(AsyncWait(int(op.attributes["num"])))
    if building.has_warp_group_dots:
        building.add(FenceAsyncShared())
    return [None]


# Atomics, and blocks of tensors


@reads("tt.atomic_rmw")
def read_atomic_rmw(building: Building, op: RawOp) -> Results:
    op.words = [_KINDS.get(word, word) for word in op.words]
    row = Row(AtomicRMW, operands=("ptr", "value", "mask"), words=("kind", "sem", "scope"))
    return building.by_row(op, row)


@reads("tt.atomic_cas")
def read_atomic_cas(building: Building, op: RawOp) -> Results:
    return building.by_row(op, Row(AtomicCAS, words=("sem", "scope")))


@reads("tt.descriptor_load")
def read_descriptor_load(building: Building, op: RawOp) -> Results:
    """Axes of size one that the block begins with may be missing from the tensor."""
    desc = building.value(op, op.operands[0], _descriptor_type(building, op))
    made = building.add(DescriptorLoad(desc, building.listed(op, op.lists[0])))
    return [_reshaped(building, made.result, building.result_type(op))]


@reads("tt.descriptor_store")
def read_descriptor_store(building: Building, op: RawOp) -> Results:
    desc = building.value(op, op.operands[0], _descriptor_type(building, op))
    source = building.operand(op, 1)
    made = DescriptorStore(desc, _as_block(building, desc, source), building.listed(op, op.lists[0]))
    return building.add(made).results


@reads("tt.descriptor_reduce")
def read_descriptor_reduce(building: Building, op: RawOp) -> Results:
    desc = building.value(op, op.operands[0], _descriptor_type(building, op))
    source = building.operand(op, 1)
    kind = reduction_of(op, op.words[0], source.type)
    made = DescriptorReduce(desc, _as_block(building, desc, source), building.listed(op, op.lists[0]), kind)
    return building.add(made).results


def reduction_of(op: RawOp, word: str, type_: Type) -> str:
    """Triton's `add`, `min` and `max` of floats are `fadd`, `fmin` and `fmax` here; `umin` and `umax` are those of
    integers whose descriptor says that they have no sign."""
    if word not in ("add", "min", "max"):
        return word
    if is_float(element_of(type_)):
        return f"f{word}"
    return f"u{word}" if word != "add" and _UNSIGNED.search(op.signature) else word


@reads("tt.descriptor_gather")
def read_descriptor_gather(building: Building, op: RawOp) -> Results:
    desc = building.value(op, op.operands[0], _descriptor_type(building, op))
    rows, column = building.listed(op, op.lists[0])
    return building.add(DescriptorGather(desc, rows, column)).results


@reads("tt.descriptor_scatter")
def read_descriptor_scatter(building: Building, op: RawOp) -> Results:
    desc = building.value(op, op.operands[0], _descriptor_type(building, op))
    rows, column = building.listed(op, op.lists[0])
    source = building.value(op, op.operands[1], op.operand_types[-1])
    return building.add(DescriptorScatter(desc, source, rows, column)).results


def _descriptor_type(building: Building, op: RawOp) -> Type:
    if not op.operand_types:
        building.fail(op, "expected the type of the descriptor after a colon")
    return building.syntax.elided(op.operand_types[0], "!tt.tensordesc")


def _as_block(building: Building, desc: Value, source: Value) -> Value:
    block = getattr(desc.type, "block", None)
    return source if block is None else _reshaped(building, source, block)


def _reshaped(building: Building, value: Value, type_: Type) -> Value:
    """A tensor with axes of size one more or fewer."""
    if (
        not isinstance(value.type, TensorType)
        or not isinstance(type_, TensorType)
        or value.type.shape == type_.shape
    ):
        return value
    return building.add(Reshape(value, TensorType(type_.shape, value.type.element))).result
