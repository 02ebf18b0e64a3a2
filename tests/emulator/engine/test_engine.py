"""Masks, divergence, barriers, deadlocks, budgets and schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.launch import Launch
from kbuild.emulator.engine.memory import Heap
from kbuild.emulator.engine.program import load
from kbuild.emulator.engine.schedule import schedule_named
from tests.emulator.emulated import at, kernel, launch, results
from tests.emulator.isa.programs import COLLECTIVES, CONTROL, OUT

SCHEDULES = [
    "lockstep",
    "round-robin",
    "forward",
    "reverse",
    "random(1)",
    "random(2)",
    "starve(0)",
    "starve(1)",
]
LANE = np.arange(32, dtype=np.uint32)


def findings(body: str, *, threads: int = 32, **options) -> str:
    """The findings of a body with an array `out` of one u32 per thread, as text."""
    report = launch(body, {"out": np.zeros(threads, np.uint32)}, threads=threads, **options)
    return "\n".join(map(str, report.findings))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("program", [*COLLECTIVES, *CONTROL], ids=lambda program: program.name)
def test_the_schedule_does_not_change_what_correct_programs_compute(program, schedule: str) -> None:
    report = program.run(schedule=schedule).check()
    for name, expected in program.expected.items():
        np.testing.assert_array_equal(report.outputs[list(program.arrays).index(name)], expected)


THREAD = np.arange(64, dtype=np.uint64)
BIT = np.uint64(1) << (THREAD & np.uint64(31))


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ("%tid.x", THREAD),
        ("%tid.y", 0),
        ("%ntid.x", 64),
        ("%ntid.y", 1),
        ("%ctaid.x", 0),
        ("%nctaid.x", 1),
        ("%nctaid.z", 1),
        ("%laneid", THREAD & np.uint64(31)),
        ("%warpid", THREAD >> np.uint64(5)),
        ("%nwarpid", 2),
        ("WARP_SZ", 32),
        ("%lanemask_eq", BIT),
        ("%lanemask_lt", BIT - np.uint64(1)),
        ("%lanemask_le", 2 * BIT - np.uint64(1)),
        ("%lanemask_ge", 0x100000000 - BIT),
        ("%lanemask_gt", 0x100000000 - 2 * BIT),
        ("%smid", 0),
        ("%nsmid", 1),
        ("%cluster_ctarank", 0),
        ("%cluster_nctarank", 1),
        ("%dynamic_smem_size", 0),
        ("%total_smem_size", 0),
    ],
)
def test_special_registers(register: str, expected: Any) -> None:
    found = results(f"    mov.u32 %r0, {register};\n", threads=64)
    np.testing.assert_array_equal(found, np.broadcast_to(np.asarray(expected).astype(np.uint32), 64))


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ("%tid.x", THREAD % 4),
        ("%tid.y", THREAD // 4 % 8),
        ("%tid.z", THREAD // 32),
        ("%ntid.x", 4),
        ("%ntid.y", 8),
        ("%ntid.z", 2),
    ],
)
def test_threads_of_a_block_of_three_dimensions(register: str, expected: Any) -> None:
    """Each stores at 32 %warpid + %laneid."""
    number = "    mov.u32 %r1, %warpid;\n    mov.u32 %r2, %laneid;\n    mad.lo.u32 %r1, %r1, 32, %r2;\n"
    code = (
        f"    mov.u32 %r0, {register};\n"
        + number
        + at("out", 4, index="%r1")
        + "    st.global.b32 [%d0], %r0;\n"
    )
    text = kernel(code, ("out",), threads=64)
    heap = Heap()
    out = heap.allocate(256)
    program = load(text.replace(".reqntid 64", ".reqntid 4, 8, 2"))
    assert not Launch(program, heap, (out,), (1,), (4, 8, 2), 0, schedule_named("lockstep")).run()
    np.testing.assert_array_equal(heap.bytes(out, 256).view(np.uint32), np.broadcast_to(expected, 64))


def test_diverged_lanes_take_both_sides_and_meet_again() -> None:
    found = results("""
    and.b32 %r1, %r_tid, 1;
    setp.eq.b32 %p1, %r1, 0;
    @%p1 bra $even;
    mul.lo.u32 %r0, %r_tid, 100;
    bra.uni $join;
$even:
    add.u32 %r0, %r_tid, 1000;
$join:
    shfl.sync.bfly.b32 %r0, %r0, 1, 31, -1;
