"""A PTX text whose conditions ptxas cannot know: what it leaves out of this one, it drops without a reason.

    setp.lt.s32 %p1, %r1, 8;           setp.lt.s32 %p1, %r1, 8;  xor.pred %p1, %p1, %opaque;
    @%p2 st.global.b32 [%rd1], %r2;    xor.pred %guarded1, %p2, %other;  @%guarded1 st.global.b32 [%rd1], %r2;

Where ptxas proves that a store never happens it leaves out, rightly, the products that only this store has a use for.  The text
made here is never run: it is assembled to count what comes of its products.
"""

from __future__ import annotations

import re
from itertools import count

_SETP = re.compile(r"(?m)^(.*?\bsetp\.[\w.]+\s+([%$\w]+)(?:\s*\|\s*([%$\w]+))?\s*,[^;]*;)")
_GUARD = re.compile(r"@(!?)([%$\w]+)(?=\s)")
_BODY = re.compile(r"\.entry\b[^{]*\{")
_CLOCK = "mov.u32 %ticks, %clock;\nsetp.eq.b32 %opaque, %ticks, 12345;\nsetp.eq.b32 %other, %ticks, 54321;\n"
"""Conditions that hold once in a while: the clock is no constant.  There are two, for one would undo itself."""


def opaque(ptx: str) -> str:
    """The text with every condition a matter of the clock."""
    numbers = count()

    def hidden(found: re.Match[str]) -> str:
        names = [name for name in (found[2], found[3]) if name and name != "_"]
        return found[1] + "".join(f" xor.pred {name}, {name}, %opaque;" for name in names)

    def guarded(found: re.Match[str]) -> str:
        name = f"%guarded{next(numbers)}"
        return f"xor.pred {name}, {found[2]}, %other; @{found[1]}{name}"

    text = _GUARD.sub(guarded, _SETP.sub(hidden, ptx))
    made = f"\n.reg .b32 %ticks;\n.reg .pred %opaque, %other, %guarded<{next(numbers) + 1}>;\n{_CLOCK}"
    return _BODY.sub(lambda found: found[0] + made, text)
