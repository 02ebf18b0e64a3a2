"""How layouts pass through operations: from an operand to the results, and from the results back to an
operand.

    result_layout(expand_dims %x, 0, L)   = L with an axis of size one
    operand_layout(broadcast %x, 0, L)    = L without the repeated axes, where threads along them hold copies
    operand_layout(elementwise …, i, L)   = L

Passes that choose layouts use these functions, so that each operation states its rule once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType, layout_of
from kbuild.compiler.layout import LinearLayout, joined_layout, slice_of, split_layout
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal, ConvertLayout
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    InlineAsm,
    Join,
    Load,
    MakeRange,
    MapElementwise,
    PointerWrite,
    Reduce,
    Reshape,
    Scan,
    Splat,
    Split,
    Trans,
)

FREE = (Constant, Splat, MakeRange)
"""Operations whose tensor is made from nothing, in any layout."""
MEMORY = (Load, PointerWrite, AsyncCopyGlobalToLocal)
"""Operations on tensors of pointers."""
_POINTWISE = (*MEMORY, InlineAsm, MapElementwise, Scan, AxisAttributes)


def is_pointwise(op: Op) -> bool:
    """Whether all tensor operands and results of an operation have one and the same layout."""
    return op.has(Trait.ELEMENTWISE) or isinstance(op, _POINTWISE)


def tensor_operands(op: Op) -> Iterator[tuple[int, Value]]:
    """The operands that are tensors, with their places."""
    for index, operand in enumerate(op.operands):
        if isinstance(operand.type, TensorType):
            yield index, operand


def tensor_type(value: Value) -> TensorType:
    """The type of a value that is a tensor."""
    assert isinstance(value.type, TensorType), f"{value} is not a tensor"
    return value.type


def held_layout(value: Value) -> LinearLayout:
    """The layout of a tensor of ttgir."""
    layout = tensor_type(value).layout
    assert layout is not None, f"{value} has no layout"
    return layout


def result_layout(op: Op, index: int, layout: LinearLayout) -> LinearLayout | None:
    """The layout of the results when operand `index` has `layout`; None when it doesn't follow."""
    if is_pointwise(op):
        return layout
    if isinstance(op, ExpandDims):
        return layout.expand_dims(op.axis)
    if isinstance(op, Reduce):
        return _slice(layout, op.axis) if layout.rank > 1 else None
    if isinstance(op, Trans):
        return _transpose(layout, op.order)
    if isinstance(op, Reshape):
        return layout.reshape(tensor_type(op.results[0]).shape)
    if isinstance(op, Join):
        return _joined(layout)
    if isinstance(op, Split):
        return _split(layout)
    if isinstance(op, Cat):
        return concatenated_layout(layout)
    if isinstance(op, Gather) and index == 1:
        return layout
    return None


def operand_layout(op: Op, index: int, layout: LinearLayout) -> LinearLayout | None:
    """The layout that operand `index` must have for the results to have `layout`; None when there is none, or
    any will do."""
    if is_pointwise(op):
        return layout
    type_ = tensor_type(op.operands[index])
    if isinstance(op, Broadcast):
        return broadcast_source(layout, type_.shape)
    if isinstance(op, ExpandDims | Reshape):
        return layout.reshape(type_.shape)
    if isinstance(op, Trans):
        return _transpose(layout, tuple(op.order.index(axis) for axis in range(len(op.order))))
    if isinstance(op, Join):
        half = _split(layout)
        # The lowest register bit chooses the half.
        return half if half is not None and _joined(half) == layout else None
    if isinstance(op, Split):
        return _joined(layout)
    if isinstance(op, Cat):
        return halved_layout(layout)
    if isinstance(op, Gather) and index == 1:
        return layout
    return None


