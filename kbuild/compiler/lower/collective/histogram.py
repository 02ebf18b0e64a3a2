"""Histograms: atomic counts in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import unswizzled
from kbuild.compiler.layout.shared import SharedAccess, shared_access
from kbuild.compiler.lower.collective.gather import index_register
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import owns
from kbuild.compiler.lower.core.literals import SHARED_POINTER, llvm_type, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.memory.shared_memory import load_all, store_all, with_copies
from kbuild.compiler.ops.tensor import Histogram
from kbuild.errors import InternalError


@lower(Histogram)
def lower_histogram(emit: Emitter, op: Histogram) -> Sequence[str]:
    """The threads of the result clear its places, count, and read what all have counted."""
    if op.scratch is None:
        raise InternalError(f"{op.op_name} has no scratch memory", op.loc)
    result = layout(op.type)
    access: SharedAccess = shared_access(result, unswizzled(result.shape, (0,)), memory_bits(op.type))
    pointer = emit.shared_pointer(op.scratch)
    store_all(emit, access, pointer, ["0"] * result.size("register"), op.type)
    emit.barrier()
    _count(emit, op, pointer, result.numel)
    emit.barrier()
    return with_copies(load_all(emit, access, pointer, op.type), result)


def _count(emit: Emitter, op: Histogram, pointer: str, bins: int) -> None:
    """Each element counts once: in the first thread and register that hold it, if it is a bin and the mask
    lets it."""
    source, bits = layout(op.src.type), bit_width(op.src.type)
    values = emit.registers(op.src)
    masks = emit.registers(op.mask) if op.mask is not None else None
    owner, size = owns(emit, source), memory_bits(op.type) // 8
    for register in source.unique_registers():
        value = values[register]
        inside = (
            "true"
            if bits < 32 and bins >= 1 << bits
            else emit.compare("ult", value, str(bins), llvm_type(op.src.type))
        )
        mask = masks[register] if masks is not None else None
        with emit.when(emit.all_of([owner, mask, inside])):
            offset = emit.mul(index_register(emit, value, bits), str(size))
            address = emit.offset_pointer(pointer, offset, SHARED_POINTER)
            kind = llvm_type(op.type)
            emit.effect(f'atomicrmw add {SHARED_POINTER} {address}, {kind} 1 syncscope("block") monotonic')
