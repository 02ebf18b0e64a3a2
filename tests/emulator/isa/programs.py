"""Golden programs: for rows that do more than compute, short PTX with inputs and the outputs that the PTX ISA
specifies."""

from __future__ import annotations

import numpy as np

from tests.emulator.isa.golden_async import ASYNCHRONOUS
from tests.emulator.isa.golden_program import Program, at
from tests.emulator.isa.products import MMAS
from tests.emulator.isa.wmma_products import SPARSE, WMMA

LANE = np.arange(32, dtype=np.uint32)
OUT = at("out", 4) + "    st.global.b32 [%d0], %r0;\n"


def lanes(name: str, body: str, expected: np.ndarray, module: str = "", shared: int = 0) -> Program:
    """A program whose threads each leave one u32 in %r0."""
    count = len(expected)
    return Program(
        name,
        body + OUT,
        {"out": np.asarray(expected, np.uint32)},
        {"out": np.zeros(count, np.uint32)},
        threads=count,
        shared=shared,
        module=module,
    )


def flags(predicate: str = "%p1") -> str:
    return f"    selp.b32 %r0, 1, 0, {predicate};\n"


MOVES = [
    lanes(
        "pack and unpack",
        """
    mov.b32 %r1, 0x12345678;
    mov.b32 {%h1, %h2}, %r1;
    mov.b32 %r2, {%h2, %h1};
    mov.b64 %d1, {%r1, %r2};
    mov.b64 {%r3, %r4}, %d1;
    mov.b64 {_, %r5}, %d1;
    sub.u32 %r0, %r4, %r3;
    xor.b32 %r6, %r5, %r4;
    add.u32 %r0, %r0, %r6;
""",
        np.full(32, 0x56781234 - 0x12345678),
    ),
    lanes(
        "generic addresses",
        """
    mov.b64 %d1, block;
    cvta.shared.u64 %d2, %d1;
    isspacep.shared %p1, %d2;
    isspacep.global %p2, %d2;
    cvta.to.shared.u64 %d3, %d2;
    mad.wide.u32 %d4, %r_tid, 4, %d2;
    st.b32 [%d4], %r_tid;
    mad.wide.u32 %d5, %r_tid, 4, %d3;
    ld.shared.b32 %r1, [%d5];
    selp.b32 %r2, 100, 0, %p1;
    selp.b32 %r3, 1000, 0, %p2;
    add.u32 %r0, %r1, %r2;
    add.u32 %r0, %r0, %r3;
""",
        LANE + 100,
        module=".shared .align 16 .b8 block[128];",
    ),
    lanes(
        "logic of three",
        """
    mov.b32 %r1, 0xF0F0F0F0;
    mov.b32 %r2, 0xCCCCCCCC;
    mov.b32 %r3, 0xAAAAAAAA;
    lop3.b32 %r4, %r1, %r2, %r3, 0x96;
    lop3.b32 %r5, %r1, %r2, %r3, 0x80;
    sub.u32 %r0, %r4, %r5;
""",
        np.full(32, 0x96969696 - 0x80808080),
    ),
    lanes("rank of a shared address", "    mov.b64 %d1, 64;\n    getctarank.u64 %r0, %d1;\n", np.zeros(32)),
    lanes(
        "cache policy",
        """
    createpolicy.fractional.L2::evict_first.b64 %d1;
    mov.b32 %r0, 1;
""",
        np.ones(32),
    ),
]

CARRIES = [
    lanes(
        "carries of 32 bits",
        """
    mov.b32 %r1, -1;
    add.cc.u32 %r2, %r1, 1;
    addc.cc.u32 %r3, %r1, 0;
    addc.u32 %r0, %r_tid, 0;
    sub.cc.u32 %r2, %r2, 1;
    subc.cc.u32 %r3, %r3, 0;
    subc.u32 %r0, %r0, 0;
""",
        LANE,
    ),
    lanes(
        "a carry out of a sum",
        """
    mov.b32 %r1, -1;
    add.cc.u32 %r2, %r1, 1;
    addc.u32 %r0, %r_tid, 0;
""",
        LANE + 1,
    ),
    lanes(
        "multiply and add with carry",
        """
    mov.b32 %r1, -1;
    mad.lo.cc.u32 %r2, %r1, %r1, %r1;
    madc.hi.u32 %r0, %r1, %r1, %r_tid;
""",
        (0xFFFFFFFF + LANE.astype(np.uint64)).astype(np.uint32),
    ),
]

