"""Golden programs for asynchronous instructions: copies, mbarriers, tensor maps, wgmmas."""

from __future__ import annotations

import numpy as np

from tests.emulator.isa.golden_program import Program, at
from tests.emulator.isa.products import BITS, encode

LANE = np.arange(32, dtype=np.uint32)
WORDS = np.arange(64, dtype=np.uint32) + 1000
BUFFER = ".extern .shared .align 1024 .b8 buffer[];"
OUT = at("out", 4) + "    st.global.b32 [%d0], %r0;\n"
START = "    mov.b32 %r1, buffer;\n    setp.eq.u32 %p1, %r_tid, 0;\n"


def program(name: str, body: str, expected: np.ndarray, **options: object) -> Program:
    """A program that reads WORDS from `x` and leaves a u32 of each thread in %r0."""
    arrays = {"x": WORDS, "out": np.zeros(len(expected), np.uint32)}
    options = {"threads": len(expected), "shared": 1024, "module": BUFFER, **options}
    wanted = {"out": np.asarray(expected, np.uint32)}
    return Program(name, START + body + OUT, wanted, arrays, **options)  # type: ignore[arg-type]


def waiting(barrier: str, parity: str = "0", label: str = "wait") -> str:
    return f"""{label}:
    mbarrier.try_wait.parity.shared.b64 %p2, [{barrier}], {parity};
    @!%p2 bra {label};
"""


COPIES = [
    program(
        "copies of a thread",
        at("x", 8)
        + """
    mad.lo.u32 %r2, %r_tid, 16, %r1;
    cp.async.ca.shared.global [%r2], [%d0], 8;
    cp.async.commit_group;
    mov.b32 %r3, 2;
    cp.async.ca.shared.global.L2::128B [%r2+8], [%d0], 4, %r3;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.v2.b32 {%r4, %r5}, [%r2];
    cp.async.wait_all;
    ld.shared.b32 %r6, [%r2+8];
    add.u32 %r0, %r5, %r6;
""",
        WORDS[1::2] + (WORDS[::2] & 0xFFFF),
    ),
    program(
        "copies of some threads, zeros of the others",
        at("x", 4)
        + """
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    setp.ge.u32 %p2, %r_tid, 20;
    @%p2 mov.b64 %d0, 4;
    cp.async.ca.shared.global [%r2], [%d0], 4, %p2;
    cp.async.wait_all;
    ld.shared.b32 %r0, [%r2];
""",
        np.where(LANE < 20, WORDS[:32], 0),
    ),
    program(
        "copies that arrive at a barrier",
        at("x", 4)
        + """
    @%p1 mbarrier.init.shared.b64 [%r1], 32;
    bar.warp.sync -1;
    mad.lo.u32 %r2, %r_tid, 4, %r1;
    cp.async.ca.shared.global [%r2+16], [%d0], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];
"""
        + waiting("%r1")
        + """
    xor.b32 %r3, %r_tid, 5;
    mad.lo.u32 %r2, %r3, 4, %r1;
    ld.shared.b32 %r0, [%r2+16];
    @%p1 mbarrier.inval.shared.b64 [%r1];
""",
        WORDS[LANE ^ 5],
    ),
]

BARRIERS = [
    program(
        "a barrier in its phases",
        """
    @%p1 mbarrier.init.shared.b64 [%r1], 32;
    bar.warp.sync -1;
    @%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 96;
    mbarrier.test_wait.parity.shared.b64 %p3, [%r1], 1;
    mbarrier.arrive.shared.b64 %d1, [%r1];
    mbarrier.test_wait.shared.b64 %p4, [%r1], %d1;
    @%p1 mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1], 96;
    mbarrier.test_wait.shared.b64 %p5, [%r1], %d1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 0;
    @!%p1 mbarrier.arrive_drop.release.cta.shared.b64 %d2, [%r1];
"""
        + waiting("%r1", "1")
        + """
    @%p1 mbarrier.arrive.shared.b64 _, [%r1];
    mbarrier.test_wait.parity.shared.b64 %p6, [%r1], 0;
    selp.b32 %r2, 1, 0, %p3;
    selp.b32 %r3, 10, 0, %p4;
    selp.b32 %r4, 100, 0, %p5;
    selp.b32 %r5, 1000, 0, %p6;
    add.u32 %r0, %r2, %r3;
    add.u32 %r0, %r0, %r4;
    add.u32 %r0, %r0, %r5;
""",
        np.full(32, 1101),
    ),
]

LOAD = """
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    bar.warp.sync -1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+128], [%d_x], 256, [%r1];
""" + waiting("%r1")
FINISH = "    @%p1 cp.async.bulk.commit_group;\n    @%p1 cp.async.bulk.wait_group 0;\n    bar.warp.sync -1;\n"

