"""Finds the loads of loops that read a block of a tensor by plain arithmetic on pointers, and marks them for
TMA.

    Before:  %rows = splat(%tile * 128) + make_range 0 … 128;  %depth = make_range 0 … 64
             %p0 = splat(%a) + expand_dims(%rows % splat(%M)) * splat(%stride) + expand_dims(%depth)
             scf.for %k = 0 to %K step 64, init=[…, %p0] {
               %x: tensor<128x64xf16> = tt.load %p, mask=expand_dims(%depth) < %K - %k, other=0
               …, %p + 64
             }
             tt.store …, mask=%rows < %M and …
    After:   %d: !tt.tensordesc<tensor<128x64xf16>> = tt.make_tensor_descriptor %a, shape=[%M, %K], strides=[%stride, 1]
             …
               %x: tensor<128x64xf16> = tt.load %p, mask=…, other=0, desc=%d, indices=[%tile * 128, %k]

The pointers and the mask stay: they are used where there is no TMA, or no room in shared memory for its
blocks.  A block may be of a tensor with more axes than it has itself, such as those of batch and head, and
is one thick there; axes that no mask bounds have the largest size there is.  `tiles` says what is recognised,
and gives the reason where it is not; the function's attribute `tma` keeps these reasons for `pipeline`.
"""

from __future__ import annotations

from kbuild.compiler.analysis.bases import written_bases
from kbuild.compiler.analysis.polynomials import Polynomial, Polynomials
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.types import I32, I64, DescriptorType, TensorType, bit_width
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import AddI, CmpI, Constant, ExtSI, MulI, Select
from kbuild.compiler.ops.tensor import Load, MakeTensorDescriptor
from kbuild.compiler.transforms.tensor.recognise_tiles.tiles import (
    MatchFailure,
    Number,
    Numbering,
    Tile,
    TileAxis,
    find_tile,
    trips_replaced,
)
from kbuild.targets import Target

ALIGNMENT = 16
"""Bytes that divide the address of a tensor and the distances of its rows."""
MIN_ROW_BYTES = 16
BEYOND = 1 << 30
"""An index that an array with a size of one lacks, and that another may be added to."""


@tensor_pass
def recognise_tiles(module: Module, target: Target) -> None:
    """Give descriptors to the loads of innermost loops that are blocks of tensors."""
    if not target.has("tma"):
        return
    for func in module.functions.values():
        forms, numbering, written = Polynomials(), Numbering(func), written_bases(func)
        for op in list(func.body.walk()):
            if isinstance(op, Load) and _is_candidate(op):
                _recognise(op, func, forms, numbering, written)


def _is_candidate(load: Load) -> bool:
    """Whether a load may be pipelined: of a matrix, in an innermost loop, or right around one whose copies
    are to have warps of their own."""
    type_, loop = load.result.type, load.parent_op
    if not isinstance(type_, TensorType) or type_.rank != 2 or load.desc is not None or load.boundary_check:
        return False
    if not isinstance(loop, For):
        return False
    inner = [op for op in loop.body.walk() if isinstance(op, For | While)]
    if any(not isinstance(op, For) or not op.warp_specialize or op.parent is not loop.body for op in inner):
        return False
    return not (load.volatile or load.cache)


def _recognise(
    load: Load, func: Func, forms: Polynomials, numbering: Numbering, written: set[Value] | None
) -> None:
    """Mark a load with the block that it reads, if it does."""
    try:
        tile = find_tile(load, func, forms, numbering)
        _check_hardware(tile, load, func)
        if written is None or tile.base in written:
            raise MatchFailure("the kernel may write to where it reads")
        starts = [trips_replaced(axis.start, forms) for axis in tile.axes]
    except MatchFailure as reason:
        func.attrs["tma"] = (*func.attrs.get("tma", ()), f"{load.result.name or 'a load'}: {reason}")
        return
    type_ = load.result.type
    assert isinstance(type_, TensorType)
    top, here = Builder(func.body, func.body.first, load.loc), Builder.before(load)
    shape = tuple(1 if axis.along is None else type_.shape[axis.along] for axis in tile.axes)
    sizes = tuple(_argument(top, axis.size, 32) for axis in tile.axes)
    strides = tuple(_argument(top, axis.stride, 64) for axis in tile.axes)
    block = DescriptorType(TensorType(shape, type_.element))
    made = MakeTensorDescriptor(tile.base, sizes, strides, block, recognised=True)
    load.desc = top.add(made).result
    indices = [_index(here, start, numbering) for start in starts]
    load.indices = tuple(
        _beyond_empty(here, *pair) if pair[1].may_be_empty else pair[0] for pair in zip(indices, tile.axes)
    )
    places = {axis.along: number for number, axis in enumerate(tile.axes)}
    axes = tuple(places[axis] for axis in range(type_.rank))
    load.axes = axes if axes != tuple(range(len(tile.axes))) else ()


def _check_hardware(tile: Tile, load: Load, func: Func) -> None:
    """Check the other requirements of tensor maps."""
    size = bit_width(load.result.type) // 8
    type_, last = load.result.type, tile.axes[-1].along
    assert isinstance(type_, TensorType) and last is not None
    if not size or type_.shape[last] * size < MIN_ROW_BYTES:
        raise MatchFailure(f"a row of the block has less than {MIN_ROW_BYTES} bytes")
    if _divisor(tile.base, func) % ALIGNMENT:
        raise MatchFailure(
            f"{tile.base.name or 'its base'} is not known to be divisible by {ALIGNMENT} bytes"
        )
    for axis in tile.axes[:-1]:
        if _divisor(axis.stride, func) * size % ALIGNMENT:
            name = axis.stride.name if isinstance(axis.stride, Value) else axis.stride
            raise MatchFailure(f"the stride {name} is not known to be divisible by {ALIGNMENT} bytes")


def _divisor(number: Number, func: Func) -> int:
    if isinstance(number, int):
        return number
    hints = func.argument_hints[number.index] if number.index < len(func.argument_hints) else {}
    return int(hints.get("divisibility", 1))


def _argument(build: Builder, number: Number, bits: int) -> Value:
    if isinstance(number, int):
        return build.add(Constant(number, I64 if bits == 64 else I32)).result
    return number if bit_width(number.type) >= bits else build.add(ExtSI(number, I64)).result


def _beyond_empty(build: Builder, index: Value, axis: TileAxis) -> Value:
    """An index, made too large where the axis has no elements: maps have one then."""
    assert isinstance(axis.size, Value)
    zero = build.add(Constant.of(0, axis.size.type)).result
    empty = build.add(CmpI(axis.size, zero, "eq")).result
    shift = build.add(
        Select(empty, build.add(Constant(BEYOND, I32)).result, build.add(Constant(0, I32)).result)
    ).result
    return build.add(AddI(index, shift)).result


def _index(build: Builder, form: Polynomial, numbering: Numbering) -> Value:
    """A polynomial of scalars, computed in 32 bits."""
    total: Value | None = None
    for monomial, factor in sorted(form.terms, key=lambda term: numbering.of_monomial(term[0])):
        product: Value | None = None
        for symbol in sorted((s for s, power in monomial for _ in range(power)), key=numbering.of_symbol):
            assert isinstance(symbol, Value)
            product = symbol if product is None else build.add(MulI(product, symbol)).result
        if product is None or factor != 1:
            constant = build.add(Constant.of(factor, I32)).result
            product = constant if product is None else build.add(MulI(product, constant)).result
        total = product if total is None else build.add(AddI(total, product)).result
    return total if total is not None else build.add(Constant.of(0, I32)).result
