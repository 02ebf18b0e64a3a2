"""Dots by scalar fma: the layout of their results, and that of loads which are turned on their way to them.

A multiprocessor issues one fma per scheduler and cycle, and reads one register of even number and one of odd
number for it.  So the fewer instructions there are beside the fmas, and the more of these find an operand in
the registers' cache (`.reuse` in SASS), the better.  Threads have square tiles of the result, whose operands
they load in vectors across k, a few values of k ahead; see `prefetch`.

An operand that memory holds contiguous along k would give a thread vectors along k instead: registers for four
values of k at a time, all rows of which have numbers of the same parity, and an order of the fmas that frees
these registers rather than one that reuses operands.  `cp.async` turns such a tile on its way to shared memory,
element by element; see `across_k` in `optimize_dot_operands`.  That takes more copies, few against the fmas, and
threads that have few neighbours along k each, so that their stores meet no bank conflicts.
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Value
from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import blocked, fma_operand, fma_result
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Dot, Load
from kbuild.compiler.transforms._support.layout_flow import converted, held_layout, minor_axis, tensor_type
from kbuild.compiler.transforms.gpu.layout.coalesce import set_layout

_LANES_ALONG_K = 4
"""Of a warp that copies element by element: 16 bytes of a row."""
_LEAST_ACROSS = 32
"""The least rows or columns of the other operand for which more copies are worth it."""


def scalar_operands(
    builder: Builder, func: Func, dot: Dot, operands: tuple[Value, Value], c: Value
) -> tuple[Value, Value, Value]:
    """The operands of a dot by scalar fma, and what it adds to, in the layouts in which it needs them."""
    num_warps: int = func.attrs["num_warps"]
    shape = tensor_type(c).shape
    layout, depth = fma_result(shape, num_warps), tensor_type(operands[0]).shape[-1]
    for index, value in enumerate(operands):
        if _is_turned(value, index, dot, func):
            _spread(value, len(shape) - 1 - index, num_warps)
    a, b = (
        converted(builder, value, fma_operand(layout, index, depth)) for index, value in enumerate(operands)
    )
    return a, b, converted(builder, c, layout)


def _is_turned(value: Value, index: int, dot: Dot, func: Func) -> bool:
    """Whether an operand is a tile that a pipelined loop loads along k for this dot alone, of elements that
    `cp.async` copies one by one."""
    loop, shape = value.op.parent_op if isinstance(value.op, Load) else None, tensor_type(dot.c).shape
    if not isinstance(loop, For) or len(shape) != 2 or bit_width(value.type) != 32:
        return False
    stages = loop.num_stages if loop.num_stages is not None else func.attrs.get("num_stages", 1)
    return (
        stages > 1
        and shape[1 - index] >= _LEAST_ACROSS
        and minor_axis(held_layout(value)) == 1 - index
        and _is_for(value, dot)
    )


def _is_for(value: Value, dot: Dot) -> bool:
    """Whether a dot alone uses a value, perhaps in other layouts."""
    return all(
        user is dot or (isinstance(user, ConvertLayout) and _is_for(user.result, dot)) for user in value.users
    )


def _spread(value: Value, axis: int, num_warps: int) -> None:
    """Let threads load elements one by one, few lanes along `axis`, the others and all warps across it."""
    shape = tensor_type(value).shape
    threads, warps = [32 // _LANES_ALONG_K] * 2, [num_warps] * 2
    threads[axis], warps[axis] = _LANES_ALONG_K, 1
    assert isinstance(value.op, Load)
    set_layout(value.op, blocked(shape, (1, 1), threads, warps, (axis, 1 - axis)))
