"""cp.async: global memory straight into shared memory, 4, 8 or 16 bytes at a time, and the groups to wait
for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.layout.shared import shared_access
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import owns
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, SHARED_POINTER, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.memory.global_memory import axis_info, vector_axis, vector_width
from kbuild.compiler.lower.memory.pointers import address
from kbuild.compiler.lower.memory.shared_memory import descriptor, thread_offset
from kbuild.compiler.ops.elementwise import AndI
from kbuild.compiler.ops.gpu import AsyncCommitGroup, AsyncCopyGlobalToLocal, AsyncWait
from kbuild.errors import CompileError, InternalError


@lower(AsyncCopyGlobalToLocal)
def lower_async_copy(emit: Emitter, op: AsyncCopyGlobalToLocal) -> None:
    """One instruction per vector; it copies the bytes that the mask lets through and fills the rest with
    zeros."""
    assert isinstance(op.dst.type, MemDescType)
    if op.other is not None:
        raise InternalError("cp.async fills masked places with zeros only", op.loc)
    source, element_bits = layout(op.src.type), memory_bits(op.dst.type)
    size = element_bits // 8
    width = vector_width(emit, op.src, op.mask, cut=True)
    access = shared_access(source, op.dst.type.layout, element_bits, width * element_bits)
    if access.vector * size not in (4, 8, 16):
        raise CompileError(
            f"each thread would copy {access.vector * size} bytes at a time, cp.async copies 4, 8 or 16",
            op.loc,
            "give a thread neighbours along the contiguous dimension, which stay together in shared memory, and state "
            "what divides pointers and strides",
        )
    pointer, start = descriptor(emit, op.dst)
    place = thread_offset(emit, pointer, access.lane, access.warp, size, access.gaps)
    axis = vector_axis(emit, op.src, access.vector) if op.mask is not None else 0
    whole = _whole(emit, op.mask, axis, access.vector)
    count = _copied(emit, op.mask, axis, access.vector) if op.mask is not None and whole is None else None
    with emit.when(owns(emit, source)):
        for group, offset in zip(access.groups, access.offsets):
            target = place.split(emit, (offset ^ start) * size)
            origin = address(emit, op.src, group[0])
            if count is not None:
                _copy(emit, target, origin, access.vector * size, emit.mul(count(group), str(size)))
            elif whole is not None:
                _copy_if(emit, target, origin, access.vector * size, whole(group))


def _whole(
    emit: Emitter, mask: Value | None, axis: int, vector: int
) -> Callable[[Sequence[int]], str] | None:
    """Gives the condition on which a mask lets a vector, given by its registers, through; None where it may let a
    part through."""
    if mask is None:
        return lambda group: "true"
    masks = emit.registers(mask)
    if axis_info(emit).mask_alignment(mask, axis) >= vector:
        return lambda group: masks[group[0]]
    if isinstance(mask.op, AndI):
        left, right = (_whole(emit, side, axis, vector) for side in (mask.op.lhs, mask.op.rhs))
        if left is not None and right is not None:
            return lambda group: emit.all_of([left(group), right(group)])
    return None


def _copied(emit: Emitter, mask: Value, axis: int, vector: int) -> Callable[[Sequence[int]], str]:
    """How many elements a mask lets through, all of them first, of a vector along an axis, given by its
    registers.

    A conjunction with what lets all through or none, such as a row's, is taken apart: columns are counted
    once.
    """
    if isinstance(mask.op, AndI):
        for uniform, varying in ((mask.op.lhs, mask.op.rhs), (mask.op.rhs, mask.op.lhs)):
            whole = _whole(emit, uniform, axis, vector)
            if whole is not None:
                inner = _copied(emit, varying, axis, vector)
                return lambda group: emit.select(whole(group), inner(group), "0", "i32")
    masks = emit.registers(mask)

    def sum_of(group: Sequence[int]) -> str:
        count = "0"
        for register in group:
            count = emit.add(count, emit.select(masks[register], "1", "0", "i32"))
        return count

    return sum_of


Place = tuple[str, int]
"""A pointer, and how many bytes after it."""


def _copy(emit: Emitter, target: Place, source: Place, size: int, copied: str | None) -> None:
    """16 bytes bypass the L1 cache (`.cg`), smaller copies cannot (`.ca`); `copied` is the register of how
    many to read."""
    name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    operands = [
        (SHARED_POINTER, emit.offset_pointer(*target, SHARED_POINTER)),
        (GLOBAL_POINTER, emit.offset_pointer(*source, GLOBAL_POINTER)),
    ]
    if copied is not None:
        name += ".s"
        operands.append(("i32", copied))
    emit.call(name, "void", operands, effect=True)


def _copy_if(emit: Emitter, target: Place, source: Place, size: int, condition: str) -> None:
    """All the bytes, or zeros where the condition does not hold.  ptxas uses a predicate as the instruction's
    condition directly, but needs a select and a comparison for a number of bytes."""
    if condition in ("true", "false"):
        _copy(emit, target, source, size, None if condition == "true" else "0")
        return
    ignored = emit.instruction(f"xor i1 {condition}, true")
    operands = [(SHARED_POINTER, target[0]), (GLOBAL_POINTER, source[0]), ("i1", ignored)]
    name = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global"
    emit.asm(
        f"{name} [$0 + {target[1]}], [$1 + {source[1]}], {size}, $2;", "r,l,b", operands, [], effect=True
    )


@lower(AsyncCommitGroup)
def lower_commit_group(emit: Emitter, op: AsyncCommitGroup) -> None:
    emit.call("llvm.nvvm.cp.async.commit.group", "void", [], effect=True)


@lower(AsyncWait)
def lower_async_wait(emit: Emitter, op: AsyncWait) -> None:
    emit.call("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(op.num))], effect=True)
