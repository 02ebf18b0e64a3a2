"""Plans of reductions and scans, carried out here on lists: concatenation, which is not commutative, shows
every element that is missing, doubled or out of place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from kbuild.compiler.analysis.scratch import Exchange, plan_reduce, plan_scan, scratch_bytes
from kbuild.compiler.ir.core import Block, Func, Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.types import layout_of
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.ops.tensor import Reduce, Scan
from kbuild.errors import InternalError

LAYOUTS = {
    "rows": ("blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}", (16, 64)),
    "across warps": (
        "blocked{sizePerThread=[2,2], threadsPerWarp=[2,16], warpsPerCTA=[2,2], order=[1,0]}",
        (16, 128),
    ),
    "columns": (
        "blocked{sizePerThread=[4,1], threadsPerWarp=[8,4], warpsPerCTA=[1,4], order=[0,1]}",
        (64, 8),
    ),
    "copies": ("blocked{sizePerThread=[2,4], threadsPerWarp=[8,4], warpsPerCTA=[2,2], order=[1,0]}", (4, 8)),
    "accumulator": ("mma{warps=[2,2], instruction=[16,8]}", (32, 32)),
    "operand": ("dotOperand{index=1, warps=[2,2], kWidth=2}", (32, 32)),
    "one row": ("blocked{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}", (1024,)),
    "short row": ("blocked{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}", (64,)),
}
CASES = [(name, axis) for name, (_, shape) in LAYOUTS.items() for axis in range(len(shape))]
LANES, WARPS = 32, 4
Thread = tuple[int, int]


def operands(name: str) -> tuple[Value, Block]:
    """A tensor of f32 in one of the layouts, and what combines two elements."""
    text, shape = LAYOUTS[name]
    dimensions = "x".join(map(str, shape))
    func: Func = parse_module(f"""#l = {text}
