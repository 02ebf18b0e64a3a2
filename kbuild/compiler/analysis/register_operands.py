"""What the operands in registers of warpgroup dots are made of.

    %q = ttg.local_load %tile                     %a is made by these three; %tile is no tensor, and what a load or a dot
    %p = arith.mulf %q, %s                        gives begins there
    %a = arith.truncf %p
    %d = ttng.warp_group_dot %a, %b, %c {is_async = true}

ptxas may give each of these values the very registers that it keeps the operand in, around a loop those that the dot of the
iteration before reads.  Predicates lie in registers of their own, so that masks are none of these.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.types import I1, TensorType
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import LocalLoad
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Load


def register_operand(dot: WarpGroupDot) -> Value | None:
    """The operand of a dot that is in registers; None where both are in shared memory."""
    return next((operand for operand in (dot.a, dot.b) if isinstance(operand.type, TensorType)), None)


def operand_makers(func: Func) -> set[Op]:
    """The operations of a function that make register operands of dots, or what these are made of."""
    dots = [op for op in func.body.walk() if isinstance(op, WarpGroupDot)]
    work = [operand for dot in dots if (operand := register_operand(dot)) is not None]
    seen, makers = set(work), set[Op]()
    while work:
        value = work.pop()
        if value.op is not None and not isinstance(value.op, Constant | WarpGroupDot | WarpGroupDotWait):
            makers.add(value.op)
        for source in _sources(value):
            if isinstance(source.type, TensorType) and source.type.element != I1 and source not in seen:
                seen.add(source)
                work.append(source)
    return makers


def _sources(value: Value) -> Iterator[Value]:
    """The values that one is made of: operands, and where blocks hand values on, what they hand on."""
    op = value.op
    if op is None and isinstance(value.block.parent, For) and value.index:
        yield from _turns(value.block.parent, value.index - 1)
    elif isinstance(op, For):
        yield from _turns(op, value.index)
    elif op is None or op.regions:
        owner = op or value.block.parent
        for region in owner.regions if owner is not None else ():
            yield from region.terminator.operands
        yield from owner.operands if owner is not None else ()
    elif not isinstance(op, Load | LocalLoad | WarpGroupDot | WarpGroupDotWait):
        yield from op.operands


def _turns(loop: For, index: int) -> tuple[Value, Value]:
    """What a carried value of a loop is at first, and what it is afterwards."""
    return loop.init[index], loop.yielded[index]
