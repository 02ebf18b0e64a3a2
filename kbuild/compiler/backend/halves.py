"""A PTX text that keeps every 16-bit value in a register of 32 bits, because ptxas spills halves of registers
wrongly.

    add.f16 %rs3, %rs1, %rs2;          cvt.u16.u32 %half0, %word1;  cvt.u16.u32 %half1, %word2;
                                       add.f16 %rs3, %half0, %half1;
                                       cvt.u32.u16 %word3, %rs3;

ptxas keeps two 16-bit values in the halves of one register.  Where it spills both, one by one, it writes the
lower half for either of them (12.8 to 13.5, at all levels but 0; seen on an H200: of a kernel with 255
registers seven values in 128 were their neighbours').  Values that take a whole register each are spilled
correctly.  The conversions cost instructions, and the registers that halves would have shared: the text is for
kernels of which ptxas has spilled upper halves.
"""

from __future__ import annotations

import re
from itertools import count

_DECLARED = re.compile(r"(?m)^[ \t]*\.reg \.b16[ \t]+%rs<(\d+)>;")
_STATEMENT = re.compile(
    r"(?P<guard>@!?[%$\w]+[ \t]+)?(?P<name>\b[a-z][\w.:]*)[ \t]+(?P<operands>[^;/\n]*%rs\d[^;/\n]*);"
)
_RESULT = re.compile(r"\{[^}]*\}|[^,{\[]+")
"""The first operand, where that is not an address."""
_HALF = re.compile(r"%rs(\d+)\b")


def in_words(ptx: str) -> str:
    """The text with a 32-bit register for every 16-bit one, which is narrowed where it is used."""
    halves = count()

    def widened(found: re.Match[str]) -> str:
        guard, operands = found["guard"] or "", found["operands"]
        result = _RESULT.match(operands)
        place = result.end() if result else 0
        narrowed: list[str] = []

        def narrow(half: re.Match[str]) -> str:
            name = f"%half{next(halves)}"
            narrowed.append(f"cvt.u16.u32 {name}, %word{half[1]}; ")
            return name

        sources = _HALF.sub(narrow, operands[place:])
        kept = "".join(
            f" {guard}cvt.u32.u16 %word{half}, %rs{half};" for half in _HALF.findall(operands[:place])
        )
        return f"{''.join(narrowed)}{guard}{found['name']} {operands[:place]}{sources};{kept}"

    text = _STATEMENT.sub(widened, ptx)
    return _DECLARED.sub(rf"\g<0>\n\t.reg .b16 %half<{next(halves) + 1}>;\n\t.reg .b32 %word<\1>;", text)
