"""Floating-point arithmetic as the hardware does it: exact results, rounded once.

`convert` changes types; `add`, `sub`, `mul`, `div`, `rcp`, `sqrt` and `fma` take any rounding that PTX knows.
"""

from kbuild.emulator.fp.arithmetic import add, div, fma, mul, rcp, sqrt, sub
from kbuild.emulator.fp.convert import convert, decode, encode
from kbuild.emulator.fp.formats import FORMATS, Format

__all__ = [
    "FORMATS",
    "Format",
    "add",
    "convert",
    "decode",
    "div",
    "encode",
    "fma",
    "mul",
    "rcp",
    "sqrt",
    "sub",
]
