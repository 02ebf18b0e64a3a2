"""Gives the partitions of a `ttg.warp_specialize` the values that they use from outside.

Before:
    %i: i32 = arith.muli %pid, %c64
    %n: i32 = tt.load %p
    ttg.warp_specialize default() { … } partitions() {
      ttg.warp_partition body() { … %i … %n … %tile … }
    }
After:
    ttg.warp_specialize %n default() { … } partitions() {
      ttg.warp_partition body(%n_1: i32) { %i_1: i32 = arith.muli %pid, %c64  … %i_1 … %n_1 … %tile … }
    }

A partition's warps run nothing of the kernel but the partition.  Arguments of the kernel and allocations are there
for all; what a few operations compute of those is computed again; and what else there is goes through shared
memory.
"""

from __future__ import annotations

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.nesting import is_within
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType, is_tensor
from kbuild.compiler.ops.gpu import LocalAlloc, WarpPartition, WarpPartitions
from kbuild.errors import CompileError
from kbuild.targets import Target

MAX_OPERATIONS = 32
"""Operations that are repeated for one value rather than pass it through shared memory."""


@gpu_pass
def capture(module: Module, target: Target) -> None:
    """Compute in partitions, or pass to them, what they use from outside.

    Raises `CompileError` for a tensor, which the warps of one part hold.
    """
    for func in module.functions.values():
        for op in func.body.walk():
            if isinstance(op, WarpPartitions):
                _capture(func, op)


def _capture(func: Func, op: WarpPartitions) -> None:
    passed: dict[Value, None] = {}
    for part in op.workers:
        mapping: dict[Value, Value] = {}
        builder = Builder(part.body, part.body.first)
        for value in _outside(part, func):
            slice_ = _recomputed(value, func)
            if slice_ is None:
                passed[value] = None
                continue
            for inner in slice_:
                if inner.results[0] not in mapping:
                    builder.add(inner.clone(mapping))
            _replace(part, value, mapping[value])
    for value in passed:
        if is_tensor(value.type) or isinstance(value.type, MemDescType):
            raise CompileError(
                f"a partition uses {value.name or 'a value'} from outside, which is {value.type}",
                op.loc,
                "pass it in shared memory: only the first function of gl.warp_specialize takes tensors",
            )
    if passed:
        op.captures = (*op.captures, *passed)
        for part in op.workers:
            for value in passed:
                _replace(part, value, part.body.add_argument(value.type, value.name))


def _outside(part: WarpPartition, func: Func) -> list[Value]:
    """The values that a partition uses from outside and that are not there for all warps."""
    found: dict[Value, None] = {}
    for op in part.body.walk():
        for operand in op.operands:
            inside = is_within(operand.block, part.body)
            if not inside and operand.owner is not func.body and not isinstance(operand.op, LocalAlloc):
                found[operand] = None
    return list(found)


def _recomputed(value: Value, func: Func) -> list[Op] | None:
    """The operations that compute a value from what is there for all warps, in order; None where it is not, or they
    are too many."""
    found: dict[Op, None] = {}

    def visit(current: Value) -> bool:
        op = current.op
        if current.owner is func.body or isinstance(op, LocalAlloc) or op in found:
            return True
        if op is None or not op.has(Trait.PURE) or op.regions or len(op.results) != 1:
            return False
        if len(found) >= MAX_OPERATIONS or not all(map(visit, op.operands)):
            return False
        found[op] = None
        return True

    return list(found) if visit(value) else None


def _replace(part: WarpPartition, old: Value, new: Value) -> None:
    """Use another value inside a partition."""
    for user in list(old.users):
        if is_within(user.parent_block, part.body):
            user.replace_operand(old, new)