tt.func @f(%x: tensor<{dimensions}xf32, #l>) attributes {{num_warps = 4}} {{
  tt.return
}}
""").kernel
    combine = parse_module("tt.func @c(%a: f32, %b: f32) {\n  tt.reduce.return %a\n}\n").kernel.body
    return func.arguments[0], combine


def held(value: Value) -> LinearLayout:
    """The layout of a tensor."""
    layout = layout_of(value.type)
    assert layout is not None
    return layout


def threads() -> list[Thread]:
    return [(lane, warp) for warp in range(WARPS) for lane in range(LANES)]


def joined(lists: list[list]) -> list:
    return list(chain.from_iterable(lists))


def at(layout: LinearLayout, register: int, thread: Thread) -> tuple[int, ...]:
    return layout.coordinates(register=register, lane=thread[0], warp=thread[1])


def linear(bases: tuple[int, ...], index: int) -> int:
    result = 0
    for bit, basis in enumerate(bases):
        result ^= basis if index >> bit & 1 else 0
    return result


def exchanged(exchange: Exchange, partials: dict[Thread, list[list]]) -> Callable[[Thread, int], list[list]]:
    """Write the partials as the exchange says; gives the function by which a thread reads all slots of a
    partial."""
    memory: dict[int, list] = {}

    def place(thread: Thread, partial: int, slot: int) -> int:
        lanes, warps = linear(exchange.lane_elements, thread[0]), linear(exchange.warp_elements, thread[1])
        element = exchange.elements[partial] ^ lanes ^ warps
        return element * exchange.element_stride + slot * exchange.slot_stride

    for thread, values in partials.items():
        if thread[0] & exchange.idle_lanes or thread[1] & exchange.idle_warps:
            continue
        slot = sum((thread[1] >> bit & 1) << position for position, bit in enumerate(exchange.warp_bits))
        for writer in exchange.writers:
            address = place(thread, writer, slot)
            assert address not in memory, "two threads write the same place"
            memory[address] = values[writer]
    assert max(memory) * 4 + 4 <= exchange.bytes - exchange.offsets[0]
    return lambda thread, partial: [memory[place(thread, partial, slot)] for slot in range(exchange.slots)]


@pytest.mark.parametrize(("name", "axis"), CASES)
def test_a_reduction_combines_each_element_once(name: str, axis: int) -> None:
    source, combine = operands(name)
    op = Reduce((source,), axis, combine)
    layout, plan = held(source), plan_reduce(op)
    values = {t: [[at(layout, r, t) for r in group] for group in plan.groups] for t in threads()}
    for step in plan.steps:
        values = {
            (lane, w): [a + b for a, b in zip(v, values[lane ^ step.distance, w])]
            for (lane, w), v in values.items()
        }
    if plan.exchange is not None:
        read = exchanged(plan.exchange, values)
        values = {t: [joined(read(t, partial)) for partial in range(len(plan.groups))] for t in threads()}
    kept = layout.drop(axis)
    for thread, partials in values.items():
        for register, partial in enumerate(plan.results):
            combined = partials[partial]
            assert sorted(set(combined)) == sorted(combined) and len(combined) == layout.shape[axis]
            rest = {c[:axis] + c[axis + 1 :] for c in combined}
            assert len(rest) == 1
            if kept.rank:
                assert rest == {at(held(op.results[0]), register, thread)}
    assert scratch_bytes(op, WARPS) == (plan.exchange.bytes if plan.exchange else 0)


def test_slots_lie_so_that_lanes_read_different_banks() -> None:
    """Eight lanes have four elements each, of four slots: by elements they would read at a distance of 64 bytes."""
    source, combine = operands("rows")
    exchange = plan_reduce(Reduce((source,), 0, combine)).exchange
    assert exchange is not None and exchange.is_by_slot
    assert (exchange.element_stride, exchange.slot_stride) == (1, 64)
    assert exchange.runs(exchange.rounds[0], 4) == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_slots_that_one_vector_of_all_lanes_reads_are_neighbours() -> None:
    source, combine = operands("one row")
    exchange = plan_reduce(Reduce((source,), 0, combine)).exchange
    assert exchange is not None and not exchange.is_by_slot
    assert (exchange.element_stride, exchange.slot_stride) == (4, 1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "axis"), CASES)
def test_a_scan_combines_in_order(name: str, axis: int, reverse: bool) -> None:
    source, combine = operands(name)
    layout, plan = held(source), plan_scan(Scan((source,), axis, combine, reverse))
    totals = {t: [[at(layout, r, t)[axis] for r in chunk] for chunk in plan.chunks] for t in threads()}
    before: dict[Thread, list[list]] = {t: [[] for _ in plan.chunks] for t in threads()}
    for step in plan.steps:
        old = {t: [list(total) for total in chunks] for t, chunks in totals.items()}
        read = exchanged(step.exchange, old) if step.exchange is not None else None
        for lane, warp in threads():
            t = lane, warp
            if step.dim == "register":
                for first, second in step.pairs:
                    before[t][second] = old[t][first] + before[t][second]
                    totals[t][first] = totals[t][second] = old[t][first] + old[t][second]
            for chunk in range(len(plan.chunks)):
                if step.dim == "lane":
                    other = old[lane ^ step.distance, warp][chunk]
                    later = bool(lane & step.distance) != reverse
                    if later:
                        before[t][chunk] = other + before[t][chunk]
                    totals[t][chunk] = other + old[t][chunk] if later else old[t][chunk] + other
                if read is not None and step.exchange is not None:
                    slots = read(t, chunk)
                    own = sum(
                        (warp >> bit & 1) << position for position, bit in enumerate(step.exchange.warp_bits)
                    )
                    earlier = slots[:own] if not reverse else slots[:own:-1]
                    before[t][chunk] = joined(earlier) + before[t][chunk]
                    totals[t][chunk] = joined(slots if not reverse else slots[::-1])
    size = layout.shape[axis]
    for t in threads():
        results = {}
        for chunk, start in zip(plan.chunks, before[t]):
            for position, register in enumerate(chunk):
                results[register] = start + [at(layout, r, t)[axis] for r in chunk[: position + 1]]
        for register, source in enumerate(plan.results):
            last = at(layout, register, t)[axis]
            assert results[source] == (
                list(range(size - 1, last - 1, -1)) if reverse else list(range(last + 1))
            )


@pytest.mark.parametrize("register", [1, 3])
def test_elements_that_two_bits_share_cannot_be_planned(register: int) -> None:
    func: Func = parse_module(f"""#l = linear{{register=[[{register}]], lane=[[1], [2], [4], [8], [16]], warp=[[0], [0]]}}
tt.func @f(%x: tensor<32xf32, #l>) attributes {{num_warps = 4}} {{
  tt.return
}}
""").kernel
    combine = parse_module("tt.func @c(%a: f32, %b: f32) {\n  tt.reduce.return %a\n}\n").kernel.body
    with pytest.raises(InternalError, match="a bit of the layout moves along several axes or bits"):
        plan_reduce(Reduce((func.arguments[0],), 0, combine))
