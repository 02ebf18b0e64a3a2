"""Dots by scalar fma: which of their operands are turned on their way through shared memory.

A multiprocessor issues one fma per scheduler and cycle, and reads one register of even number and one of odd
number for it.  So the fewer instructions there are beside the fmas, and the more of these find an operand in
the registers' cache (`.reuse` in SASS), the better.  Threads have square tiles of the result (`fma_result`), and
load operands for one value of k after the other, in vectors across k; see `prefetch`.

An operand that memory holds contiguous along k would give a thread vectors along k instead: registers for four
values of k at a time, of which all for one k have numbers of the same parity, and ptxas takes the fmas in an
order that frees these registers rather than one that uses an operand again.  So such a tile goes through
registers: vectors along k are loaded two iterations ahead, and stored element by element, contiguous across k.
`cp.async` could do that element by element, too, but four times as many copies cost more than they save.
"""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.types import MemDescType, bit_width
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Dot, Load
from kbuild.compiler.transforms._support.layout_flow import held_layout, minor_axis, tensor_type
from kbuild.compiler.transforms.gpu.pipeline.loads import reads_plain_tile

_MAX_HELD_REGISTERS = 32
"""32-bit registers per thread in which a loop may hold a tile that is turned."""
_LEAST_ACROSS = 32
"""The least rows or columns of the other operand for which a store for each element is worth it."""
_LEAST_SUMS = 32
"""The least sums of a thread whose fmas take longer than their operands come from shared memory, or nearly so."""


def is_turned(convert: ConvertLayout, func: Func) -> bool:
    """Whether what a conversion brings to a dot by scalar fma is to be turned: a tile that a pipelined loop loads along
    k, for this dot alone."""
    load, users = convert.src.op, list(convert.result.users)
    if not isinstance(load, Load) or not reads_plain_tile(load) or list(load.result.users) != [convert]:
        return False
    dot, loop = users[0], load.parent_op
    if len(users) > 1 or not isinstance(dot, Dot) or dot.atom or not isinstance(loop, For):
        return False
    shape, index = tensor_type(dot.c).shape, dot.operands.index(convert.result)
    stages = loop.num_stages if loop.num_stages is not None else func.attrs.get("num_stages", 1)
    layout = held_layout(load.result)
    return (
        len(shape) == 2
        and stages > 1
        and bit_width(load.result.type) == 32
        and shape[1 - index] >= _LEAST_ACROSS
        and len(held_layout(dot.c).unique_registers()) >= _LEAST_SUMS
        and minor_axis(layout) == 1 - index
        and layout.contiguous_per_thread(1 - index) > 1
        and words([load.result]) <= _MAX_HELD_REGISTERS
    )


def goes_through_registers(load: Load, tile: MemDescType) -> bool:
    """Whether a tile is contiguous along another axis than that along which threads load vectors of it."""
    layout = held_layout(load.result)
    minor = minor_axis(layout)
    return (
        layout.rank == 2
        and layout.contiguous_per_thread(minor) > 1
        and bit_width(tile) == 32
        and tile.layout.unflatten(tile.layout.bases_of("offset")[0])[1 - minor] == 1
    )