def repeated(value: Value, layout: LinearLayout, operand_in: Callable[[Value, LinearLayout], Value]) -> Value:
    """The value computed once more in another layout, right after its operation; `operand_in` gives that an operand in
    the layout which it needs."""
    op = value.op
    assert op is not None
    mapping: dict[Value, Value] = {}
    for index, operand in tensor_operands(op):
        need = operand_layout(op, index, layout)
        assert need is not None
        mapping[operand] = operand_in(operand, need)
    copy = op.clone(mapping)
    for result in copy.results:
        result.type = tensor_type(result).with_layout(layout)
    return Builder.after(op).add(copy).results[value.index]


class Relaid:
    """Values in other layouts than their own, each made once for a layout, right after the value itself."""

    def __init__(self) -> None:
        self.made: dict[tuple[Value, LinearLayout], Value] = {}

    def get(self, value: Value, layout: LinearLayout) -> Value:
        """`value` in a layout."""
        if held_layout(value) == layout:
            return value
        key = value, layout
        if key not in self.made:
            self.made[key] = self.make(value, layout)
        return self.made[key]

    def make(self, value: Value, layout: LinearLayout) -> Value:
        """`value` in a layout that it does not have: computed once more; passes with other ways override this."""
        return repeated(value, layout, self.get)


@lru_cache(maxsize=4096)
def broadcast_source(layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
    """The layout of what `tt.broadcast` repeats, of `shape`, so that the result has `layout` and no data
    moves."""
    for axis, size in enumerate(shape):
        if size == 1 and layout.shape[axis] != 1:
            layout = slice_of(layout, axis).expand_dims(axis)
    return layout


@lru_cache(maxsize=1024)
def concatenated_layout(layout: LinearLayout) -> LinearLayout:
    """The layout of `tt.cat`: each thread holds the registers of the first tensor, then those of the second."""
    shape = (2 * layout.shape[0], *layout.shape[1:])
    bases = dict(layout.bases)
    bases["register"] = (*bases["register"], layout.numel)
    return LinearLayout.make(shape, **bases)


@lru_cache(maxsize=1024)
def halved_layout(layout: LinearLayout) -> LinearLayout | None:
    """The inverse of `concatenated_layout`; None when another bit than the last register's chooses the half."""
    half = layout.numel // 2
    registers = layout.bases_of("register")
    if not registers or registers[-1] != half:
        return None
    bases = dict(layout.bases) | {"register": registers[:-1]}
    if any(basis & half for images in bases.values() for basis in images):
        return None
    return LinearLayout.make((layout.shape[0] // 2, *layout.shape[1:]), **bases)


@lru_cache(maxsize=4096)
def minor_axis(layout: LinearLayout) -> int:
    """The axis along which neighbouring registers, or else neighbouring lanes, follow each other."""
    for dim in ("register", "lane", "warp"):
        for basis in layout.bases_of(dim):
            coordinates = layout.unflatten(basis)
            if 1 in coordinates:
                return coordinates.index(1)
    return layout.rank - 1


def converted(builder: Builder, value: Value, layout: LinearLayout) -> Value:
    """`value` in another layout: itself if it has it, the source of a conversion if that has it, or a new
    conversion."""
    type_ = tensor_type(value)
    if type_.layout == layout:
        return value
    if isinstance(value.op, ConvertLayout) and layout_of(value.op.src.type) == layout:
        return value.op.src
    return builder.add(ConvertLayout(value, type_.with_layout(layout)), value.name).result


def without_conversions(value: Value) -> Value:
    """The value before any changes of its layout."""
    while isinstance(value.op, ConvertLayout):
        value = value.op.src
    return value


@lru_cache(maxsize=4096)
def _slice(layout: LinearLayout, axis: int) -> LinearLayout:
    return slice_of(layout, axis)


@lru_cache(maxsize=4096)
def _transpose(layout: LinearLayout, order: tuple[int, ...]) -> LinearLayout:
    return layout.transpose(order)


@lru_cache(maxsize=1024)
def _joined(layout: LinearLayout) -> LinearLayout:
    return joined_layout(layout)


@lru_cache(maxsize=1024)
def _split(layout: LinearLayout) -> LinearLayout | None:
    return split_layout(layout)
