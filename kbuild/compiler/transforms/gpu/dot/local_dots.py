"""Lets dots of many scalar multiply-adds read their operands from shared memory piece by piece, in loops over
k.

Before:
    %1: tensor<64x64xf64, #a> = ttg.local_load %x
    %2: tensor<64x64xf64, #b> = ttg.local_load %y
    %d: tensor<64x64xf64, #c> = tt.dot %1, %2, %z
After:
    %d: tensor<64x64xf64, #c> = ttg.local_dot %x, %y, %z

Dots of tiles in the buffers of a pipelined loop stay as they are where a thread has the registers for two steps of
them: they are written out in steps, of which one is loaded while the one before is multiplied (see `prefetch`).
Unrolled as a whole, such a dot is thousands of instructions over operands that no thread has the registers for, which
takes the code generators many seconds and the kernel its registers.  An operand that was made in registers is
written to shared memory, each element by one thread: what was computed for every thread that multiplies it, copies of
all rows or columns, is computed as its source was loaded instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbuild.compiler.analysis.allocation import demands, place
from kbuild.compiler.analysis.pressure import pressure
from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType, bit_width, element_of, is_float
from kbuild.compiler.layout import LinearLayout, coalesced, fma_operand, total_bytes
from kbuild.compiler.layout.shared import MAX_VECTOR_BITS
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import (
    ConvertLayout,
    LocalAlloc,
    LocalDot,
    LocalLoad,
    MemDescIndex,
    MemDescSubslice,
    MemDescTrans,
)
from kbuild.compiler.ops.tensor import Dot
from kbuild.compiler.transforms._support.layout_flow import (
    FREE,
    Relaid,
    converted,
    held_layout,
    operand_layout,
    tensor_operands,
    tensor_type,
)
from kbuild.compiler.transforms.gpu.dot.optimize_dot_operands import shared_layout
from kbuild.compiler.transforms.gpu.dot.prefetch import step_words
from kbuild.compiler.transforms.gpu.layout.remove_conversions.cost import repeat_cost
from kbuild.compiler.transforms.gpu.memory.reorder import is_kept, may_move
from kbuild.targets import Target

_MAX_UNROLLED = 512
"""Multiply-adds of a thread that are written out."""

_MAX_STEPPED = 2048
"""The same where the operands are read in steps: the code of a loop has to stay in the cache of instructions."""
_OTHER_WORDS = 40
"""Registers of a thread for addresses and counters."""


@gpu_pass
def local_dots(module: Module, target: Target) -> None:
    """Replace every dot without an instruction of the tensor cores that has too many multiply-adds to be
    written out."""
    for func in module.functions.values():
        long = [op for op in func.body.walk() if isinstance(op, Dot) and _is_long(op)]
        alive = pressure(func, _floats) if long else {}
        registers = target.limits.registers_for(32 * func.attrs["num_warps"])
        long = [dot for dot in long if not _is_stepped(dot, alive[dot], registers)]
        for dot in long:
            _rewrite(dot, func, target)
        if long:
            erase_dead(func.body)
            _erase_unread(func)


def _is_long(dot: Dot) -> bool:
    """Whether a dot is by scalar fma, and of too many."""
    if dot.atom or element_of(dot.a.type) != element_of(dot.c.type):
        return False
    return len(held_layout(dot.c).unique_registers()) * tensor_type(dot.a).shape[-1] > _MAX_UNROLLED


def _is_stepped(dot: Dot, alive: float, registers: int) -> bool:
    """Whether a dot of tiles in the buffers of a loop is written out in steps (see `prefetch`), where tensors take
    `alive` registers after it, of so many that a thread may have."""
    loop = dot.parent_op
    if not isinstance(loop, For) or not all(_is_in_ring(operand) for operand in (dot.a, dot.b)):
        return False
    sums, depth = len(held_layout(dot.c).unique_registers()), tensor_type(dot.a).shape[-1]
    # What the loop carries is counted once more as what it begins with.
    needed = alive - _floats(loop.init) + step_words(dot) + _OTHER_WORDS
    return sums * depth <= _MAX_STEPPED and needed <= registers


def _floats(values: Iterable[Value]) -> float:
    """The registers of tensors but for those of addresses and masks, which differ by constants mostly."""
    return words(value for value in values if is_float(element_of(value.type)))


def _is_in_ring(operand: Value) -> bool:
    """Whether an operand is loaded, where the dot is, from one of several buffers."""
    if not isinstance(operand.op, LocalLoad):
        return False
    view = operand.op.src.op
    while isinstance(view, MemDescSubslice | MemDescTrans):
        view = view.src.op
    return isinstance(view, MemDescIndex)


def _rewrite(dot: Dot, func: Func, target: Target) -> None:
    """Replace a dot, unless its operands find no room in shared memory."""
    tiles = [_kept_tile(operand, dot) for operand in (dot.a, dot.b)]
    missing = [index for index, tile in enumerate(tiles) if tile is None]
    if missing:
        added = sum(_size(dot.operands[index]) for index in missing)
        _, taken = place(demands(func))
        if (
            taken + 2 * added > target.limits.shared_bytes
        ):  # Twice: they also pass through there on their way.
            return
    a, b = (tile or _new_tile(dot, index, func.attrs["num_warps"]) for index, tile in enumerate(tiles))
    dot.replace_by(Builder.before(dot).add(LocalDot(a, b, dot.c), dot.result.name))


def _erase_unread(func: Func) -> None:
    """Remove the tiles that no operand is loaded from any more."""
    for op in list(func.body.walk()):
        if isinstance(op, LocalAlloc) and not op.result.users:
            op.erase()
    erase_dead(func.body)


def _size(value: Value) -> int:
    """Bytes of a tensor."""
    type_ = tensor_type(value)
    return total_bytes(held_layout(value), bit_width(type_))


def _kept_tile(value: Value, dot: Dot) -> Value | None:
    """The shared memory that an operand is loaded from, if that holds it still where the dot is."""
    if isinstance(value.op, LocalLoad) and may_move(value.op, dot, past_tiles=True):
        return value.op.src
    return None


def _new_tile(dot: Dot, index: int, num_warps: int) -> Value:
    """An operand written to shared memory."""
    value, builder = dot.operands[index], Builder.before(dot)
    type_ = tensor_type(value)
    rows = _source_layout(value) or coalesced(
        type_.shape, range(type_.rank - 1, -1, -1), MAX_VECTOR_BITS // bit_width(type_), num_warps
    )
    source = _Written().get(value, rows)
    reader = fma_operand(held_layout(dot.c), index, tensor_type(dot.a).shape[-1])
    layout = shared_layout(held_layout(source), bit_width(type_), [reader])
    return builder.add(LocalAlloc(MemDescType(type_.shape, type_.element, layout), source), value.name).result


def _stored(value: Value) -> Value | None:
    """The tensor that was written to the memory from which a value is loaded, if that holds it for good."""
    if isinstance(value.op, LocalLoad) and isinstance(value.op.src.op, LocalAlloc) and is_kept(value.op.src):
        return value.op.src.op.src
    return None


def _source_layout(value: Value) -> LinearLayout | None:
    """The layout that the elements had before they went to all threads that multiply them, if there one thread held
    each."""
    while True:
        op = value.op
        operands = [value for _, value in tensor_operands(op) if not isinstance(value.op, FREE)] if op else []
        if (stored := _stored(value)) is not None:
            value = stored
        elif operands and (isinstance(op, ConvertLayout) or (op and op.has(Trait.ELEMENTWISE))):
            value = operands[0]
        else:
            break
    layout = held_layout(value)
    return layout if layout.is_injective() else None


class _Written(Relaid):
    """Values in the layout in which they are written: as they were before they changed to their own, or computed once more,
    where they can be."""

    def make(self, value: Value, layout: LinearLayout) -> Value:
        op = value.op
        if isinstance(op, ConvertLayout):
            return self.get(op.src, layout)
        if isinstance(op, LocalLoad):
            stored = _stored(value)
            if stored is not None and held_layout(stored) == layout:
                return stored
            return Builder.after(op).add(LocalLoad(op.src, tensor_type(value).with_layout(layout))).result
        if (
            op is not None
            and repeat_cost(op, layout) is not None
            and all(operand_layout(op, index, layout) is not None for index, _ in tensor_operands(op))
        ):
            return super().make(value, layout)
        return converted(Builder.after_value(value), value, layout)