BULK = [
    program(
        "bulk copies there and back",
        LOAD
        + """
    cp.async.bulk.prefetch.L2.global [%d_x], 256;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d_x], [%r1+256], 128;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d_x], [%r1+128], 128;
""".replace("    @%p1 cp.reduce", FINISH + "    @%p1 cp.reduce")
        + FINISH
        + at("x", 4)
        + "    ld.global.b32 %r0, [%d0];\n",
        WORDS[:32] + WORDS[32:],
    ),
    *(
        program(
            f"a bulk reduction of bits, {name}",
            LOAD
            + f"""
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}.b32 [%d_x], [%r1+256], 128;
"""
            + FINISH
            + at("x", 4)
            + "    ld.global.b32 %r0, [%d0];\n",
            combine(WORDS[:32], WORDS[32:]),
        )
        for name, combine in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor))
    ),
    program(
        "a bulk copy to another CTA",
        LOAD
        + """
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r3, %r2, 1;
    @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+8], 128;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 %r4, %r1, %r3;
    mad.lo.u32 %r6, %r2, 128, %r1;
    @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4+512], [%r6+128], 128, [%r4+8];
"""
        + waiting("%r1+8", label="second")
        + """
    mad.lo.u32 %r5, %r_tid, 4, %r1;
    ld.shared.b32 %r0, [%r5+512];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mad.lo.u32 %r_tid, %r2, 32, %r_tid;
""",
        np.concatenate([WORDS[32:], WORDS[:32]]),
        threads=32,
        grid=(2,),
        cluster=(2, 1, 1),
    ),
]


def field(name: str, kind: str, value: str, place: str = "shared::cta", address: str = "%r1") -> str:
    return f"    @%p1 tensormap.replace.tile.{name}.{place}.b1024.{kind} [{address}], {value};\n"


MAP = (
    "    mad.lo.u32 %r2, %r_tid, 4, %r1;\n    st.shared.b32 [%r2], 0;\n    bar.warp.sync -1;\n"
    + "".join(
        field(name, kind, value)
        for name, kind, value in (
            ("global_address", "b64", "%d_x"),
            ("rank", "b32", "1"),
            ("global_dim", "b32", "0, 8"),
            ("global_dim", "b32", "1, 7"),
            ("box_dim", "b32", "0, 4"),
            ("box_dim", "b32", "1, 8"),
            ("global_stride", "b64", "0, 32"),
            ("element_stride", "b32", "0, 1"),
            ("element_stride", "b32", "1, 1"),
            ("elemtype", "b32", "2"),
            ("interleave_layout", "b32", "0"),
            ("fill_mode", "b32", "0"),
        )
    )
    + """
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d_map], [%r1], 128;
"""
    + field("swizzle_mode", "b32", "0", "global", "%d_map")
    + """
    bar.warp.sync -1;
    fence.proxy.tensormap::generic.acquire.gpu [%d_map], 128;
    mov.b32 %r3, 4;
    mov.b32 %r4, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    bar.warp.sync -1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
    @%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d_map, {%r3, %r4}];
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1+128], [%d_map, {%r3, %r4}], [%r1];
"""
    + waiting("%r1")
)
BOX = np.zeros(64, np.uint32).reshape(8, 8)
BOX[:7] = WORDS.reshape(8, 8)[:7]
SHIFTED, SUM = WORDS.reshape(8, 8).copy(), WORDS.reshape(8, 8).copy()
SHIFTED[:7, :4] = BOX[:7, 4:]
SUM[:7, 4:] *= 2


def tensor_program(name: str, body: str, expected: dict[str, np.ndarray]) -> Program:
    arrays = {"x": WORDS, "map": np.zeros(128, np.uint8), "out": np.zeros(32, np.uint32)}
    return Program(name, START + MAP + body + FINISH + OUT, expected, arrays, shared=512, module=BUFFER)


READ = "    mad.lo.u32 %r2, %r_tid, 4, %r1;\n    ld.shared.b32 %r0, [%r2+128];\n"
TENSORS = [
    tensor_program(
        "a box of an array",
        READ + "    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
        " [%d_map, {%r4, %r4}], [%r1+128];\n",
        {"out": BOX[:, 4:].ravel(), "x": SHIFTED.ravel()},
    ),
    tensor_program(
        "a box added to an array",
        READ + "    @%p1 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
        " [%d_map, {%r3, %r4}], [%r1+128];\n",
        {"x": SUM.ravel()},
    ),
]


