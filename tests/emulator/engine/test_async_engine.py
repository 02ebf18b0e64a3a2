"""Asynchronous instructions in kernels: right for every timing and schedule, and what is missing shows."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator.async_ops import TensorMap, timing_named
from kbuild.emulator.engine.findings import EmulationError
from kbuild.emulator.engine.launch import Launch, Report, run
from kbuild.emulator.engine.memory import Heap
from kbuild.emulator.engine.program import load
from kbuild.emulator.engine.schedule import schedule_named
from kbuild.emulator.isa import matrix as tensor
from tests.emulator.emulated import HEADER, REGISTERS, at, launch

TIMINGS = ["early", "late", "random(1)", "random(2)"]
SCHEDULES = ["lockstep", "round-robin", "reverse", "random(3)"]
BUFFER = ".extern .shared .align 1024 .b8 buffer[];"


def both(function):
    """Every schedule with every timing."""
    return pytest.mark.parametrize("schedule", SCHEDULES)(
        pytest.mark.parametrize("timing", TIMINGS)(function)
    )


# cp.async: thread i copies 16 bytes, and its neighbour (in another warp) reads them.
COPY = (
    at("x", 16)
    + """
    mov.b32 %r1, buffer;
    mad.lo.u32 %r2, %r_tid, 16, %r1;
    cp.async.cg.shared.global [%r2], [%d0], 16;
    cp.async.commit_group;
    WAIT
    BARRIER
    add.u32 %r3, %r_tid, 32;
    and.b32 %r3, %r3, 63;
    mad.lo.u32 %r4, %r3, 16, %r1;
    ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4];
"""
    + at("y", 16)
    + "    st.global.v4.b32 [%d0], {%r5, %r6, %r7, %r8};\n"
)


def copied(wait: str, barrier: str, **options) -> np.ndarray:
    x = np.arange(256, dtype=np.uint32)
    body = COPY.replace("WAIT", wait).replace("BARRIER", barrier)
    report = launch(
        body, {"x": x, "y": np.zeros_like(x)}, module=BUFFER, threads=64, shared=1024, **options
    ).check()
    assert report.outputs[1] is not None
    return report.outputs[1] - np.roll(x, -128)


@both
def test_copies_arrive(timing: str, schedule: str) -> None:
    assert not copied("cp.async.wait_group 0;", "bar.sync 0;", timing=timing, schedule=schedule).any()


def test_a_missing_wait_shows_when_copies_are_late() -> None:
    assert not copied("", "bar.sync 0;", timing="early").any()
    assert copied("", "bar.sync 0;", timing="late").any()
    assert copied("cp.async.wait_group 1;", "bar.sync 0;", timing="late").any()
    assert copied("cp.async.wait_group 0;", "", schedule="reverse").any()


# Bulk copies with an mbarrier: one thread loads, all wait, double the values, one thread stores.
BULK = """
    mov.b32 %r1, buffer;
    add.u32 %r2, %r1, 4096;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.b32 %r9, 0;
again:
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], BYTES;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d_x], 1024, [%r2];
LOOP:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], %r9;
    @!%p2 bra LOOP;
    mad.lo.u32 %r3, %r_tid, 8, %r1;
    ld.shared.v2.b32 {%r4, %r5}, [%r3];
    add.u32 %r4, %r4, %r4;
    add.u32 %r5, %r5, %r5;
    st.shared.v2.b32 [%r3], {%r4, %r5};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%d_y], [%r1], 1024;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    bar.sync 0;
    xor.b32 %r9, %r9, 1;
    setp.ne.u32 %p3, %r9, 0;
    @%p3 bra again;
