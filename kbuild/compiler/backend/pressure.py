"""How many registers a PTX text keeps at once if its instructions stay in their order.

ptxas moves instructions, rematerializes values and knows loops, so this does not predict its registers.  But
where the text needs several times the registers that a thread may have, it spills.
"""

from __future__ import annotations

import re

_VIRTUAL = re.compile(r"%(?:rd|rs|r)\d+")
"""Virtual registers of 64, 16 and 32 bits; predicates have a file of their own."""


def live_registers(ptx: str) -> int:
    """The most 32-bit registers whose first and last mention enclose one point of the text; one of 16 bits
    takes a whole one."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for match in _VIRTUAL.finditer(ptx):
        last[match[0]] = match.start()
        first.setdefault(match[0], match.start())
    changes = []
    for register, start in first.items():
        width = 2 if register.startswith("%rd") else 1
        changes += (start, width), (last[register], -width)
    live = most = 0
    for _, width in sorted(changes):
        live += width
        most = max(most, live)
    return most