""")
    odd = (LANE ^ 1) % 2 == 1
    np.testing.assert_array_equal(found, np.where(odd, (LANE ^ 1) * 100, (LANE ^ 1) + 1000))


def test_lanes_leave_a_loop_at_different_times() -> None:
    found = results("""
    mov.b32 %r0, 0;
    mov.b32 %r1, 0;
$loop:
    add.u32 %r0, %r0, %r1;
    add.u32 %r1, %r1, 1;
    setp.le.u32 %p1, %r1, %r_tid;
    @%p1 bra $loop;
    vote.sync.ballot.b32 %r2, %p1, -1;
""")
    np.testing.assert_array_equal(found, LANE * (LANE + 1) // 2)


def test_nested_divergence_with_early_ends() -> None:
    found = results("""
    mov.b32 %r0, 7;
    mad.wide.u32 %d1, %r_tid, 4, %d_out;
    st.global.b32 [%d1], %r0;
    setp.lt.u32 %p1, %r_tid, 16;
    @%p1 bra $low;
    setp.lt.u32 %p2, %r_tid, 24;
    @%p2 ret;
    mov.b32 %r0, 1;
    bra.uni $join;
$low:
    setp.lt.u32 %p2, %r_tid, 8;
    mov.b32 %r0, 2;
    @%p2 exit;
$join:
    add.u32 %r0, %r0, 10;
""")
    np.testing.assert_array_equal(found, np.repeat([7, 12, 7, 11], 8))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_with_different_roles_meet_at_named_barriers(schedule: str) -> None:
    body = (
        """
    setp.lt.u32 %p1, %r_tid, 32;
    shl.b32 %r1, %r_tid, 2;
    @%p1 bra $producer;
    bar.sync 1, 64;
    ld.shared.b32 %r0, [%r1+-128];
    bra.uni $join;
$producer:
    mul.lo.u32 %r0, %r_tid, 3;
    st.shared.b32 [%r1], %r0;
    bar.arrive 1, 64;
$join:
    bar.sync 0;
""".replace("+-128", "-128")
        + OUT
    )
    report = launch(body, {"out": np.zeros(64, np.uint32)}, threads=64, shared=128, schedule=schedule).check()
    np.testing.assert_array_equal(report.outputs[0], np.tile(LANE * 3, 2))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ctas_that_take_a_lock_run_one_after_the_other(schedule: str) -> None:
    body = """
    setp.ne.b32 %p1, %r_tid, 0;
    @%p1 bra $done;
$spin:
    atom.acquire.gpu.global.cas.b32 %r1, [%d_out], 0, 1;
    setp.ne.b32 %p2, %r1, 0;
    @%p2 bra $spin;
    ld.global.b32 %r2, [%d_out+4];
    add.u32 %r2, %r2, 1;
    st.global.b32 [%d_out+4], %r2;
    atom.release.gpu.global.exch.b32 %r1, [%d_out], 0;
$done:
"""
    report = launch(body, {"out": np.zeros(2, np.uint32)}, threads=64, grid=(5,), schedule=schedule).check()
    np.testing.assert_array_equal(report.outputs[0], [0, 5])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_warp_that_spins_does_not_keep_the_others_from_running(schedule: str) -> None:
    body = (
        """
    mov.b32 %r1, 0;
    st.shared.b32 [0], %r1;
    bar.sync 0;
    setp.lt.u32 %p1, %r_tid, 32;
    @%p1 bra $spin;
    mov.b32 %r1, 1;
    st.release.cta.shared.b32 [0], %r1;
    bra.uni $join;
$spin:
    ld.acquire.cta.shared.b32 %r1, [0];
    setp.eq.b32 %p2, %r1, 0;
    @%p2 bra $spin;
$join:
    bar.sync 0;
    mov.b32 %r0, %r1;
"""
        + OUT
    )
    report = launch(body, {"out": np.zeros(64, np.uint32)}, threads=64, shared=16, schedule=schedule).check()
    np.testing.assert_array_equal(report.outputs[0], np.ones(64))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_barrier_does_not_wait_for_warps_that_have_ended(schedule: str) -> None:
    body = (
        """
    setp.ge.u32 %p1, %r_tid, 32;
    @%p1 bra $end;
    bar.sync 0;
    mov.b32 %r0, 1;