"""


def bulk(body: str = BULK, size: int = 1024, **options) -> Report:
    x = np.arange(256, dtype=np.uint32)
    return launch(
        body.replace("BYTES", str(size)),
        {"x": x, "y": np.zeros_like(x)},
        module=BUFFER,
        threads=128,
        shared=4104,
        **options,
    )


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


# Tensor copies


def run_with_maps(
    body: str,
    maps: dict[str, TensorMap],
    heap: Heap,
    threads: int,
    shared: int,
    pointers: dict[str, int] | None = None,
    **options: str,
) -> None:
    """Run a body whose parameters are tensor maps, at `%d_NAME`, and addresses."""
    pointers = pointers or {}
    parameters = [f".param .align 64 .b8 {name}[128]" for name in maps] + [
        f".param .u64 {name}" for name in pointers
    ]
    starts = "".join(f"    .reg .b64 %d_{name};\n" for name in (*maps, *pointers))
    starts += "".join(
        f"    mov.b64 %d_{name}, {name};\n    cvta.param.u64 %d_{name}, %d_{name};\n" for name in maps
    )
    starts += "".join(f"    ld.param.b64 %d_{name}, [{name}];\n" for name in pointers)
    text = f"""{HEADER}{BUFFER}
.visible .entry test({", ".join(parameters)})
{{{REGISTERS}{starts}    .reg .b32 %r_tid;
    mov.u32 %r_tid, %tid.x;
{body}
    ret;
}}
"""
    arguments = [value.encode() for value in maps.values()] + list(pointers.values())
    program = Launch(
        load(text),
        heap,
        arguments,
        (1,),
        threads,
        shared,
        schedule_named(options.get("schedule", "lockstep")),
    )
    program.timing = timing_named(options.get("timing", "early"))
    findings = program.run()
    assert not findings, findings[0]


TENSOR_COPY = """
    mov.b32 %r1, buffer;
    add.u32 %r2, %r1, 8192;
    setp.eq.u32 %p1, %r_tid, 0;
    @%p1 mbarrier.init.shared.b64 [%r2], 1;
    bar.sync 0;
    mov.b32 %r3, 40;
    mov.b32 %r4, -2;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 2048;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [%d_source, {%r3, %r4}], [%r2];
