"""Going around a ring of buffers.

%next = arith.addi %slot, %one
%inside = arith.cmpi %next, %count {predicate = "slt"}
%following = arith.select %inside, %next, %zero
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ops.elementwise import AddI, CmpI, Select


class Following(NamedTuple):
    """The number of the buffer after another one."""

    slot: Value
    is_inside: Value
    """Whether it has not wrapped around to the first."""


def following_slot(builder: Builder, slot: Value, zero: Value, one: Value, count: Value) -> Following:
    """The buffer after one in a ring of so many; `analysis.slots` recognises the form."""
    increased = builder.add(AddI(slot, one)).result
    is_inside = builder.add(CmpI(increased, count, "slt")).result
    return Following(builder.add(Select(is_inside, increased, zero)).result, is_inside)
