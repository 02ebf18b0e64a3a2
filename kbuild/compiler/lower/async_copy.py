"""cp.async: global memory straight into shared memory, 4, 8 or 16 bytes at a time, and the groups to wait for."""

from __future__ import annotations

from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.layout.shared import shared_access
from kbuild.compiler.lower.emit import Emitter
from kbuild.compiler.lower.index import owns
from kbuild.compiler.lower.literals import GLOBAL_POINTER, SHARED_POINTER, memory_bits
from kbuild.compiler.lower.lowering import lower
from kbuild.compiler.lower.memory import vector_width
from kbuild.compiler.lower.pointers import address
from kbuild.compiler.lower.shapes import layout
from kbuild.compiler.lower.shared import descriptor, thread_offset
from kbuild.compiler.ops.gpu import AsyncCommitGroup, AsyncCopyGlobalToLocal, AsyncWait
from kbuild.errors import InternalError


@lower(AsyncCopyGlobalToLocal)
def lower_async_copy(emit: Emitter, op: AsyncCopyGlobalToLocal) -> None:
    """One instruction per vector; a masked one copies no bytes and fills the place with zeros."""
    assert isinstance(op.dst.type, MemDescType)
    if op.other is not None:
        raise InternalError("cp.async fills masked places with zeros only", op.loc)
    source, element_bits = layout(op.src.type), memory_bits(op.dst.type)
    size = element_bits // 8
    width = vector_width(emit, op.src, op.mask)
    access = shared_access(source, op.dst.type.layout, element_bits, width * element_bits)
    if access.vector * size not in (4, 8, 16):
        raise InternalError(f"cp.async of {access.vector * size} bytes", op.loc)
    pointer, start = descriptor(emit, op.dst)
    place = thread_offset(emit, pointer, access.lane, access.warp, size)
    mask = emit.registers(op.mask) if op.mask is not None else None
    with emit.when(owns(emit, source)):
        for group, offset in zip(access.groups, access.offsets):
            target = place.address(emit, (offset ^ start) * size)
            base, constant = address(emit, op.src, group[0])
            if constant:
                base = emit.instruction(f"getelementptr i8, {GLOBAL_POINTER} {base}, i64 {constant}")
            _copy(emit, target, base, access.vector * size, mask[group[0]] if mask is not None else None)


def _copy(emit: Emitter, target: str, source: str, size: int, condition: str | None) -> None:
    """16 bytes bypass the L1 cache (`.cg`), smaller copies can't (`.ca`)."""
    name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    operands = [(SHARED_POINTER, target), (GLOBAL_POINTER, source)]
    if condition is not None:
        name += ".s"
        operands.append(("i32", emit.select(condition, str(size), "0", "i32")))
    emit.call(name, "void", operands, effect=True)


@lower(AsyncCommitGroup)
def lower_commit_group(emit: Emitter, op: AsyncCommitGroup) -> None:
    emit.call("llvm.nvvm.cp.async.commit.group", "void", [], effect=True)


@lower(AsyncWait)
def lower_async_wait(emit: Emitter, op: AsyncWait) -> None:
    emit.call("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(op.num))], effect=True)
