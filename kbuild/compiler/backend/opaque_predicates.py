"""A PTX text about which ptxas can prove nothing: it has no reason to leave out any instruction of it.

    setp.lt.s32 %p1, %r1, 8;           setp.lt.s32 %p1, %r1, 8;  xor.pred %p1, %p1, %opaque;
    @%p2 st.global.b32 [%rd1], %r2;    xor.pred %guarded1, %p2, %other;  @%guarded1 st.volatile.global.b32
    [%rd1], %r2;
    mov.u32 %r1, %tid.x;               mov.u32 %r1, %clock;
    mma.sync… {%r3, …}, {%r4, …}, …;   mov.u32 %read32_1, %clock;  xor.b32 %read32_1, %read32_1, %r4;
                                       mma.sync… {%r3, …}, {%read32_1, …}, …;

Where ptxas proves that a store never happens, or is overwritten, it rightly leaves out the MMAs that only this
store uses; of equal `mma` (where one is made of several instructions: of equal parts of them) it keeps one.
The text made here is never run: it is assembled to count the instructions that its MMAs become.
"""

from __future__ import annotations

import re
from itertools import count

_SETP = re.compile(r"(?m)^(.*?\bsetp\.[\w.]+\s+([%$\w]+)(?:\s*\|\s*([%$\w]+))?\s*,[^;]*;)")
_GUARD = re.compile(r"@(!?)([%$\w]+)(?=\s)")
_STORE = re.compile(r"(?<![\w.])st\.(?=(?:global|shared)(?:\.v[248])?\.[bfsu]\d+\b)")
"""Stores that may be volatile: without a cache operator or the like."""
_THREAD = re.compile(r"%tid\.[xyz]\b")
_MMA = re.compile(r"(?<![\w.])(mma\.[\w.:]+\s*(?:\{[^}]*\}|[^,{]*),\s*\{?\s*)([%$\w]+)")
"""An `mma`, and the first register of A."""
_BODY = re.compile(r"\.(?:entry|func)\b[^{;]*\{")
_CLOCK = "mov.u32 %ticks, %clock;\nsetp.eq.b32 %opaque, %ticks, 12345;\nsetp.eq.b32 %other, %ticks, 54321;\n"
"""Conditions that hold once in a while: the clock is not a constant.  There are two, because one would cancel
itself."""


def opaque(ptx: str) -> str:
    """The text with every condition, and the factors of every `mma`, a matter of the clock."""
    numbers = count()

    def hidden(found: re.Match[str]) -> str:
        names = [name for name in (found[2], found[3]) if name and name != "_"]
        return found[1] + "".join(f" xor.pred {name}, {name}, %opaque;" for name in names)

    def guarded(found: re.Match[str]) -> str:
        name = f"%guarded{next(numbers)}"
        return f"xor.pred {name}, {found[2]}, %other; @{found[1]}{name}"

    def distinct(found: re.Match[str]) -> str:
        bits, clock = (64, "%clock64") if ".f64" in found[1] else (32, "%clock")
        name = f"%read{bits}_{next(numbers)}"
        return f"mov.u{bits} {name}, {clock}; xor.b{bits} {name}, {name}, {found[2]}; {found[1]}{name}"

    text = _GUARD.sub(guarded, _SETP.sub(hidden, ptx))
    text = _MMA.sub(distinct, _STORE.sub("st.volatile.", _THREAD.sub("%clock", text)))
    names = f"<{next(numbers) + 1}>"
    registers = f".reg .b32 %ticks, %read32_{names};\n.reg .b64 %read64_{names};\n.reg .pred %opaque, %other, %guarded{names};\n"
    return _BODY.sub(lambda found: f"{found[0]}\n{registers}{_CLOCK}", text)
