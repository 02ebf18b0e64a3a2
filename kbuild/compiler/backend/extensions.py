"""A PTX text that widens 8 and 16 bits to 64 in two steps, because ptxas loses the wrap-around of a single one.

    add.s16 %rs2, %rs1, 16;        add.s16 %rs2, %rs1, 16;
    cvt.u64.u16 %rd1, %rs2;        { .reg .b32 %wide;  cvt.u32.u16 %wide, %rs2;  cvt.u64.u32 %rd1, %wide; }
    add.s64 %rd3, %rd2, %rd1;      add.s64 %rd3, %rd2, %rd1;
    ld.global.b8 %r1, [%rd3];      ld.global.b8 %r1, [%rd3];

On the left ptxas makes the 16 an immediate of the load, and so adds it after the extension in place of
before: where the sum of 16 bits wraps around, the address is 65,536 bytes off (12.8 to 13.5, for sm_80 and
sm_90; seen on an H200).  It does so for unsigned numbers of 8 and 16 bits, not for signed ones, and not for
those of 32 bits.
"""

from __future__ import annotations

import re

_NARROW = re.compile(r"cvt\.[us]64\.u(?:8|16)\b")
"""Found at once where there is one; the statement around it, which may begin with a guard, is looked for at every word."""
_EXTENSION = re.compile(
    r"(?P<guard>@!?[%$\w]+[ \t]+)?\bcvt\.[us]64\.(?P<kind>u8|u16)[ \t]+(?P<result>[%$\w]+),[ \t]*(?P<source>[%$\w]+);"
)


def in_two_steps(ptx: str) -> str:
    """The text without extensions of unsigned 8 or 16 bits to 64; the register between two steps is declared
    where they stand."""
    return _EXTENSION.sub(_steps, ptx) if _NARROW.search(ptx) else ptx


def _steps(found: re.Match[str]) -> str:
    guard, kind, result, source = (found[name] or "" for name in ("guard", "kind", "result", "source"))
    return (
        f"{{ .reg .b32 %wide; {guard}cvt.u32.{kind} %wide, {source}; {guard}cvt.u64.u32 {result}, %wide; }}"
    )
