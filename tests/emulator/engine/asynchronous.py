"""Kernels with asynchronous copies and MMAs, and every timing and schedule to run them under."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbuild.emulator.engine.launch import Report
from kbuild.emulator.isa import matrix as tensor
from tests.emulator.emulated import at, launch

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


def wgmma_kernel(
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


def run_wgmma(text: str, columns: int, steps: int, **options: Any) -> tuple[Report, np.ndarray]:
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
    exact = a[:, : 16 * steps].astype(float) @ b[:, : 16 * steps].T.astype(float)
    i = np.arange(columns // 2)
    rows = 16 * warp[:, None] + g[:, None] + 8 * (i >> 1 & 1)
    return report, exact[rows, 8 * (i >> 2) + 2 * t[:, None] + (i & 1)]