MEMORY = [
    Program(
        "vectors and widths",
        at("a", 16)
        + """
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d0];
    ld.global.nc.L1::no_allocate.L2::128B.v2.b64 {%d2, %d3}, [%d0];
    ld.volatile.global.s8 %r5, [%d0+3];
    ld.acquire.gpu.global.b16 %h1, [%d0];
    cvt.u32.u16 %r6, %h1;
"""
        + at("b", 16)
        + """
    st.global.v4.b32 [%d0], {%r4, %r3, %r2, %r1};
"""
        + at("out", 16)
        + """
    st.global.v2.b64 [%d0], {%d3, %d2};
    st.release.gpu.global.b32 [%d0], %r5;
    st.global.b16 [%d0+4], %h1;
    st.global.wt.b8 [%d0+15], %h1;
""",
        {
            "b": np.arange(128, dtype=np.uint32).reshape(32, 4)[:, ::-1] * 0x01010101 + np.uint32(0),
            "out": np.array(
                [
                    [
                        ((4 * lane & 0xFF) ^ 0x80) - 0x80 & 0xFFFFFFFF,
                        (4 * lane + 3) * 0x01010000 | (4 * lane) * 0x0101,
                        (4 * lane) * 0x01010101,
                        (4 * lane) << 24 | (4 * lane + 1) * 0x010101,
                    ]
                    for lane in range(32)
                ],
                np.uint32,
            ),
        },
        {
            "a": np.arange(128, dtype=np.uint32).reshape(32, 4) * np.uint32(0x01010101),
            "b": np.zeros((32, 4), np.uint32),
            "out": np.zeros((32, 4), np.uint32),
        },
    ),
    lanes(
        "prefetches do nothing",
        """
    prefetch.global.L2 [%d_out];
    prefetchu.L1 [%d_out];
    mov.b64 %d1, map;
    prefetch.const.tensormap [%d1];
    discard.global.L2 [%d_out], 128;
    applypriority.global.L2::evict_normal [%d_out], 128;
    mov.b32 %r0, %r_tid;
""",
        LANE,
        module=".const .align 64 .b8 map[128];",
    ),
    Program(
        "registers of 128 bits",
        """
    .reg .b128 %q<4>;
"""
        + at("a", 16)
        + """
    ld.global.b128 %q1, [%d0];
    mov.b128 {%d1, %d2}, %q1;
    mov.b128 %q2, {%d2, %d1};
    mov.b128 %q3, %q2;
    mov.b128 {_, %d3}, %q3;
    mov.b128 {%d1, %d2}, %q3;
    mov.b128 {%d2, %d1}, %q3;
"""
        + at("out", 16)
        + """
    setp.lt.u32 %p1, %r_tid, 31;
    @%p1 st.global.b128 [%d0], %q3;
    @!%p1 st.global.v2.b64 [%d0], {%d3, %d1};
""",
        {
            "out": np.concatenate(
                [np.arange(128, dtype=np.uint32).reshape(32, 4)[:31, [2, 3, 0, 1]], [[124, 125, 124, 125]]]
            )
        },
        {"a": np.arange(128, dtype=np.uint32).reshape(32, 4), "out": np.zeros((32, 4), np.uint32)},
    ),
    lanes(
        "atomic sum of colliding lanes",
        """
    and.b32 %r1, %r_tid, 3;
    shl.b32 %r2, %r1, 2;
    mov.b32 %r3, 0;
    st.shared.b32 [%r2], %r3;
    bar.warp.sync -1;
    atom.shared.add.u32 %r0, [%r2], 1;
    red.relaxed.cta.shared.add.u32 [%r2], 100;
""",
        LANE // 4,
        shared=16,
    ),
    lanes(
        "atomic exchange and compare",
        """
    shl.b32 %r2, %r_tid, 2;
    st.shared.b32 [%r2], %r_tid;
    atom.shared.cas.b32 %r3, [%r2], 5, 77;
    atom.shared.exch.b32 %r0, [%r2], 1;
""",
        np.where(LANE == 5, 77, LANE),
        shared=128,
    ),
    lanes(
        "atomic order, logic and wrap",
        """
    shl.b32 %r2, %r_tid, 2;
    st.shared.b32 [%r2], %r_tid;
    atom.shared.max.s32 %r3, [%r2], 10;
    red.shared.min.u32 [%r2], 20;
    atom.shared.and.b32 %r3, [%r2], 0xFF;
    red.shared.xor.b32 [%r2], 1;
    atom.shared.inc.u32 %r3, [%r2], 20;
    red.shared.dec.u32 [%r2], 100;
    ld.shared.b32 %r0, [%r2];
""",
        np.where(LANE >= 20, 100, np.clip(LANE, 10, 20) ^ 1),
        shared=128,
    ),
    Program(
        "atomic floats",
        """
    atom.global.gpu.relaxed.add.f32 %r1, [%d_out], 0f3F800000;
    mov.b32 %r2, 0x3C003C00;
    atom.add.noftz.relaxed.gpu.global.f16x2 %r3, [%d_out+4], %r2;
    red.relaxed.gpu.global.add.v2.f32 [%d_out+8], {%r2, %r2};
    red.global.add.noftz.v2.f16x2 [%d_out+16], {%r2, %r2};
    atom.global.add.v2.f32 {%r4, %r5}, [%d_out+24], {%r2, %r2};
""",
        {
            "out": np.array(
                [0x42000000, 0x50005000, *[0x3E803C00] * 2, *[0x50005000] * 2, *[0x3E803C00] * 2], np.uint32
            )
        },
        {"out": np.zeros(8, np.uint32)},
    ),
    Program(
        "atomic vectors",
        """
    setp.ne.u32 %p1, %r_tid, 0;
    @%p1 ret;
    mov.b32 %r1, 0x3C003C00;
    mov.b32 %r2, 0x40004000;
    mov.b32 {%h1, %h2}, %r1;
    mov.b32 {%h3, %h4}, %r2;
    atom.global.v4.f32.add {%r4, %r5, %r6, %r7}, [%d_out], {%r1, %r1, %r2, %r2};
    red.global.add.v2.f32 [%d_out], {%r1, %r2};
    red.global.v2.f16.add.noftz [%d_out+16], {%h1, %h3};
    red.global.add.noftz.v8.f16 [%d_out+16], {%h1, %h1, %h1, %h1, %h3, %h3, %h3, %h3};
    red.global.min.noftz.v4.f16 [%d_out+16], {%h3, %h3, %h3, %h3};
    red.global.max.noftz.v4.bf16x2 [%d_out+32], {%r1, %r2, %r2, %r1};
    atom.global.min.noftz.v2.f16x2 {_, %r8}, [%d_out+32], {%r2, %r1};
    mov.b32 %r3, 0x3F803F80;
    red.relaxed.gpu.global.add.noftz.v4.bf16 [%d_out+48], {%h1, %h1, %h1, %h1};
    red.global.add.noftz.v2.bf16x2 [%d_out+56], {%r3, %r3};
    st.global.b32 [%d_out+48], %r8;
""",
        {
            "out": np.array(
                [
                    0x3C803C00,
                    0x4000C03C,
                    0x40004000,
                    0x40004000,
                    0x40004000,
                    0x3C003C00,
                    0x40004000,
                    0x40004000,
                    0x3C003C00,
                    0x3C003C00,
                    0x40004000,
                    0x3C003C00,
                    0x40004000,
                    0x3C003C00,
                    0x3F803F80,
                    0x3F803F80,
                ],
                np.uint32,
            )
        },
        {"out": np.zeros(16, np.uint32)},
    ),
]

