"""The rules that the race detector knows: for each a kernel that breaks it, or keeps it.

Lines of kernels that begin with `+word` or `-word` are what breaks the rule of this word (see
`races.findings`); where a kernel serves one rule, the word is `x`.
"""

from __future__ import annotations

from tests.emulator.emulated import at
from tests.emulator.race.kernels import EXCHANGE, HANDED_OVER, LOAD, OVERWRITE, PIPELINE, REMOTE, WGMMA

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
    "wgmma_of_unfenced_data": ("proxy-fence", WGMMA, "proxy"),
    "accumulator_touched_after_fence": ("wgmma-fence", WGMMA, "touch"),
    "accumulator_read_early": ("wgmma-registers", WGMMA, "read"),
    "register_of_a_written_early": ("wgmma-registers", WGMMA, "write"),
    "operand_written_early": ("race", WGMMA, "over"),
    "wait_of_one_warp": ("race", WGMMA, "bar"),
    "wgmma_without_wait": ("unfinished", WGMMA, "wait"),
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