"""
        + OUT
        + "$end:\n"
    )
    report = launch(body, {"out": np.zeros(64, np.uint32)}, threads=64, schedule=schedule).check()
    np.testing.assert_array_equal(report.outputs[0], np.arange(64) < 32)


@pytest.mark.parametrize("schedule", ["lockstep", "random(1)"])
def test_a_barrier_that_not_all_reach_is_a_deadlock(schedule: str) -> None:
    found = findings(
        """
    setp.lt.u32 %p1, %r_tid, 32;
    @%p1 bra $join;
    bar.sync 1, 96;
$join:
    bar.sync 2, 96;
""",
        threads=64,
        schedule=schedule,
    )
    assert "deadlock: no warp can go on" in found
    assert "warp 0 of CTA (0, 0, 0) waits at barrier 2 (32 of 96 threads are there)" in found
    assert "warp 1 of CTA (0, 0, 0) waits at barrier 1 (32 of 96 threads are there)" in found


def test_a_barrier_of_the_cluster_that_not_all_reach_is_a_deadlock() -> None:
    text = findings(
        """
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bar.sync 1, 64;
    barrier.cluster.arrive;
    barrier.cluster.wait;
""",
        grid=(2,),
        cluster=(2,),
    )
    assert "waits at the barrier of the cluster (32 threads of 64 arrived)" in text


def test_an_endless_loop_ends_with_a_report() -> None:
    found = findings("$loop:\n    add.u32 %r0, %r0, 1;\n    bra.uni $loop;\n", step_budget=10_000)
    assert "step-budget: no end after 1000" in found and "bra.uni $loop" in found


def test_large_launches_that_cannot_go_on_end_with_a_report() -> None:
    """Four warpgroups of which one never reaches a barrier, and the same in each of 32 CTAs."""
    body = "    setp.lt.u32 %p1, %r_tid, 384;\n    @%p1 bar.sync 1, 512;\n"
    for grid in (1, 32):
        found = findings(body, threads=512, grid=(grid, 1, 1))
        assert "deadlock: no warp can go on" in found and "barrier 1" in found


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ({"threads": 2048}, "a CTA of 2048 threads cannot be launched; at most 1024"),
        (
            {"grid": (32, 1, 1), "cluster": (32, 1, 1)},
            r"a cluster of \(32, 1, 1\) CTAs cannot be launched; at most 16",
        ),
        ({"grid": (3, 1, 1), "cluster": (2, 1, 1)}, "in clusters of"),
    ],
)
def test_shapes_that_no_device_takes_are_refused(shape: dict, what: str) -> None:
    with pytest.raises(EmulationError, match=what):
        findings("    ret;\n", **shape)


@pytest.mark.parametrize(
    ("instruction", "what"),
    [
        ("bar.sync 0;", "only 16 of the warp's 32 threads are here"),
        ("shfl.sync.bfly.b32 %r0, %r0, 1, 31, -1;", "names lane 16, which is not here"),
        ("shfl.sync.bfly.b32 %r0, %r0, 1, 31, 1;", "with a member mask without itself"),
        ("shfl.sync.bfly.b32 %r0, %r0, 16, 31, 0xFFFF;", "reads the value of a lane that is not here"),
        ("bar.warp.sync -1;", "names lane 16, which is not here"),
    ],
)
def test_collectives_without_all_their_threads_are_found(instruction: str, what: str) -> None:
    found = findings(f"    setp.lt.u32 %p1, %r_tid, 16;\n    @!%p1 bra $skip;\n    {instruction}\n$skip:\n")
    assert "divergent-collective" in found and what in found and instruction in found


@pytest.mark.parametrize(
    ("body", "kind", "what"),
    [
        ("    bar.sync 16;\n", "barrier-misuse", "barrier 16 does not exist"),
        ("    bar.sync 1, 33;\n", "barrier-misuse", "not a multiple of 32"),
        ("    bar.sync %r_tid;\n", "barrier-misuse", "different barrier numbers"),
        ("    trap;\n", "trap", "stopped itself"),
        ("    barrier.cluster.wait;\n", "barrier-misuse", "without barrier.cluster.arrive"),
    ],
)
def test_misuse_is_found(body: str, kind: str, what: str) -> None:
    found = findings(body)
    assert found.startswith(kind) and what in found


def test_a_finding_has_the_kernel_line() -> None:
    body = "    .loc 1 42 7\n    ld.global.b32 %r0, [%d_out+4096];\n"
    report = launch(body, {"out": np.zeros(1, np.uint32)}, module="")
    text = str(report.findings[0])
    assert "from ?:42:7" in text and "in CTA (0, 0, 0), warp 0" in text
    with pytest.raises(EmulationError, match="out-of-bounds"):
        report.check()


@pytest.mark.parametrize("checks", ["", "strict"])
def test_a_kernel_prints_and_asserts(checks: str) -> None:
    module = """
