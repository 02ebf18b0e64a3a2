"""How many registers a PTX text keeps at once if its instructions stay in their order.

ptxas moves instructions, rematerializes values and knows loops, so this does not predict its registers.  But
where the text needs several times the registers that a thread may have, it spills.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate

_VIRTUAL = re.compile(r"%r[ds]?\d+")
"""Virtual registers of 64, 16 and 32 bits; predicates have a file of their own."""


@lru_cache(maxsize=2)  # How many warps there are, and how ptxas is asked, depend on it one after the other.
def live_registers(ptx: str) -> int:
    """The most 32-bit registers whose first and last mention enclose one point of the text; one of 16 bits
    takes a whole one."""
    mentions = _VIRTUAL.findall(ptx)
    last = {register: place for place, register in enumerate(mentions)}
    first = {register: len(mentions) - place for place, register in enumerate(reversed(mentions), 1)}
    changes = [0] * len(mentions)
    for register, place in last.items():
        width = 2 if register.startswith("%rd") else 1
        changes[first[register]] += width
        changes[place] -= width
    return max(accumulate(changes), default=0)