wait:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
    @!%p2 bra wait;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d_target, {%r3, %r4}], [%r1];
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;
"""


@both
def test_a_box_with_parts_outside_goes_there_and_back(timing: str, schedule: str) -> None:
    heap = Heap()
    data = np.arange(20 * 100, dtype=np.float32).reshape(20, 100)
    addresses = [heap.allocate(data.nbytes) for _ in range(2)]
    heap.bytes(addresses[0], data.nbytes)[:] = data.view(np.uint8).ravel()
    heap.bytes(addresses[1], data.nbytes)[:] = 0
    maps = {
        name: TensorMap(address, "f32", (70, 20), (400,), (32, 16), (1, 1), 3)
        for name, address in zip(("source", "target"), addresses)
    }
    run_with_maps(TENSOR_COPY, maps, heap, 64, 8200, timing=timing, schedule=schedule)
    got = heap.bytes(addresses[1], data.nbytes).view(np.float32).reshape(20, 100)
    wanted = np.zeros_like(data)
    wanted[:14, 40:70] = data[:14, 40:70]
    assert (got == wanted).all()


ROUNDED_ON_AN_H200 = """
    00000000>00000000 80000000>80000000 00000001>00000000 00000fff>00000000 00001000>00000000 00001001>00002000 00001fff>00002000
    00003000>00004000 007ff000>00800000 007fffff>00800000 80001000>80000000 807ff000>80800000 3f800fff>3f800000 3f801000>3f800000
    3f801001>3f802000 3f803000>3f804000 3f805000>3f804000 bf801000>bf800000 bf803000>bf804000 7f7fefff>7f7fe000 7f7ff000>7f800000
    7f7fffff>7f800000 7f800000>7f800000 ff800000>ff800000 7f800001>7fffe000 7f802000>7fffe000 7fc00000>7fffe000 7fc01000>7fffe000
    7fffffff>7fffe000 ff801000>7fffe000"""
"""What the copy engine makes of f32 with a map for tf32: ties go to even, subnormal numbers stay."""


def test_a_map_for_tf32_rounds_what_it_loads() -> None:
    pairs = np.array(
        [[int(bits, 16) for bits in pair.split(">")] for pair in ROUNDED_ON_AN_H200.split()], np.uint32
    )
    heap = Heap()
    data = np.zeros((20, 100), np.uint32)
    data[0, 40:70] = pairs[:, 0]
    addresses = [heap.allocate(data.nbytes) for _ in range(2)]
    heap.bytes(addresses[0], data.nbytes)[:] = data.view(np.uint8).ravel()
    maps = {
        name: TensorMap(address, element, (70, 20), (400,), (32, 16), (1, 1), 3)
        for name, address, element in zip(("source", "target"), addresses, ("tf32", "f32"))
    }
    run_with_maps(TENSOR_COPY, maps, heap, 64, 8200)
    got = heap.bytes(addresses[1], data.nbytes).view(np.uint32).reshape(20, 100)[0, 40:70]
    np.testing.assert_array_equal(got, pairs[:, 1])


def test_a_map_made_by_the_kernel() -> None:
    """Fields set one by one in shared memory, published to global memory, and used."""
    heap = Heap()
    data = np.arange(16 * 64, dtype=np.float16).reshape(16, 64)
    source, target, scratch = heap.allocate(data.nbytes), heap.allocate(data.nbytes), heap.allocate(256)
    heap.bytes(source, data.nbytes)[:] = data.view(np.uint8).ravel()

    def made(register: str, slot: int) -> str:
        fields = [
            ("global_address", "b64", register),
            ("rank", "b32", "1"),
            ("box_dim", "b32", "0, 64"),
            ("box_dim", "b32", "1, 16"),
            ("global_dim", "b32", "0, 64"),
            ("global_dim", "b32", "1, 16"),
            ("global_stride", "b64", "0, 128"),
            ("element_stride", "b32", "0, 1"),
            ("element_stride", "b32", "1, 1"),
            ("elemtype", "b32", "6"),
            ("interleave_layout", "b32", "0"),
            ("swizzle_mode", "b32", "3"),
            ("fill_mode", "b32", "0"),
        ]
        text = "    mad.lo.u32 %r5, %r_tid, 4, %r1;\n    st.shared.b32 [%r5], 0;\n    bar.warp.sync -1;\n"
        for field, kind, value in fields:
            text += f"    @%p1 tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%r1], {value};\n"
        return (
            text
            + f"""    bar.warp.sync -1;
    add.u64 %d1{slot}, %d_scratch, {128 * slot};
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1{slot}], [%r1], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%d1{slot}], 128;
"""
        )

    body = TENSOR_COPY.replace("%d_source, {%r3, %r4}", "%d10, {%r3, %r3}").replace(
        "%d_target, {%r3, %r4}", "%d11, {%r3, %r3}"
    )
    body = body.replace("mov.b32 %r3, 40;", "mov.b32 %r3, 0;")
    setup = "    mov.b32 %r1, buffer;\n    setp.eq.u32 %p1, %r_tid, 0;\n"
    run_with_maps(
        setup + made("%d_source", 0) + made("%d_target", 1) + body,
        {},
        heap,
        32,
        8200,
        {"source": source, "target": target, "scratch": scratch},
    )
    assert (heap.bytes(target, data.nbytes).view(np.float16).reshape(16, 64) == data).all()


# Products of warpgroups


def product_kernel(
    columns: int, steps: int, registers: bool, wait: str = "wgmma.wait_group.sync.aligned 0;"
) -> str:
    """D = A B^T for halves A [64, 16 * steps] (in shared memory, or its fragments in registers) and B
    [columns, 16 * steps]."""
    d = ", ".join(f"%f{i}" for i in range(columns // 2))
    text = f"    .reg .f32 %f<{columns // 2}>;\n    .reg .b32 %a<{4 * steps}>;\n"
    text += """
    mov.b32 %r1, buffer;
    mov.b32 %r2, %r_tid;