COLLECTIVES = [
    lanes("butterfly", "    shfl.sync.bfly.b32 %r0, %r_tid, 5, 31, -1;\n", LANE ^ 5),
    lanes("up", "    shfl.sync.up.b32 %r0|%p1, %r_tid, 3, 0, -1;\n", np.where(LANE >= 3, LANE - 3, LANE)),
    lanes(
        "up within segments",
        "    shfl.sync.up.b32 %r0, %r_tid, 3, 0x1800, -1;\n",
        np.where(LANE % 8 >= 3, LANE - 3, LANE),
    ),
    lanes(
        "down", "    shfl.sync.down.b32 %r0|%p1, %r_tid, 3, 31, -1;\n", np.where(LANE < 29, LANE + 3, LANE)
    ),
    lanes("in range", "    shfl.sync.down.b32 %r1|%p1, %r_tid, 3, 31, -1;\n" + flags(), LANE < 29),
    lanes("index", "    shfl.sync.idx.b32 %r0, %r_tid, 7, 31, -1;\n", np.full(32, 7)),
    lanes("index within segments", "    shfl.sync.idx.b32 %r0, %r_tid, 7, 0x181F, -1;\n", LANE // 8 * 8 + 7),
    lanes("two warps", "    shfl.sync.idx.b32 %r0, %r_tid, 0, 31, -1;\n", np.repeat([0, 32], 32)),
    lanes(
        "votes",
        """
    and.b32 %r1, %r_tid, 1;
    setp.ne.b32 %p1, %r1, 0;
    vote.sync.ballot.b32 %r2, %p1, -1;
    vote.sync.any.pred %p2, %p1, -1;
    vote.sync.all.pred %p3, %p1, -1;
    vote.sync.uni.pred %p4, %p1, -1;
    selp.b32 %r3, 1, 0, %p2;
    selp.b32 %r4, 2, 0, %p3;
    selp.b32 %r5, 4, 0, %p4;
    sub.u32 %r0, %r2, 0xAAAAAAAA;
    add.u32 %r0, %r0, %r3;
    add.u32 %r0, %r0, %r4;
    add.u32 %r0, %r0, %r5;
""",
        np.ones(32),
    ),
    lanes(
        "match any",
        "    shr.u32 %r1, %r_tid, 3;\n    match.any.sync.b32 %r0, %r1, -1;\n",
        np.uint32(0xFF) << (LANE // 8 * 8),
    ),
    lanes("match all", "    match.all.sync.b32 %r0|%p1, %r_tid, -1;\n", np.zeros(32)),
    lanes(
        "match all equal",
        "    mov.b32 %r1, 3;\n    match.all.sync.b32 %r0|%p1, %r1, -1;\n",
        np.full(32, 0xFFFFFFFF),
    ),
    lanes("reduce a sum", "    redux.sync.add.u32 %r0, %r_tid, -1;\n", np.full(32, 496)),
    lanes(
        "reduce the least",
        "    sub.s32 %r1, %r_tid, 5;\n    redux.sync.min.s32 %r0, %r1, -1;\n",
        np.full(32, 0xFFFFFFFB),
    ),
    lanes("reduce bits", "    redux.sync.or.b32 %r0, %r_tid, -1;\n", np.full(32, 31)),
    lanes("elect", "    elect.sync %r1|%p1, -1;\n" + flags(), LANE == 0),
    lanes(
        "active lanes",
        """
    setp.lt.u32 %p1, %r_tid, 4;
    mov.b32 %r0, 0;
    @%p1 activemask.b32 %r0;
""",
        np.where(LANE < 4, 15, 0),
    ),
]

CONTROL = [
    lanes(
        "barrier forms",
        """
    bar.sync 0;
    barrier.sync 1;
    barrier.cta.sync.aligned 2, 64;
    bar.arrive 3, 128;
    bar.sync 3, 128;
    bar.warp.sync -1;
    setp.lt.u32 %p1, %r_tid, 40;
    bar.red.popc.u32 %r0, 4, %p1;
    bar.red.and.pred %p2, 5, %p1;
    barrier.cta.red.popc.aligned.u32 %r1, 4, %p1;
    barrier.cta.red.or.aligned.pred %p2, 5, %p1;
""".replace("red.popc.aligned", "red.aligned.popc").replace("red.or.aligned", "red.aligned.or"),
        np.full(64, 40),
    ),
    lanes(
        "a branch by an index",
        """
    and.b32 %r1, %r_tid, 1;
    mov.b32 %r0, 3;
    ways: .branchtargets $L_even, $L_odd;
    brx.idx %r1, ways;
$L_odd:
    mov.b32 %r0, 5;
$L_even:
    add.u32 %r0, %r0, 1;
""",
        np.where(LANE % 2, 6, 4),
    ),
    lanes(
        "fences, hints and ends",
        """
    membar.gl;
    fence.acq_rel.gpu;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async.shared::cta;
    fence.proxy.tensormap::generic.release.gpu;
    nanosleep.u32 100;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    setmaxnreg.inc.sync.aligned.u32 232;
    pmevent 1;
    mov.b32 %r0, %r_tid;
    setp.gt.u32 %p1, %r_tid, 100;
    @%p1 trap;
    @%p1 brkpt;
    bra.uni $L_on;
$L_on:
    @%p1 exit;
""",
        LANE,
    ),
    lanes(
        "a call",
        """
    { .param .b32 param0; .param .b32 retval0;
    st.param.b32 [param0], %r_tid;
    call.uni (retval0), twice, (param0);
    ld.param.b32 %r0, [retval0]; }
""",
        LANE * 2,
        module="""
.func (.param .b32 result) twice(.param .b32 value) {
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [value];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
""",
    ),
    Program(
        "a cluster",
        """
    mov.u32 %r1, %cluster_ctarank;
    mov.b32 %r3, 0;
    st.shared.b32 [%r3], %r1;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    xor.b32 %r2, %r1, 1;
    mapa.shared::cluster.u32 %r4, %r3, %r2;
    ld.shared::cluster.b32 %r0, [%r4];
    mov.u32 %r5, %ctaid.x;
"""
        + at("out", 4, index="%r5")
        + "    st.global.b32 [%d0], %r0;\n    barrier.cluster.arrive;\n    barrier.cluster.wait;\n",
        {"out": np.array([1, 0, 1, 0], np.uint32)},
        {"out": np.zeros(4, np.uint32)},
        shared=16,
        grid=(4,),
        cluster=(2, 1, 1),
    ),
]

PROGRAMS = [*MOVES, *CARRIES, *MEMORY, *COLLECTIVES, *CONTROL, *MMAS, *WMMA, *SPARSE, *ASYNCHRONOUS]
