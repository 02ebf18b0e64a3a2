"""The race detector: scopes of fences and atomic operations, the order of `fence.sc`, readers in crowds, and
ends of CTAs."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator import EmulationError
from kbuild.emulator.race import RaceDetector
from kbuild.emulator.race.shadow import Crowd
from tests.emulator.emulated import at, launch
from tests.emulator.race.races import findings, kinds_of

SCHEDULES = ["lockstep", "round-robin", "reverse"]
# The first CTA sets a flag after a write, the second waits for it and reads what was written.
FLAG = """
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r_tid, 0;
    @%p1 ret;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra reader;
    st.global.b32 [%d_y+64], 7;
    +store st.release.gpu.global.b32 [%d_y], 1;
    -store st.release.cluster.global.b32 [%d_y], 1;
    ret;
    reader:
    +load ld.acquire.gpu.global.b32 %r3, [%d_y];
    -load ld.acquire.cluster.global.b32 %r3, [%d_y];
    setp.eq.u32 %p3, %r3, 0;
    @%p3 bra reader;
    ld.global.b32 %r4, [%d_y+64];
"""
FENCED = """
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r_tid, 0;
    @%p1 ret;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra reader;
    st.global.b32 [%d_y+64], 7;
    +first fence.acq_rel.gpu;
    -first fence.acq_rel.cluster;
    +set st.relaxed.gpu.global.b32 [%d_y], 1;
    -set st.relaxed.cluster.global.b32 [%d_y], 1;
    ret;
    reader:
    +look ld.relaxed.gpu.global.b32 %r3, [%d_y];
    -look ld.relaxed.cluster.global.b32 %r3, [%d_y];
    setp.eq.u32 %p3, %r3, 0;
    @%p3 bra reader;
    +second fence.acq_rel.gpu;
    -second fence.acq_rel.cluster;
    ld.global.b32 %r4, [%d_y+64];
"""
# Every thread of a CTA writes and fences, then one counts the CTA; every thread of the CTA that comes last
# fences, and reads what those of the other have written.
LAST_ONE = """
    mov.b32 %r1, buffer;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 64, %r_tid;
    mad.wide.u32 %d1, %r3, 4, %d_y;
    st.global.b32 [%d1+64], %r3;
    +before membar.gl;
    -before membar.cta;
    bar.sync 0;
    setp.ne.u32 %p1, %r_tid, 0;
    @%p1 bra counted;
    atom.relaxed.gpu.global.add.u32 %r4, [%d_y], 1;
    st.shared.b32 [%r1], %r4;
    counted:
    bar.sync 0;
    ld.shared.b32 %r4, [%r1];
    setp.ne.u32 %p2, %r4, 1;
    @%p2 ret;
    +after membar.gl;
    xor.b32 %r3, %r3, 64;
    mad.wide.u32 %d1, %r3, 4, %d_y;
    ld.global.b32 %r5, [%d1+64];
"""
# Four warps read one word; the last writes it when all of them, or all but the first, have met.
CROWD = """
    shr.u32 %r2, %r_tid, 5;
    ld.global.b32 %r3, [%d_y];
    setp.eq.u32 %p1, %r2, 0;
    +x bar.sync 0;
    -x @!%p1 barrier.sync 1, 96;
    setp.ne.u32 %p2, %r_tid, 127;
    @%p2 ret;
    st.global.b32 [%d_y], %r3;
