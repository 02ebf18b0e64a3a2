"""Rules on operations that make and shape tensors: a tensor of equal elements stays one splat or constant
whatever its shape, and changes that undo or repeat each other are removed."""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.nesting import ancestors
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.types import layout_of
from kbuild.compiler.layout import PendingLayout
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import (
    AxisAttributes,
    Broadcast,
    ExpandDims,
    Join,
    Load,
    Reshape,
    Splat,
    Split,
    Store,
    Trans,
    Unsplat,
)

shapes = Rewrites()


@shapes.on(Splat)
def splat_of_constant(op: Splat) -> Constant | None:
    """A splat of a constant is a constant tensor."""
    inner = op.src.owner
    return Constant(inner.value, op.type) if isinstance(inner, Constant) else None


@shapes.on(Broadcast, ExpandDims, Reshape, Trans, ConvertLayout)
def equal_elements_in_another_shape(op: Op) -> Op | None:
    """Equal elements in another shape or layout are made there at once."""
    inner = op.operands[0].owner
    if isinstance(inner, Splat):
        return Splat(inner.src, op.results[0].type)
    return Constant(inner.value, op.results[0].type) if isinstance(inner, Constant) else None


@shapes.on(Broadcast, Reshape, ConvertLayout)
def change_to_same_type(op: Op) -> Value | None:
    """A change to the type that the operand has changes nothing; a reshape that may reorder need not.  Layouts that
    are not known yet need not become the same."""
    same = op.operands[0].type == op.results[0].type
    return op.operands[0] if same and not isinstance(layout_of(op.results[0].type), PendingLayout) else None


@shapes.on(ConvertLayout)
def conversion_of_conversion(op: ConvertLayout) -> ConvertLayout | None:
    """Of two layout conversions in a row only the last is needed, unless the author wrote both."""
    *_, func = ancestors(op)
    if isinstance(func, Func) and func.attrs.get("explicit_layouts"):
        return None
    inner = op.src.owner
    return ConvertLayout(inner.src, op.type) if isinstance(inner, ConvertLayout) else None


@shapes.on(Broadcast)
def broadcast_of_broadcast(op: Broadcast) -> Broadcast | None:
    """Two broadcasts in a row are one (in ttir: layouts would have to fit)."""
    inner = op.src.owner
    return (
        Broadcast(inner.src, op.type) if isinstance(inner, Broadcast) and layout_of(op.type) is None else None
    )


@shapes.on(Reshape)
def reshape_of_reshape(op: Reshape) -> Reshape | None:
    """Two reshapes in row-major order are one."""
    inner = op.src.owner
    if (
        not isinstance(inner, Reshape)
        or layout_of(op.type) is not None
        or op.allow_reorder
        or inner.allow_reorder
    ):
        return None
    return Reshape(inner.src, op.type)


@shapes.on(Trans)
def trans_of_trans(op: Trans) -> Value | Trans | None:
    """trans(trans(x, p), q) = trans(x, p∘q); without a change of order it is x"""
    if op.order == tuple(range(len(op.order))):
        return op.src
    inner = op.src.owner
    return (
        Trans(inner.src, tuple(inner.order[axis] for axis in op.order)) if isinstance(inner, Trans) else None
    )


@shapes.on(Unsplat)
def unsplat_of_splat(op: Unsplat) -> Value | Op | None:
    """The element of a splat is its scalar."""
    inner = op.src.owner
    if isinstance(inner, Constant):
        return Constant(inner.value, op.results[0].type)
    while isinstance(inner, ExpandDims | Reshape):
        inner = inner.src.owner
    return inner.src if isinstance(inner, Splat) else None


@shapes.on(Split)
def split_of_join(op: Split) -> list[Value] | None:
    """split(join(x, y)) = x, y"""
    inner = op.src.owner
    if not isinstance(inner, Join) or inner.lhs.type != op.results[0].type:
        return None
    return [inner.lhs, inner.rhs]


@shapes.on(AxisAttributes)
def axis_attributes_on_known(op: AxisAttributes) -> Value | None:
    """A constant's attributes are known anyway."""
    return op.src if isinstance(op.src.owner, Constant) else None


@shapes.on(Load)
def load_with_known_mask(op: Load) -> Value | Op | None:
    """A mask of true is dropped; a load where the mask is false is `other`."""
    mask = op.mask.owner if op.mask is not None else None
    if not isinstance(mask, Constant):
        return None
    if mask.value:
        op.mask = op.other = None
        return op
    return op.other if not op.volatile else None


@shapes.on(Store)
def store_with_known_mask(op: Store) -> Op | list[Value] | None:
    """A mask of true is dropped; a store where the mask is false does nothing."""
    mask = op.mask.owner if op.mask is not None else None
    if not isinstance(mask, Constant):
        return None
    if mask.value:
        op.mask = None
        return op
    return []
