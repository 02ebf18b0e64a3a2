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
from kbuild.compiler.ops.nvidia import AcquireMaps, ClaimMaps, MakeTensorMap, ReleaseMaps
from kbuild.compiler.ops.tensor import Load, MakeTensorDescriptor

MIN_LOOPS = 2
"""Loops around a load, inside of what makes its descriptor, from which on a map is worth making: one that loads block
after block, and one that does so again."""
ALIGNMENT = 16
"""Bytes that divide strides, and where boxes begin in their rows."""
RANKS = range(2, 6)
"""Axes of a tensor of which there are maps; the launcher makes matrices of vectors."""


def can_make(load: Load) -> bool:
    """Whether the kernel can make the map of a load's descriptor itself, and should.

    The author's descriptor says that base and strides are divisible by 16 bytes, which a recognised one does not.
    """
    make = load.desc.op if load.desc is not None else None
    if not isinstance(make, MakeTensorDescriptor) or make.recognised or len(make.shape) not in RANKS:
        return False
    assert isinstance(make.type, DescriptorType)
    *outer, last = (stride.op for stride in make.strides)
    size = bit_width(make.type.block) // 8
    if any(isinstance(stride, Constant) and stride.value * size % ALIGNMENT for stride in outer):
        return False
    return isinstance(last, Constant) and last.value == 1 and len(_loops(load, make)) >= MIN_LOOPS


def _loops(load: Load, make: MakeTensorDescriptor) -> list[Op]:
    """The loops around a load in which its descriptor is always the same, the innermost first."""
    found: list[Op] = []
    for around in ancestors(load):
        if any(is_within(value.block, region) for value in make.operands for region in around.regions):
            break
        if isinstance(around, For | While):
            found.append(around)
    return found


def make_map(func: Func, load: Load, box: TensorType, swizzle: int, element: str) -> Value:
    """The map of a load, made before the outermost loop that can use it again; one for all loads there that go by the
    same one."""
    make = load.desc.op if load.desc is not None else None
    assert isinstance(make, MakeTensorDescriptor), "the load was chosen by it"
    around = _loops(load, make)[-1]
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