"""
# Two lanes read a word; one of them signals another warp, which writes it.
LANES = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 st.shared.b32 [%r1+64], 5;
    bar.sync 0;
    setp.ge.u32 %p2, %r_tid, 32;
    @%p2 bra writer;
    setp.eq.u32 %p3, %r_tid, 3;
    @%p3 ld.shared.b32 %r2, [%r1+64];
    setp.eq.u32 %p4, %r_tid, 5;
    @%p4 ld.shared.b32 %r2, [%r1+64];
    +x bar.warp.sync 0xffffffff;
    @%p4 mbarrier.arrive.shared.b64 _, [%r1];
    ret;
    writer:
    mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 0;
    @!%p5 bra writer;
    setp.eq.u32 %p6, %r_tid, 32;
    @%p6 st.shared.b32 [%r1+64], 6;
"""
# All lanes read a word at once; one of them signals another warp, which writes it.
BROADCAST = LANES.replace("@%p3 ld.shared.b32 %r2, [%r1+64];", "ld.shared.b32 %r2, [%r1+64];")
# One side of a branch reads what the other writes.
SIDES = """
    mov.b32 %r3, 1;
    setp.ge.u32 %p1, %r_tid, 16;
    @%p1 bra readers;
    -x st.global.b32 [%d_y], %r3;
    bra met;
    readers:
    ld.global.b32 %r2, [%d_y];
    met:
    setp.eq.u32 %p2, %r_tid, 0;
    +x @%p2 st.global.b32 [%d_y], %r3;
"""
# Each CTA of a cluster reads what the other wrote, and ends.
PEER = """
    mov.b32 %r1, buffer;
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    st.shared.b32 [%r2], %r_tid;
    mov.u32 %r3, %cluster_ctarank;
    xor.b32 %r3, %r3, 1;
    mapa.shared::cluster.u32 %r4, %r2, %r3;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    -slow setp.eq.u32 %p1, %r3, 0;
    -slow @!%p1 bra read;
    -slow mov.u32 %r6, 0;
    -slow again:
    -slow add.u32 %r6, %r6, 1;
    -slow setp.lt.u32 %p2, %r6, 20000;
    -slow @%p2 bra again;
    -slow read:
    -slow ld.shared::cluster.b32 %r5, [%r4];
    -slow ret;
    ld.shared::cluster.b32 %r5, [%r4];
    +end barrier.cluster.arrive.aligned;
    +end barrier.cluster.wait.aligned;
"""
# One CTA of a cluster copies to the shared memory of both.
MULTICAST = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1+4096], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+4096], 256;
    mov.u32 %r3, %cluster_ctarank;
    setp.eq.u32 %p2, %r3, 0;
    and.pred %p2, %p1, %p2;
    mov.b16 %h1, 3;
    @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%d_x], 256, [%r1+4096], %h1;
    -wait setp.eq.u32 %p4, %r3, 1;
    -wait @%p4 ret;
    loop:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r1+4096], 0;
    @!%p3 bra loop;
"""
# Two warps write and arrive, and another reads what both have written.
TWO_ARRIVE = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 2;
    bar.sync 0;
    and.b32 %r2, %r_tid, 31;
    setp.eq.u32 %p1, %r2, 0;
    setp.ge.u32 %p2, %r_tid, 64;
    @%p2 bra reader;
    mad.lo.u32 %r3, %r_tid, 4, %r1;
    @%p1 st.shared.b32 [%r3+64], 5;
    +x @%p1 mbarrier.arrive.shared.b64 _, [%r1];
    -x setp.eq.u32 %p1, %r_tid, 32;
    -x @%p1 mbarrier.arrive.shared.b64 _, [%r1], 2;
    ret;
    reader:
    mbarrier.test_wait.parity.shared.b64 %p3, [%r1], 0;
    @!%p3 bra reader;
    ld.shared.b32 %r4, [%r1+64];
    ld.shared.b32 %r5, [%r1+192];
"""
# Each CTA of a cluster arrives at an mbarrier of the other, and ends when it has seen the other do so.
ARRIVAL = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r3, %cluster_ctarank;
    xor.b32 %r3, %r3, 1;
    mapa.shared::cluster.u32 %r4, %r1, %r3;
    @%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4];
    loop:
    +x mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    +x @!%p2 bra loop;
