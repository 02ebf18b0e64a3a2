"""Boxes of tensor maps in kernels: copied both ways, rounded, and with maps that the kernel makes."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator.async_ops import TensorMap, timing_named
from kbuild.emulator.engine.launch import Launch
from kbuild.emulator.engine.memory import Heap
from kbuild.emulator.engine.program import load
from kbuild.emulator.engine.schedule import schedule_named
from tests.emulator.emulated import HEADER, REGISTERS
from tests.emulator.engine.asynchronous import BUFFER, both


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
"""f32 loaded by TMA with a map for tf32: ties go to even, subnormal numbers stay."""


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
