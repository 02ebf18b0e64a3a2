"""Large tensors that a reduction alone consumes, an element at a time.

    %x: tensor<256x1024xf16> = tt.load %p                 1024 registers of a thread
    %y: tensor<256x1024xf32> = arith.extf %x
    %z: tensor<256x1024xf32> = arith.mulf %y, %w
    %s: tensor<256xf32> = tt.reduce %z {axis = 1}         takes them one after the other

Written operation by operation, all of %x would have to be in registers at once.  They can instead be loaded where
the reduction wants them, if nothing writes memory in between.
"""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.core import Func, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.ops.tensor import Load, Reduce

_MANY_WORDS = 128
"""Registers of a thread that a load takes before it is worth to wait for the reduction: half of what there is."""


def consumed_late(func: Func) -> set[Value]:
    """The values that are to be written where a reduction asks for them."""
    late: set[Value] = set()
    for op in func.body.walk():
        if isinstance(op, Reduce) and len(op.srcs) == 1:
            chain = _chain(op)
            if any(isinstance(value.op, Load) and words([value]) > _MANY_WORDS for value in chain):
                late |= chain
    return late


def _chain(reduce: Reduce) -> set[Value]:
    """The operands of a reduction that nothing else uses, through elementwise operations, up to loads."""
    found: set[Value] = set()
    work = [reduce.srcs[0]]
    while work:
        value = work.pop()
        op = value.op
        if op is None or op.parent is not reduce.parent or sum(value.users.values()) != 1:
            continue
        if isinstance(op, Load):
            if not op.volatile and not _written_between(op, reduce):
                found.add(value)
        elif op.has(Trait.ELEMENTWISE):
            found.add(value)
            work += (operand for operand in op.operands if isinstance(operand.type, TensorType))
    return found


def _written_between(load: Load, reduce: Reduce) -> bool:
    op: Op | None = load.next
    while op is not None and op is not reduce:
        if op.regions and not isinstance(op, Reduce):
            return True
        if not op.has(Trait.PURE) and not isinstance(op, Load):
            return True
        op = op.next
    return False
