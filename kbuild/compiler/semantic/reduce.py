"""Reductions, scans, gathers and histograms."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.commutes import commutes
from kbuild.compiler.ir.core import Block
from kbuild.compiler.ops.tensor import Gather, Histogram, Reduce, ReduceReturn, Scan
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.memory import as_mask
from kbuild.compiler.semantic.promote import broadcast_shape, expand, to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.shape import arange, next_power_of_two, reshape_to, wrap_axis
from kbuild.compiler.semantic.types import INT32
from kbuild.compiler.semantic.values import Tensor, describe, shape_text


def _inputs(ctx: BuildContext, value: Any, function: str) -> tuple[Tensor, ...]:
    """One tensor, or a tuple of tensors of one shape."""
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if not isinstance(item, Tensor):
            ctx.error(f"{function} takes a tensor, {ctx.name('input')} is {describe(item)}", "input")
    if any(item.shape != items[0].shape for item in items):
        shapes = ", ".join(shape_text(item.shape) for item in items)
        ctx.error(f"the inputs of {function} have different shapes: {shapes}", "input")
    if ctx.explicit_layouts and items[0].shape:
        return places.in_one_place(ctx, items, function)
    return items


def _combine_block(ctx: BuildContext, function: Any, inputs: tuple[Tensor, ...]) -> Block:
    """The combine function on scalars, as the region of the operation."""
    types = [item.dtype for item in inputs] * 2
    block = Block([dtype.ir for dtype in types])
    with ctx.builder.inside(block):
        arguments = [Tensor(value, dtype) for value, dtype in zip(block.arguments, types)]
        with ctx.without_assertions():
            results = ctx.frontend.call(function, arguments)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(inputs):
            ctx.error(
                f"the combine function returns {len(results)} values for {len(inputs)} inputs", "combine_fn"
            )
        for position, (result, dtype) in enumerate(zip(results, types)):
            if not isinstance(result, Tensor) or result.dtype != dtype or result.shape:
                ctx.error(
                    f"the combine function returns {describe(result)} for input {position} of {dtype}",
                    "combine_fn",
                    help="it must return scalars of the types it takes",
                )
        ctx.add(ReduceReturn(tuple(result.value for result in results)))
    return block


@builtin(method=True)
def reduce(ctx: BuildContext, input, axis, combine_fn, keep_dims=False):
    """A tensor, or tuple of tensors, combined along `axis` (all dimensions if None) by an associative
    function of two scalars (of two groups of scalars for a tuple), in the order of the elements.  `keep_dims`
    keeps the dimension with size one."""
    return _reduced(ctx, input, axis, combine_fn, keep_dims)


def _reduced(
    ctx: BuildContext,
    input: Any,
    axis: Any,
    combine_fn: Any,
    keep_dims: bool = False,
    any_order: bool = False,
) -> Any:
    inputs = _inputs(ctx, input, "tl.reduce")
    rank = len(inputs[0].shape)
    if not rank:
        ctx.error(f"{ctx.name('input')} is {describe(input)}, there is nothing to reduce", "input")
    combine = _combine_block(ctx, combine_fn, inputs)
    if axis is None:
        # In Gluon the author chooses where elements are; a reduction costs the same then.
        place, can_reorder = 0, (any_order or commutes(combine)) and not ctx.explicit_layouts
        inputs = tuple(reshape_to(ctx, item, (item.numel,), can_reorder=can_reorder) for item in inputs)
    else:
        place = wrap_axis(ctx, axis, rank)
    shape = inputs[0].shape
    op = ctx.add(Reduce(tuple(item.value for item in inputs), place, combine, any_order))
    rest = (*shape[:place], *shape[place + 1 :])
    results = tuple(Tensor(result, item.dtype, rest) for result, item in zip(op.results, inputs))
    if ctx.explicit_layouts and rest:
        results = tuple(places.named(ctx, x, places.sliced(inputs[0], place)) for x in results)
    if keep_dims:
        for position in [place] if axis is not None else [0] * rank:
            results = tuple(expand(ctx, result, position) for result in results)
    return results if isinstance(input, tuple) else results[0]


@builtin()
def _reduce_with_indices(ctx: BuildContext, input, axis, combine_fn, keep_dims=False):
    """A reduction over pairs of value and index to the best of them, in any order; along all dimensions if
    `axis` is None, with flat indices."""
    (input,) = _inputs(ctx, input, "the reduction")
    if axis is None:
        rank, input = len(input.shape), reshape_to(ctx, input, (input.numel,))
        results = _reduce_with_indices(ctx, input, 0, combine_fn)
        if keep_dims:
            for _ in range(rank):
                results = tuple(expand(ctx, result, 0) for result in results)
        return results
    place = wrap_axis(ctx, axis, len(input.shape))
    index = arange(ctx, 0, input.shape[place])
    for position in range(len(input.shape)):
        if position != place:
            index = expand(ctx, index, position)
    index = broadcast_shape(ctx, index, input.shape)
    return _reduced(ctx, (input, index), axis, combine_fn, keep_dims, any_order=True)


@builtin(method=True)
def associative_scan(ctx: BuildContext, input, axis, combine_fn, reverse=False):
    """The results of combining each element with all before it along `axis`, itself included; all after it
    with `reverse`."""
    inputs = _inputs(ctx, input, "tl.associative_scan")
    place = wrap_axis(ctx, axis, len(inputs[0].shape))
    block = _combine_block(ctx, combine_fn, inputs)
    op = ctx.add(Scan(tuple(item.value for item in inputs), place, block, bool(reverse)))
    results = tuple(Tensor(result, item.dtype, item.shape) for result, item in zip(op.results, inputs))
    return results if isinstance(input, tuple) else results[0]


@builtin(method=True)
def gather(ctx: BuildContext, src, index, axis):
    """result[i, j] = src[index[i, j], j] for axis 0, src[i, index[i, j]] for axis 1."""
    src, index = to_tensor(ctx, src, "src"), to_tensor(ctx, index, "index")
    if not index.dtype.is_int():
        ctx.error(f"index is {index.type}, indices are integers", "index")
    place = wrap_axis(ctx, axis, len(src.shape))
    if len(index.shape) != len(src.shape) or any(
        a != b for dim, (a, b) in enumerate(zip(src.shape, index.shape)) if dim != place
    ):
        ctx.error(
            f"index has shape {shape_text(index.shape)}, src has shape {shape_text(src.shape)}: "
            f"they may differ only along axis {place}",
            "index",
        )
    return ctx.tensor(Gather(src.value, index.value, place), src.dtype, index.shape)


@builtin(method=True)
def histogram(ctx: BuildContext, input, num_bins, mask=None):
    """How often each of 0 … num_bins - 1 occurs, elements with a false mask not counted; int32."""
    return counted(ctx, input, num_bins, mask)


def counted(ctx: BuildContext, input: Any, num_bins: Any, mask: Any) -> Tensor:
    """`histogram`."""
    input = to_tensor(ctx, input, "input")
    if len(input.shape) != 1 or not input.dtype.is_int():
        ctx.error(f"tl.histogram takes a vector of integers, {ctx.name('input')} is {input.type}", "input")
    if not isinstance(num_bins, int) or num_bins <= 0 or num_bins & (num_bins - 1):
        help = f"take {next_power_of_two(num_bins)}" if isinstance(num_bins, int) and num_bins > 0 else ""
        ctx.error(
            f"num_bins is {describe(num_bins)}; it must be a power of two known while compiling",
            "num_bins",
            help,
        )
    mask = as_mask(ctx, mask, input)
    op = Histogram(input.value, ctx.ir_type(INT32, (num_bins,)), mask and mask.value)
    return ctx.tensor(op, INT32, (num_bins,))