def warpgroup_mma(name: str) -> Program:
    """One `wgmma.mma_async` with N = 8 whose operands are unswizzled cores of 8 rows of 16 bytes."""
    _, _, _, _, shape, kind_d, *rest = name.split(".")
    kind_a, kind_b = rest[-2:]
    random, depth = np.random.default_rng(len(name)), int(shape.split("k")[1])
    low = -3 if kind_a[0] in "sfbt" else 0
    a, b = random.integers(low, 4, (64, depth)), random.integers(0, 4, (8, depth))
    per_chunk = 128 // BITS[kind_a]
    data = np.zeros((64 + 8) * depth, f"u{BITS[kind_a] // 8}")
    for matrix, kind, base in ((a, kind_a, 0), (b, kind_b, 64 * depth)):
        for row in range(len(matrix)):
            for k in range(depth):
                place = k // per_chunk * len(matrix) * per_chunk + row * per_chunk + k % per_chunk
                data[base + place] = encode(int(matrix[row, k]), kind)
    registers = 2 if kind_d == "f16" else 4
    d = "{" + ", ".join(f"%r{10 + i}" for i in range(registers)) + "}"
    count = 0 if kind_d == "s32" else 4 if BITS[kind_a] == 16 else 2
    ending = "".join(f", {value}" for value in (1, 1, 0, 0)[:count])
    body = (
        START
        + """
    mov.b32 %r2, %r_tid;
fill:
    mad.wide.u32 %d1, %r2, 4, %d_tiles;
    ld.global.b32 %r3, [%d1];
    mad.lo.u32 %r4, %r2, 4, %r1;
    st.shared.b32 [%r4], %r3;
    add.u32 %r2, %r2, 128;
    setp.lt.u32 %p2, %r2, 576;
    @%p2 bra fill;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    cvt.u64.u32 %d2, %r1;
    shr.u64 %d2, %d2, 4;
    add.u64 %d3, %d2, 0x0000000800400000;
    add.u64 %d4, %d2, 0x0000000800080080;
    wgmma.fence.sync.aligned;
"""
    )
    body += f"    {name} {d}, %d3, %d4, 0{ending};\n"
    body += "    wgmma.commit_group.sync.aligned;\n    wgmma.wait_group.sync.aligned 0;\n"
    for i in range(registers):
        body += at("out", 4 * registers) + f"    st.global.b32 [%d0+{4 * i}], %r{10 + i};\n"
    mma, lane = a @ b.T, np.arange(128)
    row, column = 16 * (lane // 32) + lane % 32 // 4, 2 * (lane % 4)
    dtype = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[kind_d]
    out = np.stack([mma[row + 8 * half, column + e] for half in range(2) for e in range(2)], 1).astype(dtype)
    arrays = {"tiles": data, "out": np.zeros_like(out)}
    return Program(name, body, {"out": out}, arrays, threads=128, shared=2304, module=BUFFER)


WARPGROUPS = [
    warpgroup_mma("wgmma.mma_async.sync.aligned." + rest)
    for rest in (
        "m64n8k16.f32.f16.f16",
        "m64n8k16.f16.f16.f16",
        "m64n8k16.f32.bf16.bf16",
        "m64n8k8.f32.tf32.tf32",
        "m64n8k32.f32.e4m3.e5m2",
        "m64n8k32.f16.e5m2.e5m2",
        "m64n8k32.s32.s8.u8",
        "m64n8k32.s32.satfinite.u8.u8",
    )
]

REMOTE = [
    program(
        "arrivals that do not complete a phase",
        """
    @%p1 mbarrier.init.shared.b64 [%r1], 34;
    bar.warp.sync -1;
    mbarrier.arrive.noComplete.release.cta.shared.b64 %d1, [%r1], 1;
    @%p1 mbarrier.arrive_drop.noComplete.shared::cta.b64 %d1, [%r1], 1;
    mbarrier.test_wait.parity.shared.b64 %p3, [%r1], 0;
    bar.warp.sync -1;
    @%p1 mbarrier.arrive.shared.b64 _, [%r1];
    mbarrier.test_wait.parity.shared.b64 %p4, [%r1], 0;
    selp.b32 %r0, 10, 0, %p3;
    selp.b32 %r2, 1, 0, %p4;
    add.u32 %r0, %r0, %r2;
""",
        np.ones(32),
    ),
    program(
        "stores to the other CTA of a cluster",
        """
    @%p1 mbarrier.init.shared.b64 [%r1+512], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+512], 528;
    mov.u32 %r2, %cluster_ctarank;
    xor.b32 %r3, %r2, 1;
    mapa.shared::cluster.u32 %r4, %r1, %r3;
    mad.lo.u32 %r5, %r_tid, 16, %r4;
    mad.lo.u32 %r6, %r2, 1000, %r_tid;
    mov.b64 %d1, {%r6, %r_tid};
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r5], {%r6, %r_tid}, [%r4+512];
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%r5+8], %d1, [%r4+512];
    @%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4+528], {%r3, %r3, %r3, %r3}, [%r4+512];
"""
        + waiting("%r1+512")
        + """
    mad.lo.u32 %r7, %r_tid, 16, %r1;
    ld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [%r7];
    ld.shared.b32 %r12, [%r1+540];
    mad.lo.u32 %r0, %r11, 10000, %r8;
    sub.u32 %r9, %r10, %r8;
    mad.lo.u32 %r9, %r12, 100000000, %r9;
    add.u32 %r0, %r0, %r9;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r_tid, %r2, 32, %r_tid;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
""",
        np.concatenate([1000 + 10001 * LANE, 100000000 + 10001 * LANE]),
        threads=32,
        grid=(2,),
        cluster=(2, 1, 1),
    ),
]

ASYNCHRONOUS = [*COPIES, *BARRIERS, *BULK, *TENSORS, *WARPGROUPS, *REMOTE]
