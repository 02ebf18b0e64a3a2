"""The race detector: for each rule a kernel that breaks it, and its twin that does not.

Lines of kernels that begin with `+word` or `-word` are what breaks the rule of this word (see
`races.findings`); where a kernel serves one rule, the word is `x`.
"""

from __future__ import annotations

import pytest

from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.race import RaceDetector
from tests.emulator.emulated import at
from tests.emulator.race.races import findings, kinds_of

# Thread i writes to shared memory, and reads what thread i + 32 wrote.
EXCHANGE = """
    mov.b32 %r1, buffer;
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    st.shared.b32 [%r2], %r_tid;
    +x bar.sync 0;
    xor.b32 %r3, %r_tid, 32;
    mad.lo.u32 %r3, %r3, 4, %r1;
    ld.shared.b32 %r4, [%r3];
    bar.sync 0;
"""
# The same and then everybody writes again.
OVERWRITE = (
    EXCHANGE.replace("+x ", "")
    .replace("    bar.sync 0;\n", "", 2)
    .replace("    xor", "    bar.sync 0;\n    xor")
    + """
    +x bar.sync 0;
    st.shared.b32 [%r2], %r4;
"""
)
# One thread loads 256 bytes twice into one place, and everybody reads them.
LOAD = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    mad.lo.u32 %r3, %r_tid, 4, %r1;
    mov.b32 %r9, 0;
    -parity mov.b32 %r9, 1;
    @%p1 mbarrier.init.shared.b64 [%r1+4096], 1;
    +init fence.proxy.async.shared::cta;
    +made bar.sync 0;
again:
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+4096], 256;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d_x], 256, [%r1+4096];
loop:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r1+4096], %r9;
    +wait @!%p2 bra loop;
    ld.shared.b32 %r4, [%r3];
    +fence fence.proxy.async.shared::cta;
    +bar bar.sync 0;
    -again @%p1 mbarrier.init.shared.b64 [%r1+4096], 1;
    -again ret;
    xor.b32 %r9, %r9, 1;
    setp.ne.u32 %p3, %r9, 0;
    @%p3 bra again;
    bar.sync 0;
"""
SETUP = """
    .reg .f32 %f<4>;
    .reg .b32 %a<4>;
    mov.b32 %r1, buffer;
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    cvt.u64.u32 %d2, %r1;
    shr.u64 %d2, %d2, 4;
    add.u64 %d2, %d2, 0x1000080000;
    setp.ge.u32 %p2, %r_tid, 0;
""" + "".join(
    f"    mov.b32 %{register}, 0;\n" for register in ("f0", "f1", "f2", "f3", "a0", "a1", "a2", "a3")
)
MULTIPLY = """
    wgmma.fence.sync.aligned;
    -touch mov.b32 %f0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%a0, %a1, %a2, %a3}, %d2, %p2, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
"""
# The product of a warpgroup, whose operand in shared memory is written before and after.
PRODUCT = (
    SETUP
    + """
    st.shared.b32 [%r2], 0;
    +proxy fence.proxy.async.shared::cta;
    bar.sync 0;
"""
    + MULTIPLY
    + """
    -read mov.b32 %r3, %f1;
    -write mov.b32 %a3, 7;
    -over st.shared.b32 [%r2], 5;
    +wait wgmma.wait_group.sync.aligned 0;
    +bar bar.sync 0;
    +wait st.shared.b32 [%r2], 6;
"""
)
# A loop in which one copy feeds a product and a sum.  The product is under way while the next tile is copied:
# with two buffers, which would do for the sum, the copy goes to the tile that the product reads.  (A known
# fault of another compiler.)
PIPELINE = (
    SETUP
    + """
    setp.lt.u32 %p1, %r_tid, 16;
    mad.wide.u32 %d0, %r_tid, 16, %d_x;
    mad.lo.u32 %r2, %r_tid, 16, %r1;
    @%p1 cp.async.cg.shared.global [%r2], [%d0], 16;
    cp.async.commit_group;
    @%p1 cp.async.cg.shared.global [%r2+256], [%d0], 16;
    cp.async.commit_group;
    mov.b32 %r3, 0;
    mov.b32 %r7, 0;
