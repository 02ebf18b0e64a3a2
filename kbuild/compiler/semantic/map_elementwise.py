"""Functions of scalars, applied to the elements of tensors."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.core import Block
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import like
from kbuild.compiler.ops.control import For, If, While
from kbuild.compiler.ops.tensor import MapElementwise, ReduceReturn
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.promote import same_shape, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import DType
from kbuild.compiler.semantic.values import Tensor, describe
from kbuild.errors import CompileError


@builtin()
def map_elementwise(ctx: BuildContext, scalar_fn, *args, pack=1):
    """The results of a function of scalars for each element of tensors, spread to one shape: a tensor, or a tuple
    of them if it returns several.  Each element takes its own way through the function's branches and loops.  With
    `pack`, the function gets as many neighbours of the first tensor, then of the second, and returns its results
    in that order; the result is a tuple then."""
    if not args:
        ctx.error("tl.map_elementwise takes a function and one tensor at least")
    if not isinstance(pack, int) or pack < 1 or pack & (pack - 1):
        ctx.error(f"pack is {describe(pack)}; it must be a power of two known while compiling", "pack")
    tensors = [to_tensor(ctx, item, "args") for item in args]
    for other in tensors[1:]:
        tensors[0], _ = same_shape(ctx, tensors[0], other)
    tensors = [tensors[0], *(same_shape(ctx, item, tensors[0])[0] for item in tensors[1:])]
    if not tensors[0].shape:
        ctx.error("tl.map_elementwise is for tensors, all arguments are scalars", "args", "call the function")
    if ctx.explicit_layouts:
        tensors = list(places.in_one_place(ctx, tuple(tensors), "gl.map_elementwise"))
    body, dtypes, is_single = _mapped_block(ctx, scalar_fn, tensors, pack)
    types = tuple(like(tensors[0].value.type, dtype.ir) for dtype in dtypes)
    op = ctx.add(MapElementwise(tuple(item.value for item in tensors), body, types, pack))
    results = tuple(Tensor(result, dtype, tensors[0].shape) for result, dtype in zip(op.results, dtypes))
    return results[0] if is_single else results


def _mapped_block(
    ctx: BuildContext, function: Any, tensors: list[Tensor], pack: int
) -> tuple[Block, list[DType], bool]:
    """The function as the region of the operation, the types of its results, and whether it returns just one."""
    types = [item.dtype for item in tensors for _ in range(pack)]
    block = Block([dtype.ir for dtype in types])
    with ctx.builder.inside(block):
        arguments = [Tensor(value, dtype) for value, dtype in zip(block.arguments, types)]
        with ctx.without_assertions():
            results = ctx.frontend.call(function, arguments)
        is_single = not isinstance(results, tuple)
        results = (results,) if is_single else results
        for result in results:
            if not isinstance(result, Tensor) or result.shape or not isinstance(result.dtype, DType):
                ctx.error(f"the function returns {describe(result)}", "scalar_fn", "it must return scalars")
        kinds = [results[place].dtype for place in range(0, len(results), pack)]
        if len(results) % pack or any(item.dtype != kinds[i // pack] for i, item in enumerate(results)):
            found = ", ".join(str(item.dtype) for item in results)
            help = f"it must return {pack} scalars of one type for each result"
            ctx.error(f"the function returns {found}", "scalar_fn", help)
        ctx.add(ReduceReturn(tuple(result.value for result in results)))
    for op in block.walk():
        if not op.has(Trait.PURE) and not op.has(Trait.TERMINATOR) and not isinstance(op, For | While | If):
            help = "load before tl.map_elementwise, and store its results after it"
            raise CompileError("a function of scalars computes, and has no effects", op.loc, help)
    return block, kinds, is_single
