"""Long kernels for the race detector, most of them for several rules; `rules.py` says what their marks mean."""

from __future__ import annotations

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
# The same and then all threads write again.
OVERWRITE = (
    EXCHANGE.replace("+x ", "")
    .replace("    bar.sync 0;\n", "", 2)
    .replace("    xor", "    bar.sync 0;\n    xor")
    + """
    +x bar.sync 0;
    st.shared.b32 [%r2], %r4;
"""
)
# One thread loads 256 bytes twice into one place, and all threads read them.
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
# A wgmma whose operand in shared memory is written before and after.
WGMMA = (
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
# A loop in which one copy feeds a wgmma and a sum.  The wgmma is under way while the next tile is copied:
# with two buffers, which are enough for the sum, the copy goes to the tile that the wgmma reads.  (A known
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
