"""Dots: which instruction does one is in the layouts of Triton's text, and by name in kbuild's operations."""

from __future__ import annotations

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import (
    F32,
    I1,
    I32,
    IntType,
    MemDescType,
    TensorType,
    Type,
    bit_width,
    element_of,
    is_float,
    like,
)
from kbuild.compiler.layout import fma_operand
from kbuild.compiler.layout.gluon import DotOperandLayout, NVMMADistributedLayout
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import ExtF, ExtSI, TruncF, TruncI
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Dot
from kbuild.compiler.upstream.building import Building, Results, reads
from kbuild.compiler.upstream.syntax import RawOp
from kbuild.targets.mma_sync import MmaAtom

_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
"""Triton's numbers of them."""


def _precision(building: Building, op: RawOp) -> str:
    given = op.attributes.get("inputPrecision", "ieee")
    name = _PRECISIONS[given] if isinstance(given, int) else given
    if name not in _PRECISIONS:
        building.fail(op, f"kbuild has no precision {name}", f"it has {', '.join(_PRECISIONS)}")
    return name


def _imprecise(op: RawOp) -> int:
    return int(op.attributes.get("maxNumImpreciseAcc", 0))


@reads("tt.dot")
def read_dot(building: Building, op: RawOp) -> Results:
    a, b, c = (building.operand(op, index) for index in range(3))
    precision = _precision(building, op)
    assert (
        isinstance(a.type, TensorType) and isinstance(b.type, TensorType) and isinstance(c.type, TensorType)
    )
    if c.type.layout is None:
        return building.add(Dot(a, b, c, precision, _imprecise(op))).results
    total = _wide(building, c)
    parent = _parent(building, a.type)
    atom = _instruction(building, a.type, b.type, total.type)
    if (
        atom is not None
        and _covers(c.type.shape, a.type.shape[-1], atom)
        and parent is not None
        and (precision != "ieee" or a.type.element != F32)
    ):
        layouts = [
            DotOperandLayout(index, parent, atom.k_width).linear(type_.shape)
            for index, type_ in enumerate((a.type, b.type))
        ]
        a, b = (building.converted(value, layout) for value, layout in zip((a, b), layouts))
        made = building.add(Dot(a, b, total, "tf32", _imprecise(op), atom.name)).result
    else:
        a, b = (_matching(building, value, total) for value in (a, b))
        depth = c.type.layout, a.type.shape[-1] if isinstance(a.type, TensorType) else 1
        a, b = (
            building.converted(value, fma_operand(depth[0], index, depth[1]))
            for index, value in enumerate((a, b))
        )
        made = building.add(Dot(a, b, total, "ieee", _imprecise(op))).result
    return [_narrowed(building, made, c.type)]


def _parent(building: Building, type_: TensorType) -> NVMMADistributedLayout | None:
    """The layout of the result of a dot by tensor cores whose operand has a type; None for other dots."""
    encoding = building.syntax.encoding_of(type_.layout, "dot_op")
    author = encoding.author() if encoding is not None else None
    if isinstance(author, DotOperandLayout) and isinstance(author.parent, NVMMADistributedLayout):
        return author.parent
    return None


def _instruction(building: Building, a: TensorType, b: TensorType, c: Type) -> MmaAtom | None:
    """The instruction of `mma.sync` for operands of some types; None where there is none."""
    wanted = str(a.element), str(b.element), str(element_of(c))
    return next(
        (atom for atom in building.target.atoms if (atom.a, atom.b, atom.accumulator) == wanted), None
    )


def _covers(shape: tuple[int, ...], depth: int, atom: MmaAtom) -> bool:
    """Whether a dot is not smaller than an instruction."""
    return shape[-2] >= atom.m and shape[-1] >= atom.n and depth >= atom.k


def _wide(building: Building, c: Value) -> Value:
    """C in the type in which the sum is kept."""
    element = element_of(c.type)
    if bit_width(element) >= 32:
        return c
    if isinstance(element, IntType):
        return building.add(ExtSI(c, like(c.type, I32))).result
    return building.add(ExtF(c, like(c.type, F32))).result


def _narrowed(building: Building, value: Value, type_: Type) -> Value:
    """The result in the type that the text gives it."""
    if value.type == type_:
        return value
    return building.add((TruncF if is_float(type_) else TruncI)(value, type_)).result


def _matching(building: Building, value: Value, total: Value) -> Value:
    """An operand of a dot by scalar fma in the type of the sum."""
    element = element_of(total.type)
    if element_of(value.type) == element:
        return value
    return building.add((ExtF if is_float(element) else ExtSI)(value, like(value.type, element))).result


# Warpgroups


@reads("ttng.warp_group_dot")
def read_warp_group_dot(building: Building, op: RawOp) -> Results:
    a, b, c = (building.operand(op, index) for index in range(3))
    assert isinstance(c.type, TensorType) and isinstance(b.type, MemDescType)
    encoding = building.syntax.encoding_of(c.type.layout, "nvidia_mma")
    if encoding is None:
        building.fail(op, "its accumulator has not the layout of an instruction")
    parent = encoding.author()
    assert isinstance(parent, NVMMADistributedLayout)
    columns = parent.instr_shape[1]
    total = _wide(building, c)
    wanted = columns, str(element_of(a.type)), str(b.type.element), str(element_of(total.type))
    atom = next(
        (one for one in building.target.wgmma_atoms if (one.n, one.a, one.b, one.accumulator) == wanted), None
    )
    if atom is None:
        found = " and ".join(dict.fromkeys(wanted[1:3]))
        building.fail(op, f"{building.target.arch} has no wgmma of {columns} columns for {found}")
    is_async = bool(op.attributes.get("isAsync", False)) and total is c
    use_acc = building.value(op, op.operands[3], I1) if len(op.operands) > 3 else None
    if isinstance(a.type, TensorType):
        a = building.converted(a, DotOperandLayout(0, parent, atom.k_width).linear(a.type.shape))
    precision = _precision_of_group(op)
    made = WarpGroupDot(a, b, total, atom.name, is_async, precision, _imprecise(op), use_acc=use_acc)
    return [_narrowed(building, building.add(made).result, c.type)]


def _precision_of_group(op: RawOp) -> str:
    given = op.attributes.get("inputPrecision", 0)
    return _PRECISIONS[given] if isinstance(given, int) else given


@reads("ttng.warp_group_dot_wait")
def read_warp_group_dot_wait(building: Building, op: RawOp) -> Results:
    """Results of dots that end here are used through the wait.  What else is passed, such as dots that stay in flight
    and the tiles that they read, stays itself."""
    values, pendings = building.operands(op), int(op.attributes["pendings"])
    ended = [value for value in values if _ends(building, value, pendings)]
    results = dict(zip(ended, building.add(WarpGroupDotWait(tuple(ended), pendings)).results))
    return [results.get(value, value) for value in values]


def _ends(building: Building, value: Value, pendings: int) -> bool:
    """Whether a value may be the result of a dot, and is known to have ended when so many are in flight: enough others
    have been issued after it."""
    if not isinstance(value.type, TensorType) or (
        value.op is not None and not isinstance(value.op, WarpGroupDot | For)
    ):
        return False
    issued, before = 0, building.builder.block.last
    while before is not None and before is not value.op:
        issued += isinstance(before, WarpGroupDot) and before.is_async
        before = before.prev
    return issued >= pendings
