"""Mutants: the changes of each kind, the checks that find them, and the changes that are equivalent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbuild.emulator import EmulationError, load
from kbuild.emulator.mutate import (
    Mark,
    Subject,
    TrialCase,
    campaign,
    clean,
    read_marks,
    share,
    table,
    wrong_marks,
)
from kbuild.emulator.mutate.campaign import OPERATORS, MutantResult
from kbuild.emulator.mutate.coordinates import fixed_registers
from kbuild.emulator.mutate.mutant import mutants, spread
from tests.emulator.emulated import at, kernel

EXCHANGE = (
    at("x", 4)
    + """
    ld.global.b32 %r1, [%d0];
    shl.b32 %r2, %r_tid, 2;
    st.shared.b32 [%r2], %r1;
    bar.sync 0;
    ld.shared.b32 %r3, [%r4];
"""
    + at("out", 4)
    + "    st.global.b32 [%d0], %r3;\n"
).replace("    ld.shared", "    sub.u32 %r4, 252, %r2;\n    ld.shared")
VALUES = np.random.default_rng(3).permutation(64).astype(np.uint32)


def judged(expected: np.ndarray):
    return lambda outputs: "" if np.array_equal(outputs[-1], expected) else "another output"


def subject(body: str, expected: np.ndarray, shared: int = 256, **options: object) -> Subject:
    """A kernel of 64 threads with one case: `VALUES` in, `expected` out."""
    program = load(kernel(body, ("x", "out"), threads=64))
    case = TrialCase("values", (VALUES, np.zeros(len(expected), np.uint32)), (1,), judged(expected))
    return Subject("exchange", program, 2, shared, (case,), **options)  # type: ignore[arg-type]


def results(tried: Subject) -> dict[str, MutantResult]:
    """The results of mutants, by kind; where a kind has several, by kind and number."""
    found: dict[str, MutantResult] = {}
    for result in campaign(tried):
        number = sum(key.split(" #")[0] == result.mutant.kind for key in found)
        found[result.mutant.kind + (f" #{number}" if number else "")] = result
    return found


def test_an_exchange_holds_no_mistake_that_nothing_finds() -> None:
    tried = subject(EXCHANGE, VALUES[::-1])
    assert clean(tried) == 7
    found = results(tried)
    assert found["drop bar.sync"].state == "caught" and "race" in found["drop bar.sync"].reason
    assert {result.state for result in found.values()} == {"caught"}
    assert share(found.values()) == 1
    assert "drop bar.sync" in table(found.values()) and "all of logic" in table(found.values())


def test_a_kernel_that_is_wrong_itself_is_refused() -> None:
    with pytest.raises(EmulationError, match="exchange itself fails on values"):
        clean(subject(EXCHANGE, VALUES))


def test_a_barrier_with_nothing_to_order_is_equivalent() -> None:
    found = results(subject(EXCHANGE + "    bar.sync 0;\n", VALUES[::-1]))
    assert found["drop bar.sync"].state == "caught"
    assert found["drop bar.sync #1"].state == "equivalent"
    assert "needs an order" in found["drop bar.sync #1"].reason


def test_a_wait_for_no_copy_is_equivalent() -> None:
    copies = EXCHANGE.replace(
        "    ld.global.b32 %r1, [%d0];\n",
        "    shl.b32 %r2, %r_tid, 2;\n    cp.async.ca.shared.global [%r2], [%d0], 4;\n",
    ).replace("    st.shared.b32 [%r2], %r1;\n", "    cp.async.commit_group;\n    cp.async.wait_group 0;\n")
    found = results(
        subject(copies + "    cp.async.commit_group;\n    cp.async.wait_group 0;\n", VALUES[::-1])
    )
    for kind in ("drop cp.async.wait_group", "cp.async.wait_group N+1", "drop cp.async.commit_group"):
        assert found[kind].state == "caught", kind
    assert found["drop cp.async.wait_group #1"].state == "equivalent"
    assert found["cp.async.wait_group N+1 #1"].state == "equivalent"
    assert found["drop cp.async.commit_group #1"].state == "equivalent"


def test_an_arrival_without_a_wait_is_equivalent() -> None:
    """The first makes the exchange safe; no thread waits for the second, unless a wait for a later phase
    follows."""
    meeting = """
    mbarrier.arrive.shared.b64 _, [256];
AGAIN{0}:
    mbarrier.try_wait.parity.shared.b64 %p{0}, [256], {1};
    @!%p{0} bra AGAIN{0};
