"""Tensor maps that the kernel makes itself, of tensors that its launcher cannot see: those whose address, sizes or
strides the kernel loads or computes.

Before:                                                     After:
    scf.for %g … {                                              %place: i32 = ttng.claim_maps {maps = 1}
      %p: !tt.ptr<f16> = tt.int_to_ptr …                        scf.for %g … {
      %d = tt.make_tensor_descriptor %p, shape=[%m, %k], …        %p: !tt.ptr<f16> = tt.int_to_ptr …
      scf.while … {                                               %p_map = ttng.make_tensor_map %place, %p, shape=[%m, %k], …
        scf.for %j … {                                            ttng.acquire_maps %p_map
          tt.load …, desc=%d, indices=[%i, %j]                    scf.while … {
                                                                    scf.for %j … {
                                                                      ttng.async_tma_copy_global_to_local %p_map, …
                                                                …
                                                                ttng.release_maps %place

Making a map takes about as long as a few iterations of a loop that multiplies: a kernel does so where a loop around that
loop uses the map again.
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.nesting import ancestor_in, ancestors, is_within
from kbuild.compiler.ir.types import DescriptorType, TensorType, bit_width
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.nvidia import AcquireMaps, ClaimMaps, MakeTensorMap, ReleaseMaps, TmaStoreWait
from kbuild.compiler.ops.tensor import MakeTensorDescriptor

MIN_LOOPS = 2
"""Loops around an access, inside of what makes its descriptor, from which on a map is worth making: one that goes from
block to block, and one that does so again."""
ALIGNMENT = 16
"""Bytes that divide strides, and where boxes begin in their rows."""
RANKS = range(2, 6)
"""Axes of a tensor of which there are maps; the launcher makes matrices of vectors."""


def can_make(access: Op, make: MakeTensorDescriptor) -> bool:
    """Whether the kernel can make the map of a descriptor itself, and should for an access by it.

    The author's descriptor says that base and strides are divisible by 16 bytes, which a recognised one does not.
    """
    if make.recognised or len(make.shape) not in RANKS:
        return False
    assert isinstance(make.type, DescriptorType)
    *outer, last = (stride.op for stride in make.strides)
    size = bit_width(make.type.block) // 8
    if any(isinstance(stride, Constant) and stride.value * size % ALIGNMENT for stride in outer):
        return False
    return isinstance(last, Constant) and last.value == 1 and len(_loops(access, make)) >= MIN_LOOPS


def _loops(access: Op, make: MakeTensorDescriptor) -> list[Op]:
    """The loops around an access in which its descriptor is always the same, the innermost first."""
    found: list[Op] = []
    for around in ancestors(access):
        if any(is_within(value.block, region) for value in make.operands for region in around.regions):
            break
        if isinstance(around, For | While):
            found.append(around)
    return found


def make_map(
    func: Func, access: Op, make: MakeTensorDescriptor, box: TensorType, swizzle: int, element: str
) -> Value:
    """The map of an access, made before the outermost loop that can use it again; one for all accesses there that go
    by the same one."""
    around = _loops(access, make)[-1]
    claim = _claim(func, around)
    tensor = (claim.result, make.base, *make.shape, *make.strides[:-1])
    type_, fill_nan = DescriptorType(box), make.padding == "nan"
    acquire = around.prev if isinstance(around.prev, AcquireMaps) else None
    for value in acquire.maps if acquire is not None else ():
        other = value.op
        assert isinstance(other, MakeTensorMap), "nothing else makes maps"
        how = other.type, other.swizzle, other.element, other.fill_nan
        if tuple(other.operands) == tensor and how == (type_, swizzle, element, fill_nan):
            return value
    if acquire is None:
        acquire = Builder.before(around).add(AcquireMaps(()))
    made = MakeTensorMap(
        claim.result,
        claim.maps,
        make.base,
        make.shape,
        make.strides[:-1],
        type_,
        swizzle,
        element,
        fill_nan,
    )
    claim.maps += 1
    map_ = Builder.before(acquire).add(made, f"{make.base.name or 'tensor'}_map").result
    acquire.maps = (*acquire.maps, map_)
    return map_


def end_stores(func: Func, map_: Value) -> None:
    """Have copies to memory end before the map that they go by is made again, and before another program's is made
    there.  Copies from memory are waited for where they are used."""
    assert isinstance(map_.op, MakeTensorMap), "the launcher makes the others only once"
    first: Op = map_.op
    while isinstance(first.prev, MakeTensorMap):
        first = first.prev
    releases = [op for op in func.body if isinstance(op, ReleaseMaps)]
    for op in (first, *releases):
        before = op.prev
        if not isinstance(before, TmaStoreWait) or before.pendings or before.only_reads:
            Builder.before(op).add(TmaStoreWait())


def _claim(func: Func, loop: Op) -> ClaimMaps:
    """What claims a place for the function's maps, before a loop that uses one."""
    first = ancestor_in(func.body, loop)
    claim = next((op for op in func.body if isinstance(op, ClaimMaps)), None)
    if claim is None:
        claim = Builder.before(first).add(ClaimMaps(0), "place")
        Builder.before(func.body.terminator).add(ReleaseMaps(claim.result))
    elif _comes_before(first, claim):
        claim.move_before(first)
    return claim


def _comes_before(first: Op, second: Op) -> bool:
    """Whether one operation of a block stands before another."""
    op = first.next
    while op is not None and op is not second:
        op = op.next
    return op is second