again:
    cp.async.wait_group 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    -x rem.u32 %r4, %r3, 2;
    +x rem.u32 %r4, %r3, 3;
    mad.lo.u32 %r5, %r4, 256, %r1;
    ld.shared.b32 %r6, [%r5];
    add.u32 %r7, %r7, %r6;
    mad.wide.u32 %d3, %r4, 16, %d2;
"""
    + MULTIPLY.replace("%d2", "%d3")
    + """
    wgmma.wait_group.sync.aligned 1;
    bar.sync 0;
    add.u32 %r4, %r3, 2;
    -x rem.u32 %r4, %r4, 2;
    +x rem.u32 %r4, %r4, 3;
    mad.lo.u32 %r4, %r4, 256, %r2;
    @%p1 cp.async.cg.shared.global [%r4], [%d0], 16;
    cp.async.commit_group;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p3, %r3, 5;
    @%p3 bra again;
    wgmma.wait_group.sync.aligned 0;
    cp.async.wait_all;
"""
)
# Two CTAs of a cluster: each reads what the other has written to its shared memory.
REMOTE = """
    mov.b32 %r1, buffer;
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    st.shared.b32 [%r2], %r_tid;
    mov.u32 %r3, %cluster_ctarank;
    xor.b32 %r3, %r3, 1;
    mapa.shared::cluster.u32 %r4, %r2, %r3;
    +relaxed barrier.cluster.arrive.release.aligned;
    -relaxed barrier.cluster.arrive.relaxed.aligned;
    barrier.cluster.wait.acquire.aligned;
    -meet st.shared.b32 [%r2], 5;
    ld.shared::cluster.b32 %r5, [%r4];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