.global .align 1 .b8 format[12] = {108, 97, 110, 101, 32, 37, 100, 32, 37, 115, 10, 0};
.global .align 1 .b8 word[3] = {104, 105, 0};
.extern .func (.param .b32 result) vprintf (.param .b64 a, .param .b64 b);
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
"""
    body = """
    .local .align 8 .b8 frame[16];
    setp.ne.u32 %p1, %r_tid, 3;
    @%p1 bra $skip;
    mov.b64 %d1, frame;
    cvta.local.u64 %d2, %d1;
    st.local.b32 [frame], %r_tid;
    mov.b64 %d3, word;
    st.local.b64 [frame+8], %d3;
    mov.b64 %d4, format;
    { .param .b64 a; .param .b64 b; .param .b32 c;
    st.param.b64 [a], %d4;
    st.param.b64 [b], %d2;
    call.uni (c), vprintf, (a, b); }
    setp.eq.u64 %p2, %d_out, 0;
    @%p2 bra $skip;
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    st.param.b64 [a], %d3; st.param.b64 [b], %d3; st.param.b32 [c], 12; st.param.b64 [d], %d3; st.param.b64 [e], %d3;
    call.uni __assertfail, (a, b, c, d, e); }
$skip:
"""
    report = launch(body, {"out": np.zeros(1, np.uint32)}, module=module, checks=checks)
    assert report.printed == ["lane 3 hi\n"]
    assert report.findings[0].kind == "assertion" and "hi:12: hi in hi" in report.findings[0].message


def test_recursion_is_refused() -> None:
    module = ".func f() { call.uni f; ret; }"
    with pytest.raises(Exception, match="recursive call of f"):
        launch("    call.uni f;\n", {}, module=module)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "sideways"}, "unknown schedule"),
        ({"grid": (3,), "cluster": (2,)}, "in clusters of"),
    ],
)
def test_wrong_launches_are_refused(options, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        launch("", {}, **options)


def test_array_elements_are_found_by_every_thread() -> None:
    values = np.arange(32, dtype=np.uint32)[::-1].copy()
    np.testing.assert_array_equal(results("    add.u32 %r0, %r_x, 1;\n", x=values), values + 1)
    assert at("x", 4).startswith("    mad.wide.u32")


LOCKED = (
    """
    .reg .b32 %r_cta;
    mov.u32 %r_cta, %ctaid.x;
    setp.ne.u32 %p2, %r_tid, 0;
    @%p2 bra done;
    mov.b32 %r5, 0;
again:
    add.u32 %r5, %r5, 1;
    atom.acquire.gpu.global.cas.b32 %r1, [%d_lock], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
"""
    + at("out", 4, index="%r_cta")
    + """
    st.global.b32 [%d0], %r5;
    bra held;
held:
    atom.release.gpu.global.exch.b32 %r1, [%d_lock], 0;
done:
"""
)


@pytest.mark.parametrize("schedule, most", [("lockstep", 1), ("round-robin", 2)])
def test_programs_compete_for_a_lock_where_they_alternate(schedule: str, most: int) -> None:
    """Round-robin lets each program run a block, then the next one: some find the lock taken and try again."""
    report = launch(
        LOCKED, {"lock": np.zeros(1, np.uint32), "out": np.zeros(6, np.uint32)}, grid=(6,), schedule=schedule
    )
    tries = report.check().outputs[1]
    assert tries is not None and tries.min() == 1 and (tries.max() >= most if most > 1 else tries.max() == 1)


def test_some_ctas_of_a_grid_run() -> None:
    body = """
    .reg .b32 %r_x, %r_n;
    mov.u32 %r_x, %ctaid.x;
    mov.u32 %r_n, %nctaid.x;
"""
    body += at("out", 4, index="%r_x") + "    st.global.b32 [%d0], %r_n;\n"
    report = launch(body, {"out": np.zeros(9, np.uint32)}, grid=(9,), only=[(2, 0, 0), (8, 0, 0)]).check()
    np.testing.assert_array_equal(report.outputs[0], [0, 0, 9, 0, 0, 0, 0, 0, 9])
