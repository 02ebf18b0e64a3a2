"""Barriers that order nothing, and similar ones that do."""

from __future__ import annotations

import pytest

from kbuild.emulator import load
from kbuild.emulator.mutate.barriers import orders_nothing
from kbuild.emulator.mutate.mutant import mutants
from kbuild.emulator.mutate.synchronisation import SYNCHRONISATION
from tests.emulator.emulated import at, kernel

FIRST = "    setp.eq.u32 %p1, %r_tid, 0;\n"
ONE_LANE = "    and.b32 %r8, %r_tid, 31;\n    setp.eq.u32 %p1, %r8, 0;\n"
ELECTED = "    elect.sync %r8|%p1, -1;\n"
MBARRIER = FIRST + "    @%p1 mbarrier.init.shared.b64 [64], 1;\n    bar.sync 1, 64;\n"
WAIT = "AGAIN:\n    mbarrier.try_wait.parity.shared.b64 %p2, [64], 0;\n    @!%p2 bra AGAIN;\n"


def needless(body: str, kind: str = "drop bar.sync", number: int = 0, threads: int = 64) -> bool:
    """Whether one of a kernel's barriers orders nothing."""
    program = load(kernel(at("x", 4) + body, ("x",), threads=threads))
    found = [mutant for mutant in mutants(program, SYNCHRONISATION) if mutant.kind == kind]
    return orders_nothing(program, found[number])


@pytest.mark.parametrize(
    "test, barrier",
    [
        (FIRST, "bar.sync 0"),
        (FIRST, "bar.warp.sync -1"),
        (ONE_LANE, "bar.warp.sync -1"),
        (ELECTED, "bar.warp.sync -1"),
    ],
)
def test_one_thread_needs_no_barrier(test: str, barrier: str) -> None:
    kind = "drop " + barrier.split()[0]
    body = (
        test
        + f"    @%p1 st.global.b32 [%d_x], 1;\n    {barrier};\n    @%p1 atom.acq_rel.gpu.global.add.u32 %r9, [%d_x], 1;\n"
    )
    assert needless(body, kind)
    assert not needless(body.replace("@%p1 st", "st"), kind)
    assert not needless(body.replace("@%p1 atom", "@!%p1 atom"), kind)
    assert not needless(body.replace("setp.eq", "setp.le").replace("%r8|%p1, -1", "%r8|%p1, 15"), kind)


def test_lanes_of_that_number_are_several_threads() -> None:
    body = ONE_LANE + "    @%p1 st.shared.b32 [0], 1;\n    bar.sync 0;\n    @%p1 ld.shared.b32 %r9, [0];\n"
    assert not needless(body)
    assert needless(body.replace("bar.sync 0", "bar.warp.sync -1"), "drop bar.warp.sync")


def test_a_branch_counts_as_a_guard_does() -> None:
    body = """
    setp.ne.u32 %p1, %r_tid, 0;
    setp.gt.u32 %p2, %r_n, 3;
    or.pred %p3, %p1, %p2;
    @%p3 bra NEXT;
    st.shared.b32 [0], 1;
NEXT:
    bar.sync 0;
    @%p1 bra END;
    ld.shared.b32 %r9, [0];
END:
""".replace("%r_n", "%r_tid")
    assert needless(body)
    assert not needless(body.replace("or.pred", "and.pred"))
    assert not needless(body.replace("    @%p1 bra END;\n", ""))


def test_what_was_learnt_from_an_mbarrier_is_passed_on() -> None:
    """One thread waits for a copy, and a barrier releases the others; only instructions for mbarriers
    touch them."""
    copy = MBARRIER + f"    @!%p1 bra NEXT;\n{WAIT}NEXT:\n    bar.sync 0;\n"
    assert not needless(copy + "    ld.shared.b32 %r9, [0];\n", number=1)
    assert needless(copy + "    add.u32 %r9, %r9, 1;\n", number=1)
    waited = MBARRIER + WAIT + "    ld.shared.b32 %r9, [0];\n    bar.sync 0;\n"
    assert needless(waited.replace(WAIT, "") + "    @%p1 mbarrier.inval.shared.b64 [64];\n", number=1)
    assert not needless(waited + "    @%p1 mbarrier.inval.shared.b64 [64];\n", number=1)
    assert not needless(
        waited.replace(WAIT, "") + "    @%p1 mbarrier.arrive.shared.b64 _, [64];\n", number=1
    ), "it releases"


def test_an_operation_under_way_is_passed_on_by_its_wait() -> None:
    copy = "    cp.async.ca.shared.global [0], [%d0], 4;\n    cp.async.commit_group;\n"
    assert not needless(copy + "    cp.async.wait_group 0;\n    bar.sync 0;\n    ld.shared.b32 %r9, [0];\n")
    assert needless(copy + "    bar.sync 0;\n    cp.async.wait_group 0;\n    ld.global.b32 %r9, [%d0];\n")
    assert not needless("    ld.shared.b32 %r9, [0];\n    bar.sync 0;\n" + copy)


def test_a_warp_loads_before_it_stores() -> None:
    body = (
        FIRST + "    ld.global.b32 %r9, [%d_x];\n    bar.warp.sync -1;\n    @%p1 st.global.b32 [%d_x], 1;\n"
    )
    assert needless(body, "drop bar.warp.sync")
    assert not needless(body.replace("bar.warp.sync -1", "bar.sync 0"))
    in_shared = body.replace("global.b32 %r9, [%d_x]", "shared.b32 %r9, [0]").replace(
        "global.b32 [%d_x]", "shared.b32 [0]"
    )
    assert not needless(in_shared, "drop bar.warp.sync")
    assert not needless(body.replace("st.global", "st.release.gpu.global"), "drop bar.warp.sync")


def test_other_barriers_are_for_other_threads() -> None:
    body = (
        "    st.shared.b32 [0], %r_tid;\n    bar.sync 1, 64;\n    bar.sync 0;\n    ld.shared.b32 %r9, [0];\n"
    )
    assert not needless(body) and not needless(body, number=1)
    twice = body.replace("bar.sync 1, 64", "bar.sync 0")
    assert needless(twice) and needless(twice, number=1)
