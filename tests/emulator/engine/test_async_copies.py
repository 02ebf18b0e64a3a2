"""Asynchronous copies in kernels: correct for every timing and schedule, and missing waits show."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.launch import run
from tests.emulator.emulated import at, launch
from tests.emulator.engine.asynchronous import BUFFER, BULK, SCHEDULES, TIMINGS, both, bulk, copied


@both
def test_copies_arrive(timing: str, schedule: str) -> None:
    assert not copied("cp.async.wait_group 0;", "bar.sync 0;", timing=timing, schedule=schedule).any()


def test_a_missing_wait_shows_when_copies_are_late() -> None:
    assert not copied("", "bar.sync 0;", timing="early").any()
    assert copied("", "bar.sync 0;", timing="late").any()
    assert copied("cp.async.wait_group 1;", "bar.sync 0;", timing="late").any()
    assert copied("cp.async.wait_group 0;", "", schedule="reverse").any()


@both
def test_bulk_copies_and_barriers(timing: str, schedule: str) -> None:
    report = bulk(timing=timing, schedule=schedule).check()
    assert report.outputs[1] is not None and (report.outputs[1] == 2 * np.arange(256)).all()


def test_what_bulk_copies_get_wrong_is_named() -> None:
    assert bulk(size=1040).findings[0].kind == "deadlock"
    assert "0 of 1 arrivals and 16 bytes to come" in bulk(size=1040).findings[0].message
    unfinished = bulk(BULK.replace("    @%p1 cp.async.bulk.wait_group.read 0;\n", ""))
    assert unfinished.findings[0].kind == "bulk-unfinished"
    # A wait that ignores the answer of try_wait shows when the copy is late.
    ignored = BULK.replace("    @!%p2 bra LOOP;\n", "")
    wrong = bulk(ignored, timing="late")
    assert wrong.findings or (wrong.outputs[1] != 2 * np.arange(256)).any()
    twice = BULK.replace(
        "    xor.b32 %r9, %r9, 1;", "    @%p1 mbarrier.init.shared.b64 [%r2], 1;\n    xor.b32 %r9, %r9, 1;"
    )
    assert bulk(twice).findings[0].kind == "mbarrier-misuse"


def test_polling_with_test_wait_ends() -> None:
    polled = BULK.replace("mbarrier.try_wait.parity", "mbarrier.test_wait.parity")
    for schedule in SCHEDULES:
        assert (bulk(polled, timing="late", schedule=schedule).check().outputs[1] == 2 * np.arange(256)).all()


def test_copies_that_arrive_at_a_barrier() -> None:
    body = (
        at("x", 16)
        + """
    mov.b32 %r1, buffer;
    add.u32 %r2, %r1, 2048;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r2], 64;
    bar.sync 0;
    mad.lo.u32 %r3, %r_tid, 16, %r1;
    cp.async.cg.shared.global [%r3], [%d0], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
wait:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
    @!%p2 bra wait;
    xor.b32 %r4, %r_tid, 33;
    mad.lo.u32 %r4, %r4, 16, %r1;
    ld.shared.b32 %r5, [%r4];
"""
        + at("y", 4)
        + "    st.global.b32 [%d0], %r5;\n"
    )
    x = np.arange(256, dtype=np.uint32)
    for timing in TIMINGS:
        report = launch(
            body,
            {"x": x, "y": np.zeros(64, np.uint32)},
            module=BUFFER,
            threads=64,
            shared=2056,
            timing=timing,
            schedule="round-robin",
        ).check()
        assert (report.outputs[1] == 4 * (np.arange(64) ^ 33)).all()


def test_multicast_and_arrivals_in_another_cta() -> None:
    """The first of two CTAs loads a tile into both; the second signals the first when it is done."""
    body = (
        """
    mov.b32 %r1, buffer;
    add.u32 %r2, %r1, 512;
    setp.eq.u32 %p1, %r_tid, 0;
    mov.u32 %r3, %cluster_ctarank;
    @%p1 mbarrier.init.shared.b64 [%r2], 1;
    @%p1 mbarrier.init.shared.b64 [%r2+8], 2;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 512;
    setp.eq.and.u32 %p2, %r3, 0, %p1;
    mov.b16 %h1, 3;
    @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%d_x], 512, [%r2], %h1;
wait:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;
    @!%p3 bra wait;
    mad.lo.u32 %r4, %r_tid, 4, %r1;
    ld.shared.b32 %r5, [%r4];
    mad.lo.u32 %r6, %r3, 128, %r_tid;
    add.u32 %r5, %r5, %r3;
    bar.sync 0;
    mapa.shared::cluster.u32 %r7, %r2, 0;
    @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7+8];
    setp.ne.u32 %p4, %r3, 0;
    @%p4 bra done;
last:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r2+8], 0;
    @!%p3 bra last;
done:
"""
        + at("y", 4, index="%r6")
        + "    st.global.b32 [%d0], %r5;\n"
    )
    x = np.arange(128, dtype=np.uint32)
    for timing in TIMINGS:
        report = launch(
            body,
            {"x": x, "y": np.zeros(256, np.uint32)},
            module=BUFFER,
            threads=128,
            grid=(2,),
            shared=528,
            cluster=(2,),
            timing=timing,
            schedule="round-robin",
        ).check()
        assert (report.outputs[1] == np.concatenate([x, x + 1])).all()


def test_unknown_timings_are_named() -> None:
    with pytest.raises(EmulationError, match="unknown timing 'soon'"):
        run(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n",
            "k",
            (1,),
            1,
            0,
            [],
            timing="soon",
        )
