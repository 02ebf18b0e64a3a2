"""Gathers: by shuffles when every lane finds its elements in its own warp, else through shared memory.

Of an index, only the bits that count elements of the axis are used, so that none reaches outside the source.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.gather import GatherPlan, gather_columns, plan_gather
from kbuild.compiler.ir.types import bit_width
from kbuild.compiler.layout import unswizzled
from kbuild.compiler.layout.linear import all_sums
from kbuild.compiler.layout.shared import shared_access
from kbuild.compiler.lower.collective.convert_layout import shuffle
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import flat_coordinate, linear
from kbuild.compiler.lower.core.literals import SHARED_POINTER, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, to_word, word_type
from kbuild.compiler.lower.memory.shared_memory import load_vector, store_all
from kbuild.compiler.ops.tensor import Gather
from kbuild.errors import InternalError


@lower(Gather)
def lower_gather(emit: Emitter, op: Gather) -> Sequence[str]:
    plan = plan_gather(op)
    indices = [
        index_register(emit, register, bit_width(op.indices.type))
        for register in emit.registers(op.indices)[:]
    ]
    if plan is not None:
        return _by_shuffles(emit, op, plan, indices)
    if op.scratch is None:
        raise InternalError(f"{op.op_name} has no scratch memory", op.loc)
    return _through_shared(emit, op, op.scratch, indices)


def index_register(emit: Emitter, register: str, bits: int) -> str:
    """The low 32 bits of an integer that is not negative, as i32."""
    if bits == 32 or register[0] != "%":
        return register
    return emit.instruction(f"{'trunc' if bits > 32 else 'zext'} i{bits} {register} to i32")


def _through_shared(emit: Emitter, op: Gather, scratch: int, indices: Sequence[str]) -> list[str]:
    source, columns, size = layout(op.src.type), gather_columns(op), memory_bits(op.src.type) // 8
    stride = 1
    for extent in source.shape[op.axis + 1 :]:
        stride *= extent
    pointer = emit.shared_pointer(scratch)
    memory = unswizzled(source.shape, range(source.rank - 1, -1, -1))
    store_all(emit, shared_access(source, memory, 8 * size), pointer, emit.registers(op.src), op.src.type)
    emit.barrier()
    results: list[str] = []
    for register, index in enumerate(indices):
        base, fixed = flat_coordinate(emit, columns, register)
        own = emit.and_(index, str(source.shape[op.axis] - 1))
        varying = emit.add(emit.mul(own, str(stride * size)), emit.mul(base, str(size)))
        address = emit.offset_pointer(
            emit.offset_pointer(pointer, varying, SHARED_POINTER), fixed * size, SHARED_POINTER
        )
        results += load_vector(emit, address, 1, op.src.type)
    return results


def _by_shuffles(emit: Emitter, op: Gather, plan: GatherPlan, indices: Sequence[str]) -> list[str]:
    """Each register that may hold the element is shuffled; the index says which to keep."""
    kind, sources = word_type(op.src.type), emit.registers(op.src)
    images = [image for image in (*plan.index_registers, *plan.thread_registers) if image]
    reachable = sorted(set(all_sums(images)))
    results: list[str] = []
    for register, index in enumerate(indices):
        lane = _place(emit, index, plan.index_lanes, plan.thread_lanes, plan.lanes[register])
        place = _place(emit, index, plan.index_registers, plan.thread_registers, plan.registers[register])
        kept = ""
        for candidate in (plan.registers[register] ^ each for each in reachable):
            word = to_word(emit, [sources[candidate]], op.src.type)
            received = word if plan.local else shuffle(emit, word, lane, kind)
            kept = (
                emit.select(emit.holds("eq", place, str(candidate)), received, kept, kind)
                if kept
                else received
            )
        results += from_word(emit, kept, op.src.type, 1)
    return results


def _place(
    emit: Emitter, index: str, from_index: tuple[int, ...], from_thread: tuple[int, ...], fixed: int
) -> str:
    own = linear(emit, index, from_index)
    with emit.at_entry():
        base = linear(emit, emit.thread_id(), from_thread)
    return emit.xor(emit.xor(own, base), str(fixed))
