"""How to convert a tensor from one register layout to another.

`source.solve(destination)` says where each destination place finds its element.  When that is the same
thread, values are renamed; when it is the same warp, lanes exchange them by shuffles (`shuffles.py`);
otherwise, or where that takes too many shuffles, they pass through shared memory (`scratch.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from kbuild.compiler.layout import f2
from kbuild.compiler.layout.linear import LinearLayout, all_sums
from kbuild.compiler.layout.shuffles import shuffle_instructions
from kbuild.errors import InternalError

Kind = Literal["same", "registers", "shuffle", "warp", "shared"]
_MAX_SHUFFLED_BITS = 2
"""Bits that may change between register and lane numbers by shuffles, for many registers: each doubles the
selects."""
_MANY_REGISTERS = 32
_MAX_SHUFFLE_INSTRUCTIONS = 1024
"""Shuffles and selects of one conversion, whatever its bits: memory takes a fraction of more."""


@lru_cache(maxsize=4096)
def classify(source: LinearLayout, destination: LinearLayout) -> Kind:
    """The cheapest kind of conversion: nothing, renamed registers, exchange within warps by shuffles or
    ("warp") through memory of each warp's own, or memory that all share."""
    if source == destination:
        return "same"
    conversion = source.solve(destination)
    if not (conversion.keeps("warp") and conversion.keeps("block")):
        return "shared"
    chosen_by_thread = any(any(conversion.part(dim, "register")) for dim in ("lane", "warp", "block"))
    if conversion.keeps("lane") and not chosen_by_thread:
        return "registers"
    changing = sum(map(bool, conversion.part("lane", "register")))
    many = changing > _MAX_SHUFFLED_BITS and source.size("register") >= _MANY_REGISTERS
    many = many or shuffle_instructions(source, destination) > _MAX_SHUFFLE_INSTRUCTIONS
    return "warp" if many and warps_are_apart(source) else "shuffle"


def warps_are_apart(layout: LinearLayout) -> bool:
    """Whether no two warps hold the same element."""
    warps = layout.bases_of("warp")
    return len(f2.independent(warps, [*layout.bases_of("register"), *layout.bases_of("lane")])) == len(warps)


def register_moves(source: LinearLayout, destination: LinearLayout) -> list[int]:
    """For each destination register, the source register of the same thread with its element ("same",
    "registers")."""
    if classify(source, destination) not in ("same", "registers"):
        raise InternalError("this conversion moves elements between threads")
    return list(all_sums(source.solve(destination).part("register", "register")))