"""
    once = "    setp.eq.u32 %p9, %r_tid, 0;\n    @%p9 mbarrier.init.shared.b64 [256], 64;\n    bar.sync 0;\n"
    copied = "    cp.async.ca.shared.global [%r2], [%d_x], 4;\n    cp.async.wait_all;\n    st.shared"
    body = once + EXCHANGE.replace("    bar.sync 0;\n", meeting.format(1, 0)).replace("    st.shared", copied)
    body += "    mbarrier.arrive.shared.b64 _, [256];\n"
    found = results(subject(body, VALUES[::-1], 264))
    assert found["drop mbarrier.arrive"].state == "caught"
    assert found["drop mbarrier.arrive #1"].state == "equivalent"
    assert "no thread waits" in found["drop mbarrier.arrive #1"].reason
    found = results(subject(body + meeting.format(2, 0), VALUES[::-1], 264))
    assert {found[f"drop mbarrier.arrive{number}"].state for number in ("", " #1", " #2")} == {"caught"}


def test_logic_by_the_thread_alone_is_tried_out_completely() -> None:
    body = EXCHANGE.replace(
        "    bar.sync 0;\n", "    and.b32 %r5, %r_tid, 1;\n    xor.b32 %r6, %r5, 2;\n    bar.sync 0;\n"
    )
    body += "    sub.u32 %r7, %r6, %r5;\n    setp.eq.u32 %p1, %r7, 2;\n    @%p1 st.global.b32 [%d0], %r3;\n"
    tried = subject(body, VALUES[::-1])
    assert {"%r2", "%r4", "%r5", "%r7"} <= fixed_registers(tried.program) and "%r3" not in fixed_registers(
        tried.program
    )
    found = results(tried)
    assert found["xor → or"].state == "equivalent" and "place alone" in found["xor → or"].reason


def test_lanes_that_hold_the_number_of_their_warp_may_be_exchanged() -> None:
    body = (
        EXCHANGE
        + """
    shr.u32 %r5, %r_tid, 5;
    shfl.sync.idx.b32 %r6, %r5, 0, 31, -1;
    add.u32 %r3, %r3, %r6;
    st.global.b32 [%d0], %r3;
"""
    )
    found = results(subject(body, VALUES[::-1] + (np.arange(64, dtype=np.uint32) >> 5)))[
        "shfl of another lane"
    ]
    assert found.state == "equivalent" and "all lanes" in found.reason
    lanes = body.replace("shr.u32 %r5, %r_tid, 5", "shr.u32 %r5, %r_tid, 4")
    found = results(subject(lanes, VALUES[::-1] + 2 * (np.arange(64, dtype=np.uint32) >> 5)))[
        "shfl of another lane"
    ]
    assert found.state == "survived", "lanes 0 and 1 hold the same by chance"


def test_any_of_the_threads_that_hold_a_value_may_store_it() -> None:
    body = (
        EXCHANGE
        + """
    setp.ne.u32 %p1, %r_tid, 0;
    mov.b32 %r9, 7;
    @!%p1 st.global.b32 [%d_out+256], %r9;
"""
    )
    found = results(subject(body, np.append(VALUES[::-1], np.uint32(7))))
    assert found["setp eq ↔ ne"].state == "equivalent" and "same place" in found["setp eq ↔ ne"].reason
    assert found["predicate negated"].state == "equivalent"
    several = "    setp.ge.u32 %p2, %r3, 0;\n    not.pred %p4, %p1;\n    and.pred %p3, %p4, %p2;\n    @%p3 st"
    combined = body.replace("    @!%p1 st", several)
    found = results(subject(combined, np.append(VALUES[::-1], np.uint32(7))))
    assert found["setp eq ↔ ne"].state == "equivalent"
    counted = combined.replace("    @%p3 st", "    selp.b32 %r9, 7, 8, %p3;\n    @%p3 st")
    found = results(subject(counted, np.append(VALUES[::-1], np.uint32(7))))
    assert found["setp eq ↔ ne"].state == "survived", (
        "what is stored depends on it: that it is the same here proves nothing"
    )


def test_what_is_not_shared_needs_no_order() -> None:
    alone = EXCHANGE.replace("    bar.sync 0;\n", "    bar.warp.sync -1;\n").replace(
        "sub.u32 %r4, 252, %r2", "mov.b32 %r4, %r2"
    )
    body = alone + "    atom.acq_rel.gpu.global.add.u32 %r9, [%d_out+256], 1;\n"
    found = results(subject(body, np.append(VALUES, np.uint32(64))))
    assert (
        found["drop bar.warp.sync"].state == "equivalent"
        and "no two threads" in found["drop bar.warp.sync"].reason
    )
    assert found["weaken order of atomics"].state == "equivalent"
    shared = EXCHANGE.replace("    bar.sync 0;\n", "    bar.warp.sync -1;\n").replace("252, %r2", "124, %r2")
    shared = shared.replace("shl.b32 %r2, %r_tid, 2", "and.b32 %r2, %r_tid, 31;\n    shl.b32 %r2, %r2, 2")
    one_warp = replace(
        subject(shared, VALUES), program=load(kernel(shared, ("x", "out"), threads=32)), block=1
    )
    case = TrialCase("values", (VALUES[:32], np.zeros(32, np.uint32)), (1,), judged(VALUES[31::-1]))
    assert results(replace(one_warp, cases=(case,)))["drop bar.warp.sync"].state == "caught"


BOUNDED = (
    """
    ld.global.b32 %r9, [%d_x];
    setp.lt.u32 %p1, %r_tid, %r9;
    mov.b32 %r3, 0;
    @%p1 add.u32 %r3, %r_tid, 1;
