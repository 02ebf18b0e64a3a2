"""The operations that make the register operands of warpgroup dots.

    %q = ttg.local_load %tile                     %a is made by these three; %tile is not a tensor, and a load or a dot
    %p = arith.mulf %q, %s                        starts the chain
    %a = arith.truncf %p
    %d = ttng.warp_group_dot %a, %b, %c {is_async = true}

ptxas may give each of these values the very registers that it keeps the operand in, around a loop those that
the dot of the iteration before reads.  Predicates lie in registers of their own, so that masks are none of
these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kbuild.compiler.analysis.carried import group_of
from kbuild.compiler.ir.core import Op, Value
from kbuild.compiler.ir.types import I1, TensorType
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import LocalLoad
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Load


def register_operand(dot: WarpGroupDot) -> Value | None:
    """The operand of a dot that is in registers; None where both are in shared memory."""
    return next((operand for operand in (dot.a, dot.b) if isinstance(operand.type, TensorType)), None)


def operand_makers(dots: Iterable[WarpGroupDot]) -> set[Op]:
    """The operations that make the register operands of dots, or what these are made of."""
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
    """The values that one is made of: operands, and values that blocks pass to it."""
    group = group_of(value)
    if group is not None:
        yield from group.sources()
    elif value.op is not None and not isinstance(
        value.op, Load | LocalLoad | WarpGroupDot | WarpGroupDotWait
    ):
        yield from value.op.operands
