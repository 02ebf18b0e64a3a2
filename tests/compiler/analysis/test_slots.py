"""Counters around a ring of buffers: which forms of one are known, and which two of them never number the
same buffer."""

from __future__ import annotations

import pytest

from kbuild.compiler.analysis.slots import BufferSlot, SlotNumbers
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For
from kbuild.compiler.transforms._support.slots import following_slot


def counted(
    test: str = "slt",
    chosen: str = "%next, %zero",
    start: str = "%zero",
    bound: str = "%three",
    increment: str = "%slot, %one",
) -> tuple[SlotNumbers, For, dict[str, Value]]:
    """A loop that carries `%slot` on as `%after`, and the values of its body by name."""
    func = parse_module(f"""tt.func @f(%n: i32, %c: i1) {{
  %zero: i32 = arith.constant {{value = 0}}
  %one: i32 = arith.constant {{value = 1}}
  %three: i32 = arith.constant {{value = 3}}
  %five: i32 = arith.constant {{value = 5}}
  %end: i32 = scf.for %zero, %n, %one, init=[{start}] body(%i: i32, %slot: i32) {{
    %next: i32 = arith.addi {increment}
    %inside: i1 = arith.cmpi %next, {bound} {{predicate = "{test}"}}
    %after: i32 = arith.select %inside, {chosen}
    scf.yield %after
  }}
  tt.return
}}
""").kernel
    (loop,) = [op for op in func.body if isinstance(op, For)]
    values = {value.name: value for op in func.body.walk() for value in op.results}
    return (
        SlotNumbers(),
        loop,
        {**values, **{value.name: value for value in (*loop.body.arguments, *func.arguments)}},
    )


@pytest.mark.parametrize("test", ["slt", "ult", "ne", "eq", "sge", "uge"])
@pytest.mark.parametrize("increment", ["%slot, %one", "%one, %slot"])
def test_a_counter_may_be_compared_in_any_way(test: str, increment: str) -> None:
    chosen = "%next, %zero" if test in ("slt", "ult", "ne") else "%zero, %next"
    slots, loop, values = counted(test, chosen, increment=increment)
    now, later = slots.of(values["slot"]), slots.of(values["after"])
    assert now is not None and now == BufferSlot(0, loop, 3)
    assert later is not None and later == BufferSlot(1, loop, 3)
    assert not now.may_equal(later)


def test_a_counter_may_start_anywhere_in_the_ring() -> None:
    slots, loop, values = counted(start="%one")
    assert slots.of(values["slot"]) == BufferSlot(1, loop, 3) and slots.of(values["after"]) == BufferSlot(
        2, loop, 3
    )
    slots, loop, values = counted(start="%n")
    assert slots.of(values["slot"]) == BufferSlot(0, loop, 3, values["n"])
    assert slots.of(values["three"]) == BufferSlot(3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"test": "sle"},
        {"test": "sgt"},
        {"chosen": "%zero, %next"},
        {"test": "eq"},
        {"chosen": "%next, %one"},
        {"start": "%three"},
        {"start": "%five"},
        {"bound": "%n"},
        {"increment": "%slot, %three"},
        {"increment": "%slot, %slot"},
        {"increment": "%i, %one"},
    ],
    ids=str,
)
def test_what_is_not_a_counter_of_a_ring(wrong: dict[str, str]) -> None:
    slots, _, values = counted(**wrong)
    assert slots.of(values["slot"]) is None and slots.of(values["after"]) is None
    assert slots.of(values["i"]) is None and slots.of(values["n"]) is None


def test_the_counters_that_passes_write_are_known() -> None:
    slots, loop, values = counted()
    end = Builder.before(loop.body.terminator)
    made = following_slot(end, values["slot"], values["zero"], values["one"], values["five"])
    loop.body.terminator.set_operand(0, made.slot)
    assert slots.of(values["slot"]) == BufferSlot(0, loop, 5) and slots.of(made.slot) == BufferSlot(
        1, loop, 5
    )


def test_the_next_iteration_numbers_a_buffer_one_lower() -> None:
    loop, other = counted()[1], counted()[1]
    assert BufferSlot(1, loop, 3).around(loop) == BufferSlot(0, loop, 3) and BufferSlot(0, loop, 3).around(
        loop
    ) == BufferSlot(2, loop, 3)
    assert BufferSlot(1, loop, 3).around(other) == BufferSlot(1, loop, 3) and BufferSlot(2).around(
        loop
    ) == BufferSlot(2)