"""
    + at("out", 4)
    + "    st.global.b32 [%d0], %r3;\n"
)


def test_the_edge_of_a_comparison_is_tried() -> None:
    """With 100 for a bound the two comparisons are the same; the numbers compared show which launch
    distinguishes them."""

    def case(bound: int) -> TrialCase:
        x, tid = np.full(64, bound, np.uint32), np.arange(64, dtype=np.uint32)
        return TrialCase(
            f"bound {bound}", (x, np.zeros(64, np.uint32)), (1,), judged(np.where(tid < bound, tid + 1, 0))
        )

    tried = replace(subject(BOUNDED, VALUES), cases=(case(100),))
    assert results(tried)["setp lt ↔ le, gt ↔ ge"].state == "survived"
    varied = replace(tried, vary=lambda old, new: iter([case(new)] if old == 100 else []))
    found = results(varied)["setp lt ↔ le, gt ↔ ge"]
    assert found.state == "caught" and "bound" in found.reason and "bound 100" not in found.reason
    more = replace(tried, more=lambda: iter([case(5)]))
    assert "bound 5" in results(more)["setp lt ↔ le, gt ↔ ge"].reason


def test_the_number_of_each_kind_is_limited() -> None:
    found = mutants(subject(EXCHANGE, VALUES[::-1]).program, OPERATORS)
    fewer = spread(found, 1)
    assert len({mutant.kind for mutant in found}) == len(fewer) < len(found)


MARKS = """
# subject | kind | instruction | place | reason
exchange | drop bar.sync | bar.sync 0 | kernel.py:3 | for the test
"""


def test_marks_are_read_and_checked() -> None:
    (mark,) = read_marks(MARKS, "marks")
    assert mark == Mark("exchange", "drop bar.sync", "bar.sync 0", "kernel.py:3", "for the test")
    with pytest.raises(EmulationError, match="marks:1: expected subject"):
        read_marks("exchange | drop bar.sync", "marks")


def test_a_mark_excuses_and_a_stale_one_is_reported() -> None:
    body = ".loc 1 3 0\n".join(["", BOUNDED.replace("    setp", "    .loc 1 3 0\n    setp")])
    text = kernel(body, ("x", "out"), threads=64) + '.file 1 "some/kernel.py"\n'
    case = TrialCase(
        "values",
        (np.full(64, 100, np.uint32), np.zeros(64, np.uint32)),
        (1,),
        judged(np.arange(1, 65, dtype=np.uint32)),
    )
    tried = Subject("bounded", load(text), 2, 0, (case,))
    right = Mark(
        "bound*",
        "setp lt ↔ le, gt ↔ ge",
        "setp.lt.u32 %p, %r_tid, %r #1",
        "kernel.py:3",
        "no launch has less",
    )
    found = list(campaign(tried, marks=[right]))
    assert [result.reason for result in found if result.state == "equivalent"] == ["no launch has less"]
    assert wrong_marks([right], found) == []
    caught = Mark("bounded", "predicate negated", "@%p add.u32 %r, %r_tid, 1", "kernel.py:3", "wrong")
    unknown = replace(right, place="kernel.py:4")
    assert [problem.split(":")[0] for problem in wrong_marks([caught, unknown], found)] == [
        "marked as equivalent, but caught",
        "no mutant is bounded | predicate negated",
    ][:1] + ["no mutant is bound* | setp lt ↔ le, gt ↔ ge | setp.lt.u32 %p, %r_tid, %r #1 | kernel.py"]
