"""The traits of operations: what folding, motion and elimination may do with one, whatever it computes."""

from __future__ import annotations

import enum


class Trait(enum.Flag):
    """A property of an operation that generic code may assume."""

    NONE = 0
    PURE = enum.auto()
    """No effect, result depends on operands and attributes alone: may be removed, merged, and moved to where
    less runs it."""
    SPECULATABLE = enum.auto()
    """Requires nothing of its operands: it gives some number, without harm, whatever they are.  May run where
    the program would not have run it, on operands that the program never gave it."""
    ELEMENTWISE = enum.auto()
    """Acts on each element alone; operands and results share shape and layout."""
    COMMUTES = enum.auto()
    TERMINATOR = enum.auto()
    READS = enum.auto()
    """Reads memory."""
    WRITES = enum.auto()
    """Writes memory, or has another effect that must stay and keep its order."""
    COLLECTIVE = enum.auto()
    """Executed by all threads of the program together."""


PURE = Trait.PURE | Trait.SPECULATABLE
"""The traits of ordinary operations.  Their lowering defines all of their results, also where C and LLVM do
not: quotients by zero, shifts beyond the width, conversions beyond the range."""
