"""Finds the layouts that an author of Gluon leaves open, and leaves alone those that he wrote.

`CoalescedLayout` becomes, at each access to global memory, what `coalesce` would choose for that access alone.
`AutoLayout` becomes what the operations say to which a value comes, or from which it comes.  From there both
spread forward and backward through operations whose operands and results have to fit each other.  A value for
which they differ is an error that names both, and so is one to which none comes.

    Before:  %0: tensor<64xi32, #auto> = tt.make_range {start = 0, end = 64}
             %1: tensor<64xi32, #blocked> = gluon.set_auto_layout %0
    After:   %0: tensor<64xi32, #blocked> = tt.make_range {start = 0, end = 64}
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.analysis.carried import carried_groups
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import MemDescType, TensorType, layout_of
from kbuild.compiler.layout import PendingLayout
from kbuild.compiler.layout.derived import placed, written
from kbuild.compiler.ops.control import If
from kbuild.compiler.ops.gpu import ConvertLayout, SetAutoLayout
from kbuild.compiler.ops.tensor import ExpandDims, Join, Reduce, Reshape, Split, Trans
from kbuild.compiler.transforms._support.layout_flow import tensor_operands, tensor_type
from kbuild.compiler.transforms.gpu.layout.coalesce import find_accesses, layout_alone
from kbuild.compiler.transforms.gpu.layout.resolve_layouts.spread import Source, Spread
from kbuild.errors import CompileError
from kbuild.targets import Target

_RULED = (ExpandDims, Join, Reduce, Reshape, Split, Trans)
"""Operations that leave every element in its register: the layout of the operand says that of the results."""


@gpu_pass
def resolve_layouts(module: Module, target: Target) -> None:
    """Give every value a layout.  Raises CompileError where there is none, or more than one."""
    for func in module.functions.values():
        _check_tiles(func)
        _resolve(func, "coalesced", _coalesced_sources(func, target))
        _resolve(func, "auto", _auto_sources(func))
        for op in list(func.body.walk()):
            if isinstance(op, SetAutoLayout):
                op.replace_by(op.src)
        for op in list(func.body.walk()):
            if isinstance(op, _RULED):
                _fit_results(op)


def _check_tiles(func: Func) -> None:
    """Raise CompileError where a loop or branch passes on one of several tiles: their places are constants."""
    for op in func.body.walk():
        for group in carried_groups(op):
            tile = group.targets[-1]
            if isinstance(tile.type, MemDescType):
                raise CompileError(
                    f"`{tile.name or 'a tile'}` of shared memory is not the same in every "
                    + ("branch" if isinstance(op, If) else "round of the loop"),
                    op.loc,
                    "allocate one of shape [count, …], and choose a tile of it by .index(i)",
                )


def _is_pending(value: Value, kind: str) -> bool:
    layout = layout_of(value.type)
    return isinstance(layout, PendingLayout) and layout.kind == kind


def _coalesced_sources(func: Func, target: Target) -> Iterator[tuple[Value, Source]]:
    """What the accesses of coalesced pointers need, each for itself."""
    num_warps: int = func.attrs["num_warps"]
    for access in find_accesses(func, target):
        if _is_pending(access.op.operands[0], "coalesced"):
            source = Source(layout_alone(access, func, num_warps), access.op.loc, "the access")
            for _, operand in tensor_operands(access.op):
                yield operand, source
            for result in access.op.results:
                yield result, source


def _auto_sources(func: Func) -> Iterator[tuple[Value, Source]]:
    """The layouts in which values are used that had none of their own."""
    for op in func.body.walk():
        if isinstance(op, SetAutoLayout):
            yield op.src, Source(written(_known(op)), op.loc, "the use")


def _known(op: SetAutoLayout):
    layout = tensor_type(op.result).layout
    assert layout is not None
    return layout


def _resolve(func: Func, kind: str, sources: Iterator[tuple[Value, Source]]) -> None:
    spread = Spread(func, lambda value: _is_pending(value, kind))
    for value, source in list(sources):
        spread.add(value, source)
    for value, source in spread.run().items():
        value.type = tensor_type(value).with_layout(placed(source.author, tensor_type(value).shape))
    for value in _values(func):
        if _is_pending(value, kind):
            raise _unknown(value, kind)


def _values(func: Func) -> Iterator[Value]:
    for op in func.body.walk():
        yield from op.results
        for region in op.regions:
            yield from region.arguments


def _unknown(value: Value, kind: str) -> CompileError:
    name = f"`{value.name}`" if value.name else "this value"
    loc = value.op.loc if value.op is not None else value.block.parent.loc if value.block.parent else None
    if kind == "coalesced":
        return CompileError(
            f"the layout of {name} is CoalescedLayout(), but no access to global memory says which that is",
            loc,
            "give it a layout of its own, or gl.convert_layout it before it meets others",
        )
    return CompileError(
        f"the layout of {name} is AutoLayout(), and nothing that it meets has a layout",
        loc,
        "give one of the tensors that it meets a layout, as in gl.arange(0, N, layout=…), or use gl.set_auto_layout",
    )


def _fit_results(op: Op) -> None:
    """Convert the results of an operation that gives them other registers than their layout has."""
    for result, type_ in zip(op.results, [_reshaped(op)] if isinstance(op, Reshape) else op.infer()):
        wanted = result.type
        if isinstance(type_, TensorType) and type_ != wanted:
            result.type = type_
            users = list(result.users)
            converted = Builder.after(op).add(ConvertLayout(result, wanted), result.name)
            for user in users:
                user.replace_operand(result, converted.result)


def _reshaped(op: Reshape) -> TensorType:
    type_ = tensor_type(op.result)
    layout = tensor_type(op.src).layout
    assert layout is not None
    return type_.with_layout(layout.reshape(type_.shape))