"""
# A store to a CTA of the cluster, which waits for it.
REMOTE_STORE = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1+512], 1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+512], 4;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r3, %r2, 1;
    mapa.shared::cluster.u32 %r4, %r1, %r3;
    @%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %r2, [%r4+512];
    -x ld.shared.b32 %r5, [%r1];
    loop:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r1+512], 0;
    @!%p2 bra loop;
    ld.shared.b32 %r5, [%r1];
"""
# A counter of all CTAs.
COUNT = """
    setp.ne.u32 %p1, %r_tid, 0;
    @%p1 ret;
    +x red.relaxed.gpu.global.add.u32 [%d_y], 1;
    -x red.relaxed.cta.global.add.u32 [%d_y], 1;
"""
RULES = {
    "flag_set_for_a_cluster": ("race", FLAG, "store", {"grid": 2}),
    "flag_read_for_a_cluster": ("race", FLAG, "load", {"grid": 2}),
    "fence_before_for_a_cluster": ("race", FENCED, "first", {"grid": 2}),
    "fence_after_for_a_cluster": ("race", FENCED, "second", {"grid": 2}),
    "fenced_flag_set_for_a_cluster": ("race", FENCED, "set", {"grid": 2}),
    "fenced_flag_read_for_a_cluster": ("race", FENCED, "look", {"grid": 2}),
    "count_of_several_ctas": ("race", COUNT, "x", {"grid": 2}),
    "sequence_without_the_fence_before": ("race", LAST_ONE, "before", {"grid": 2}),
    "sequence_without_the_fence_after": ("race", LAST_ONE, "after", {"grid": 2}),
    "sequence_of_fences_without_the_first": (
        "race",
        LAST_ONE.replace("membar.gl", "fence.sc.gpu"),
        "before",
        {"grid": 2},
    ),
    "readers_of_many_warps": ("race", CROWD, "x", {"threads": 128}),
    "readers_of_one_warp": ("race", LANES, "x", {}),
    "readers_at_once": ("race", BROADCAST, "x", {}),
    "arrivals_of_two_warps": ("race", TWO_ARRIVE, "x", {"threads": 96}),
    "sides_of_a_branch": ("warp-race", SIDES, "x", {"threads": 32}),
    "peer_without_a_last_barrier": ("ended-peer", PEER, "end", {"grid": 2, "cluster": (2, 1, 1)}),
    "remote_store_without_a_wait": ("race", REMOTE_STORE, "x", {"grid": 2, "cluster": (2, 1, 1)}),
    "arrival_at_a_peer_that_does_not_wait": ("ended-peer", ARRIVAL, "x", {"grid": 2, "cluster": (2, 1, 1)}),
    "multicast_to_a_peer_that_does_not_wait": (
        "ended-peer",
        MULTICAST,
        "wait",
        {"grid": 2, "cluster": (2, 1, 1)},
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found_and_its_twin_is_clean(name: str, schedule: str) -> None:
    kind, body, word, options = RULES[name]
    assert kind in kinds_of(body, word, schedule=schedule, **{"threads": 64, **options})


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("body", "word"),
    [(FLAG, "store"), (FLAG, "load"), (FENCED, "first"), (FENCED, "second"), (FENCED, "look")],
)
def test_scopes_of_a_cluster_suffice_within_it(body: str, word: str, schedule: str) -> None:
    assert not findings(body, word, threads=32, grid=2, cluster=(2, 1, 1), schedule=schedule)


@pytest.mark.parametrize("checks", ["", "strict"])
def test_shared_memory_of_a_peer_that_has_ended(checks: str) -> None:
    found = findings(PEER, "slow", threads=32, grid=2, cluster=(2, 1, 1), checks=checks)
    assert "ended-peer" in {finding.kind for finding in found}
    assert "uses shared memory of CTA 0 of the cluster, which has ended" in str(found[-1])


def test_counts_for_a_cta_do_not_race_within_it() -> None:
    body = "mov.b32 %r1, buffer;\n setp.eq.u32 %p1, %r_tid, 0;\n @%p1 st.shared.b32 [%r1], 0;\n bar.sync 0;\n"
    assert not findings(body + "red.relaxed.cta.shared.add.u32 [%r1], 1;", threads=64, schedule="reverse")


# One warp arrives in two phases before another looks at the first.
LATE = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 2;
    bar.sync 0;
    setp.ge.u32 %p2, %r_tid, 32;
    @%p2 bra reader;
    +x @%p1 st.shared.b32 [%r1+64], 5;
    @%p1 mbarrier.arrive.shared.b64 _, [%r1], 2;
    -x @%p1 st.shared.b32 [%r1+64], 5;
    @%p1 mbarrier.arrive.shared.b64 _, [%r1];
    ret;
    reader:
    mbarrier.test_wait.parity.shared.b64 %p3, [%r1], 0;
    @!%p3 bra reader;
    ld.shared.b32 %r2, [%r1+64];
"""


def test_what_arrived_in_a_phase_is_known_while_the_next_is_under_way() -> None:
    options: dict = {"threads": 64, "schedule": "forward"}
    assert not findings(LATE, **options)
    assert "race" in {finding.kind for finding in findings(LATE, "x", **options)}


def test_a_barrier_that_counts_writes_its_register() -> None:
    body = (
        "setp.lt.u32 %p1, %r_tid, 40;\n bar.red.popc.u32 %r1, 0, %p1;\n"
        + at("y", 4)
        + "st.global.b32 [%d0], %r1;\n"
    )
    assert not findings(body, threads=64, schedule="reverse")


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("st.shared.b32 [first+64], %r_tid;", "0 bytes after the end of first (64 bytes)"),
        ("ld.shared.v2.b32 {%r1, %r2}, [first+64];", "0 bytes after the end of first (64 bytes)"),
        ("ld.shared.b32 %r1, [second+32];", "0 bytes after the end of second (32 bytes)"),
        ("ld.shared.b32 %r1, [second-4];", "4 bytes before second (32 bytes)"),
    ],
)
def test_overflow_from_one_shared_array_into_the_next(code: str, where: str) -> None:
    module = ".shared .align 16 .b8 first[64];\n.shared .align 16 .b8 second[32];\n.extern .shared .align 16 .b8 rest[];"
    report = launch(f"mov.b32 %r1, rest;\n {code}", {}, module=module, shared=256)
    assert [finding.kind for finding in report.findings] == ["out-of-bounds"] and where in str(
        report.findings[0]
    )


def test_shared_arrays_keep_their_sizes_and_places() -> None:
    module = ".shared .align 16 .b8 first[64];\n.shared .align 1024 .b8 second[32];\n.extern .shared .align 128 .b8 rest[];"
    body = "mov.b32 %r1, second;\n rem.u32 %r0, %r1, 1024;\n mov.b32 %r1, rest;\n rem.u32 %r2, %r1, 128;\n"
    body += "or.b32 %r0, %r0, %r2;\n"
    body += "mov.u32 %r2, %total_smem_size;\n mad.lo.u32 %r0, %r0, 4096, %r2;\n mov.u32 %r2, %dynamic_smem_size;\n"
    body += (
        "mad.lo.u32 %r0, %r2, 65536, %r0;\n st.shared.b32 [rest+252], %r0;\n"
        + at("out", 4)
        + "st.global.b32 [%d0], %r0;\n"
    )
    found = launch(body, {"out": np.zeros(32, np.uint32)}, module=module, shared=256).check().outputs[0]
    assert found is not None and (found == 256 * 65536 + 64 + 32 + 256).all()


# A kernel that begins before the one before it has ended.
DEPENDENT = """
    ld.global.b32 %r5, [%d_x];
    -read ld.global.b32 %r6, [%d_y];
    -write st.global.b32 [%d0], %r5;
    -copy mov.b32 %r1, buffer;
    -copy cp.async.ca.shared.global [%r1], [%d_y], 4;
    -copy cp.async.wait_all;
    setp.lt.u32 %p1, %r_tid, 32;
    @%p1 griddepcontrol.wait;
    +order bar.sync 0;
    ld.global.b32 %r6, [%d_y+128];
    +all griddepcontrol.wait;
    st.global.b32 [%d0], %r6;
"""


@pytest.mark.parametrize("word", ["read", "write", "copy", "order"])
def test_what_an_earlier_launch_works_on_before_the_wait_for_it(word: str) -> None:
    body = at("y", 4) + DEPENDENT
    for broken, found in (("", set()), (word, {"before-wait"})):
        detector = RaceDetector(earlier=[1])
        report = findings(body, broken, threads=64, schedule="reverse", checks="", observers=[detector])
        assert {finding.kind for finding in report} - {"race"} == found


def test_kernels_that_never_wait_ignore_earlier_launches() -> None:
    body = at("y", 4) + "st.global.b32 [%d0], 5;"
    assert not findings(body, checks="", observers=[RaceDetector(earlier=[1])])
    assert not findings("griddepcontrol.wait;" + body, threads=32)
    with pytest.raises(EmulationError, match=r"before griddepcontrol\.wait; an earlier"):
        launch(
            body + "griddepcontrol.wait;",
            {"x": np.zeros(1), "y": np.zeros(32, np.uint32)},
            observers=[RaceDetector(earlier=[1])],
        ).check()


def test_readers_in_crowds_stay_in_order_when_granules_are_split() -> None:
    crowd = Crowd(4)
    crowd.add(np.array([1, 1, 3]), np.array([10, 20, 30], np.int64) << 40)
    crowd.split(2)
    places, words = crowd.among(np.array([2, 3, 6]))
    assert list(zip(places, words >> 40)) == [(0, 10), (0, 20), (1, 10), (1, 20), (2, 30)]


STORED = """
    mov.u32 %r1, buffer;
    mov.u32 %r2, %ctaid.x;
    setp.ne.u32 %p1, %r_tid, 0;
    @%p1 bra done;
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra reader;
    mov.u32 %r3, 7;
    st.shared.v4.b32 [%r1], {%r3, %r3, %r3, %r3};
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%d_y], [%r1], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    +flag st.release.gpu.global.b32 [%d_x], 1;
    bra done;
    reader:
    +flag ld.acquire.gpu.global.b32 %r4, [%d_x];
    +flag setp.ne.u32 %p3, %r4, 1;
    +flag @%p3 bra reader;
    ld.global.b32 %r5, [%d_y];
    done:
"""


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin"])
def test_a_bulk_store_is_of_the_program_that_waited_for_it(schedule: str) -> None:
    assert not findings(STORED, threads=32, grid=2, schedule=schedule)
    found = findings(STORED, "flag", threads=32, grid=2, schedule=schedule)
    assert {finding.kind for finding in found} == {"race"}