# The first CTA writes to what the second has read, when that one has arrived at its mbarrier.
HANDED_OVER = """
    mov.b32 %r1, buffer;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.u32 %r2, %cluster_ctarank;
    setp.eq.u32 %p2, %r2, 1;
    setp.ne.u32 %p3, %r2, 1;
    and.pred %p2, %p1, %p2;
    and.pred %p3, %p1, %p3;
    mapa.shared::cluster.u32 %r3, %r1, 0;
    mapa.shared::cluster.u32 %r4, %r1, 1;
    @%p2 st.shared.b32 [%r1], 1;
    @%p2 ld.shared.b32 %r5, [%r1];
    +release @%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3+8];
    -release @%p2 mbarrier.arrive.shared::cluster.b64 _, [%r3+8];
    @!%p3 bra done;
    again:
    +acquire mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r1+8], 0;
    -acquire mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+8], 0;
    @!%p4 bra again;
    st.shared::cluster.b32 [%r4], 2;
    done:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
RULES: dict[str, tuple[str, ...]] = {
    "read_after_write": ("race", EXCHANGE),
    "write_after_read": ("race", OVERWRITE),
    "write_after_write": (
        "race",
        """
        mov.b32 %r1, buffer;
        -x st.shared.b32 [%r1], %r_tid;
        +x setp.eq.u32 %p1, %r_tid, 0;
        +x @%p1 st.shared.b32 [%r1], %r_tid;
    """,
    ),
    "equal_values": (
        "race",
        """
        mov.b32 %r1, buffer;
        +x mov.b32 %r2, 7;
        -x shr.u32 %r2, %r_tid, 5;
        st.shared.b32 [%r1], %r2;
    """,
    ),
    "barrier_for_too_few": (
        "race",
        """
        mov.b32 %r1, buffer;
        shr.u32 %r2, %r_tid, 5;
        mad.lo.u32 %r3, %r_tid, 4, %r1;
        st.shared.b32 [%r3], %r_tid;
        setp.eq.u32 %p1, %r2, 0;
        -x @%p1 barrier.sync 1, 32;
        -x @!%p1 barrier.sync 2, 32;
        +x barrier.sync 1, 64;
        xor.b32 %r5, %r3, 128;
        ld.shared.b32 %r6, [%r5];
    """,
    ),
    "lanes_without_bar_warp": (
        "warp-race",
        """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        st.shared.b32 [%r2], %r_tid;
        +x bar.warp.sync 0xffffffff;
        xor.b32 %r3, %r2, 4;
        ld.shared.b32 %r4, [%r3];
    """,
    ),
    "uninitialised_shared": (
        "uninitialised-read",
        """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        +x st.shared.b32 [%r2], %r_tid;
        ld.shared.b32 %r4, [%r2];
    """,
    ),
    "copy_without_wait": (
        "race",
        at("x", 16)
        + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.commit_group;
        +x cp.async.wait_group 0;
        bar.sync 0;
        ld.shared.b32 %r3, [%r2];
    """,
    ),
    "copy_waited_for_by_one_thread": (
        "race",
        at("x", 16)
        + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.wait_all;
        +x bar.sync 0;
        xor.b32 %r2, %r2, 512;
        ld.shared.b32 %r3, [%r2];
    """,
    ),
    "copy_over_what_others_read": (
        "race",
        at("x", 16)
        + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        st.shared.b32 [%r2], %r_tid;
        bar.sync 0;
        xor.b32 %r3, %r2, 512;
        ld.shared.b32 %r4, [%r3];
        +x bar.sync 0;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.wait_all;
    """,
    ),
    "store_without_proxy_fence": (
        "proxy-fence",
        """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        st.shared.b32 [%r2], %r_tid;
        +x fence.proxy.async.shared::cta;
        bar.sync 0;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d_y], [%r1], 256;
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group.read 0;
    """,
    ),
    "bulk_load_of_what_was_stored_before": (
        "proxy-fence",
        at("y", 4)
        + """
        mov.b32 %r1, buffer;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 mbarrier.init.shared.b64 [%r1+4096], 1;
        st.global.b32 [%d0], %r_tid;
        +x fence.proxy.async;
        -x fence.proxy.async.shared::cta;
        bar.sync 0;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+4096], 256;
        @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d_y], 256, [%r1+4096];
        loop:
        mbarrier.try_wait.parity.shared.b64 %p2, [%r1+4096], 0;
        @!%p2 bra loop;
    """,
    ),
    "source_of_a_bulk_store_overwritten": (
        "race",
        """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 4, %r1;
        st.shared.b32 [%r2], %r_tid;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d_y], [%r1], 256;
        @%p1 cp.async.bulk.commit_group;
        +x @%p1 cp.async.bulk.wait_group.read 0;
        +x bar.sync 0;
        st.shared.b32 [%r2], 5;
        -x @%p1 cp.async.bulk.wait_group.read 0;
    """,
    ),
    "global_across_ctas": (
        "race",
        """
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r_tid, 0;
        -x @%p1 st.global.b32 [%d_y], %r1;
        +x @%p1 atom.global.add.u32 %r2, [%d_y], %r1;
    """,
    ),
    "flag_without_release": (
        "race",
        """
        mov.u32 %r1, %ctaid.x;
        setp.ne.u32 %p1, %r_tid, 0;
        @%p1 ret;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra reader;
        st.global.b32 [%d_y+64], 7;
        +x st.release.gpu.global.b32 [%d_y], 1;
        -x st.relaxed.gpu.global.b32 [%d_y], 1;
        ret;
        reader:
        ld.acquire.gpu.global.b32 %r3, [%d_y];
        setp.eq.u32 %p3, %r3, 0;
        @%p3 bra reader;
        ld.global.b32 %r4, [%d_y+64];
    """,
    ),
    "flag_with_fences": (
        "race",
        """
        mov.u32 %r1, %ctaid.x;
        setp.ne.u32 %p1, %r_tid, 0;
        @%p1 ret;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra reader;
        st.global.b32 [%d_y+64], 7;
        fence.acq_rel.gpu;
        atom.global.exch.b32 %r3, [%d_y], 1;
        ret;
        reader:
        ld.relaxed.gpu.global.b32 %r3, [%d_y];
        setp.eq.u32 %p3, %r3, 0;
        @%p3 bra reader;
        +x fence.acq_rel.gpu;
        ld.global.b32 %r4, [%d_y+64];
    """,
    ),
    "read_of_a_bulk_load_without_wait": ("race", LOAD, "wait"),
    "bulk_load_over_what_others_read": ("race", LOAD, "bar"),
    "bulk_load_over_reads_without_proxy_fence": ("proxy-fence-reuse", LOAD, "fence"),
    "wait_for_the_wrong_phase": ("race", LOAD, "parity"),
    "mbarrier_made_without_barrier": ("race", LOAD, "made"),
    "mbarrier_made_without_fence": ("mbarrier-fence", LOAD, "init"),
    "mbarrier_made_again": ("mbarrier-reuse", LOAD, "again"),
    "product_of_unfenced_data": ("proxy-fence", PRODUCT, "proxy"),
    "accumulator_touched_after_fence": ("wgmma-fence", PRODUCT, "touch"),
    "accumulator_read_early": ("wgmma-registers", PRODUCT, "read"),
    "register_of_a_written_early": ("wgmma-registers", PRODUCT, "write"),
    "operand_written_early": ("race", PRODUCT, "over"),
    "wait_of_one_warp": ("race", PRODUCT, "bar"),
    "product_without_wait": ("unfinished", PRODUCT, "wait"),
    "copy_over_operands": ("race", PIPELINE),
    "copy_without_any_wait": (
        "unfinished",
        at("x", 16)
        + """
        mov.b32 %r1, buffer;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        +x cp.async.wait_all;
    """,
    ),
    "copies_told_to_an_mbarrier": (
        "race",
        at("x", 16)
        + """
        mov.b32 %r1, buffer;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 mbarrier.init.shared.b64 [%r1+4096], 64;
        bar.sync 0;
        mad.lo.u32 %r2, %r_tid, 16, %r1;
        cp.async.cg.shared.global [%r2], [%d0], 16;
        cp.async.mbarrier.arrive.noinc.shared.b64 [%r1+4096];
        loop:
        mbarrier.test_wait.parity.shared.b64 %p2, [%r1+4096], 0;
        +x @!%p2 bra loop;
        xor.b32 %r3, %r2, 512;
        ld.shared.b32 %r4, [%r3];
        -x cp.async.wait_all;
    """,
    ),
    "bytes_announced_that_never_come": (
        "unfinished",
        """
        mov.b32 %r1, buffer;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        -x @%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 64;
    """,
    ),
    "mbarrier_invalidated_under_waiters": (
        "mbarrier-misuse",
        """
        mov.b32 %r1, buffer;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        bar.sync 0;
        +x @%p1 mbarrier.arrive.shared.b64 _, [%r1];
        setp.ge.u32 %p3, %r_tid, 32;
        @%p3 bra other;
        loop:
        mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
        @!%p2 bra loop;
        +x bar.sync 0;
        ret;
        other:
        +x bar.sync 0;
        setp.eq.u32 %p4, %r_tid, 32;
        @%p4 mbarrier.inval.shared.b64 [%r1];
    """,
    ),
    "counters_set_to_zero_before": (
        "race",
        """
        mov.b32 %r1, buffer;
        setp.eq.u32 %p1, %r_tid, 0;
        @%p1 st.shared.b32 [%r1], 0;
        @%p1 atom.shared.add.u32 %r2, [%r1], 1;
        +x bar.sync 0;
        atom.shared.add.u32 %r2, [%r1], 1;
    """,
    ),
    "read_only_load_of_what_was_stored": (
        "read-only-load",
        at("y", 4)
        + """
        st.global.b32 [%d0], 5;
        +x ld.global.b32 %r1, [%d0];
        -x ld.global.nc.b32 %r1, [%d0];
    """,
    ),
    "cluster_without_barrier": ("race", REMOTE, "meet"),
    "cluster_barrier_without_release": ("race", REMOTE, "relaxed"),
    "arrival_in_another_cta_that_releases_within_its_own": ("race", HANDED_OVER, "release"),
    "wait_that_acquires_within_its_own_cta": ("race", HANDED_OVER, "acquire"),
    "named_barrier_of_producer_and_consumer": (
        "race",
        """
        mov.b32 %r1, buffer;
        and.b32 %r2, %r_tid, 31;
        mad.lo.u32 %r2, %r2, 4, %r1;
        setp.ge.u32 %p1, %r_tid, 32;
        @%p1 bra consumer;
        st.shared.b32 [%r2], %r_tid;
        +x barrier.arrive 3, 64;
        ret;
        consumer:
        +x barrier.sync 3, 64;
        ld.shared.b32 %r3, [%r2];
    """,
    ),
    "register_that_a_path_leaves_out": (
        "uninitialised-register",
        """
        setp.gt.u32 %p1, %r_tid, 7;
        +x mov.b32 %r2, 1;
        @%p1 mov.b32 %r2, 2;
        add.u32 %r3, %r2, 1;
    """,
    ),
}
GRIDS = {"global_across_ctas": 2, "flag_without_release": 2, "flag_with_fences": 2}


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found_and_its_twin_is_clean(name: str, schedule: str) -> None:
    kind, body, word = (*RULES[name], "x")[:3]
    together = body in (REMOTE, HANDED_OVER)
    options: dict = {"cluster": (2, 1, 1)} if together else {}
    options |= {"schedule": schedule, "grid": 2 if together else GRIDS.get(name, 1)}
    options |= {"threads": 128 if body in (PRODUCT, PIPELINE) else 64}
    kinds = kinds_of(body, word, **options)
    assert kind in kinds or (kind, kinds) == ("race", {"mbarrier-misuse"})


