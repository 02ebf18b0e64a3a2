"""How the registers of a multiprocessor are shared out between the producer and the warps that multiply."""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import loop_words
from kbuild.compiler.ops.control import For
from kbuild.targets.wgmma import MAX_REGISTERS
from kbuild.targets.wgmma import REGISTER_UNIT as UNIT

PRODUCER_REGISTERS, FEWEST_REGISTERS = 40, 24
"""What a thread of the producer's warps keeps, and what it keeps where the others are short: indices computed
by divisions want more, but 24 is the least that the hardware gives."""
_SHARE = 0.6
"""The part of a thread's registers that a loop's tensors may take before it needs more: the rest is for
addresses, and for what a tensor becomes after the loop."""
_ALL = 0.8
"""The part above which it needs all that there are: attention's backward pass has products of what it carries
beside them, for a time."""


def share_out(
    loop: For, num_warps: int, producer_warps: int, register_file: int, most: int | None = None
) -> tuple[int, ...]:
    """Registers of a thread of the producer's warps and of one of the others; empty where all may keep what
    they start with, or where the author has said how many a thread has at most."""
    if most is not None:
        return ()
    start = register_file // (32 * (num_warps + producer_warps)) // UNIT * UNIT
    if start > MAX_REGISTERS or loop_words(loop) <= _SHARE * start:
        return ()
    for kept in (PRODUCER_REGISTERS, FEWEST_REGISTERS):
        rest = (register_file - 32 * producer_warps * kept) // (32 * num_warps)
        given = min(rest // UNIT * UNIT, MAX_REGISTERS)
        if loop_words(loop) <= _ALL * given:
            break
    return kept, given