fill:
    mad.wide.u32 %d1, %r2, 4, %d_tiles;
    ld.global.b32 %r3, [%d1];
    mad.lo.u32 %r4, %r2, 4, %r1;
    st.shared.b32 [%r4], %r3;
    add.u32 %r2, %r2, 128;
    setp.lt.u32 %p1, %r2, WORDS;
    @%p1 bra fill;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    cvt.u64.u32 %d2, %r1;
    shr.u64 %d2, %d2, 4;
    add.u64 %d3, %d2, DESCRIPTOR;
    add.u64 %d4, %d3, 512;
""".replace("WORDS", str((64 + columns) * 32)).replace("DESCRIPTOR", hex(0x4000004000000000))
    if registers:
        for i in range(4 * steps):
            text += at("fragments", 4 * 4 * steps) + f"    ld.global.b32 %a{i}, [%d0+{4 * i}];\n"
    text += "    wgmma.fence.sync.aligned;\n"
    immediates = "1, 1, 0" if registers else "1, 1, 0, 0"
    for step in range(steps):
        a = "{" + ", ".join(f"%a{4 * step + i}" for i in range(4)) + "}" if registers else "%d3"
        text += f"    setp.ne.u32 %p2, {step}, 0;\n"
        text += f"    wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{d}}}, {a}, %d4, %p2, {immediates};\n"
        text += "    add.u64 %d3, %d3, 2;\n    add.u64 %d4, %d4, 2;\n"
    text += f"    wgmma.commit_group.sync.aligned;\n    {wait}\n"
    for i in range(columns // 2):
        text += at("out", columns * 2) + f"    st.global.f32 [%d0+{4 * i}], %f{i};\n"
    return text


def tile(matrix: np.ndarray) -> np.ndarray:
    """Bytes of a K-major tile with rows of 128 bytes, swizzled."""
    data = np.zeros(matrix.nbytes, np.uint8)
    data[tensor.swizzle(np.arange(matrix.nbytes), 128)] = matrix.view(np.uint8).ravel()
    return data


def run_product(text: str, columns: int, steps: int, **options: str) -> tuple[Report, np.ndarray]:
    random = np.random.default_rng(7)
    a, b = (random.integers(-4, 5, (rows, 64)).astype(np.float16) for rows in (64, columns))
    lane = np.arange(128)
    warp, g, t = lane // 32, lane % 32 // 4, lane % 4
    fragments = np.zeros((128, steps, 4, 2), np.float16)
    for step in range(steps):
        for r in range(4):
            for h in range(2):
                fragments[:, step, r, h] = a[
                    16 * warp + g + 8 * (r & 1), 16 * step + 2 * t + h + 8 * (r >> 1)
                ]
    arrays = {
        "tiles": np.concatenate([tile(a), tile(b)]),
        "fragments": fragments,
        "out": np.zeros((128, columns // 2), np.float32),
    }
    report = launch(text, arrays, module=BUFFER, threads=128, shared=(64 + columns) * 128, **options)
    product = a[:, : 16 * steps].astype(float) @ b[:, : 16 * steps].T.astype(float)
    i = np.arange(columns // 2)
    rows = 16 * warp[:, None] + g[:, None] + 8 * (i >> 1 & 1)
    return report, product[rows, 8 * (i >> 2) + 2 * t[:, None] + (i & 1)]


@pytest.mark.parametrize("registers", [False, True], ids=["memory", "registers"])
@both
def test_products_of_a_warpgroup(timing: str, schedule: str, registers: bool) -> None:
    report, wanted = run_product(product_kernel(16, 4, registers), 16, 4, timing=timing, schedule=schedule)
    assert (report.check().outputs[2] == wanted).all()


def test_products_that_nobody_waits_for_show() -> None:
    for wait in ("", "wgmma.wait_group.sync.aligned 1;"):
        text = product_kernel(8, 2, False, wait)
        report, wanted = run_product(text, 8, 2, timing="late")
        assert (report.outputs[2] != wanted).any()
    report, wanted = run_product(
        product_kernel(8, 2, False).replace("    wgmma.fence.sync.aligned;\n", ""), 8, 2
    )
    assert report.findings[0].kind == "wgmma-registers"


def test_products_of_part_of_a_warpgroup_are_refused() -> None:
    text = product_kernel(8, 1, False).replace(
        "    wgmma.mma_async", "    setp.lt.u32 %p5, %r_tid, 96;\n    @%p5 wgmma.mma_async"
    )
    for schedule in SCHEDULES:
        report, _ = run_product(text, 8, 1, schedule=schedule)
        assert report.findings[0].kind == "wgmma-divergent"
    text = product_kernel(8, 1, False).replace("0x4000004000000000", "0x4002004000000000")
    assert run_product(text, 8, 1)[0].findings[0].kind == "wgmma-descriptor"


def test_multicast_and_arrivals_in_another_cta() -> None:
    """The first of two CTAs loads a tile into both; the second tells the first when it is done."""
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


class Listener:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []
        self.touched: list[str] = []

    def accessed(self, kind, space, offsets, size, lanes, data, site) -> None:
        self.touched.append(f"{kind} {space.name} by {site[1].opcode}")

    def issued(self, operation) -> None:
        bytes_read, bytes_written = (
            sum(len(e.offsets) * e.size for e in extents) for extents in (operation.reads, operation.writes)
        )
        self.heard.append(("issued", operation.kind, bytes_read, bytes_written))

    def awaited(self, operation, threads, only_reads, site) -> None:
        self.heard.append(("awaited", operation.kind, len(threads), only_reads))

    def arrived(self, barrier, phase, site, operation) -> None:
        self.heard.append(("arrived", barrier[1], phase, operation.kind if operation else None))

    def passed(self, barrier, phase, site) -> None:
        self.heard.append(("passed", barrier[1], phase, len(site[2])))


@pytest.mark.parametrize("timing", ["early", "late"])
def test_observers_hear_of_issues_waits_and_phases(timing: str) -> None:
    listener = Listener()
    bulk(timing=timing, schedule="round-robin", observers=[listener]).check()
    loads = [("issued", "load", 1024, 1024), ("arrived", 4096, 0, "load")]
    assert [event for event in listener.heard if event[1] in ("load",) or event[-1] == "load"][:2] == loads
    assert (
        listener.heard.count(("passed", 4096, 0, 32)) == 4
        and listener.heard.count(("passed", 4096, 1, 32)) == 4
    )
    assert listener.heard.count(("arrived", 4096, 0, None)) == 1
    stores = [event for event in listener.heard if event[1] == "store"]
    assert stores == [("issued", "store", 1024, 1024), ("awaited", "store", 1, True)] * 2
    assert {"load global by cp", "store shared by cp", "load shared by cp", "store global by cp"} <= set(
        listener.touched
    )

    listener = Listener()
    run_product(product_kernel(8, 2, False), 8, 2, timing=timing, schedule="reverse", observers=[listener])
    assert listener.heard.count(("issued", "product", 16 * 32 + 8 * 32, 0)) == 8
    assert listener.heard.count(("awaited", "product", 32, False)) == 8

    listener = Listener()
    copied("cp.async.wait_group 0;", "bar.sync 0;", timing=timing, schedule="reverse", observers=[listener])
    assert listener.heard == [("issued", "copy", 512, 512), ("awaited", "copy", 32, False)] * 2


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


@pytest.mark.parametrize("place", ["[%r1], [%d_source, {%r3, %r4}]", "[%d_target, {%r3, %r4}], [%r1]"])
def test_a_box_is_copied_from_whole_units_on(place: str) -> None:
    """To shared memory as well as from there."""
    heap = Heap()
    address = heap.allocate(8000)
    maps = {
        name: TensorMap(address, "f32", (70, 20), (400,), (32, 16), (1, 1), 3)
        for name in ("source", "target")
    }
    assert place in TENSOR_COPY
    body = TENSOR_COPY.replace(place, place.replace("%r3", "%r5"))
    body = body.replace("mov.b32 %r3, 40;", "mov.b32 %r3, 40; mov.b32 %r5, 41;")
    with pytest.raises(AssertionError, match="element 41 of its rows"):
        run_with_maps(body, maps, heap, 64, 8200)