def test_a_report_names_both_accesses_and_counts() -> None:
    everything = findings(EXCHANGE, "x", threads=64, schedule="reverse")
    found = next(each for each in everything if "reads shared address 0x80" in each.message)
    assert found.instruction is not None and found.instruction.name == "ld.shared.b32"
    assert found.other is not None and found.other.name == "st.shared.b32"
    assert "warp 0, lane 0 reads shared address 0x80" in str(found) and "which warp 1, lane 0 wrote" in str(
        found
    )
    assert f"against PTX line {found.other.line}: st.shared.b32" in str(found)


def test_reads_of_what_the_host_has_not_written() -> None:
    body = at("y", 4) + "ld.global.b32 %r1, [%d0];\n st.global.b32 [%d0], %r1;"
    assert not findings(body, threads=64)
    (found,) = findings(body, threads=64, checks="", observers=[RaceDetector(unwritten=[1])])
    assert found.kind == "uninitialised-read" and "argument 1" in found.message


def test_other_ctas_are_named() -> None:
    (found,) = findings("mov.u32 %r1, %ctaid.x;\n st.global.b32 [%d_y], %r1;", threads=32, grid=2)
    assert "which warp 0, lane 31 of CTA (0, 0, 0) wrote" in found.message and found.cta == (1, 0, 0)


def test_lenient_checks_forgive_what_hardware_does() -> None:
    for name in ("register_that_a_path_leaves_out", "store_without_proxy_fence"):
        assert not findings(RULES[name][1], "x", threads=64, checks="lenient")
    with pytest.raises(EmulationError, match="unknown checks 'loose'"):
        findings(EXCHANGE, checks="loose")
