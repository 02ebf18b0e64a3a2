"""Red zones, alignment, freed memory, generic addresses and the events of observers."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import kbuild.emulator
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import RED_ZONE, Heap
from tests.emulator.emulated import at, launch

OUT = {"out": np.zeros(32, np.uint32)}


def finding(body: str, **options) -> str:
    report = launch(body, OUT, **options)
    assert len(report.findings) == 1
    return str(report.findings[0])


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("    ld.global.b32 %r1, [%d_out+128];\n", "0 bytes after the end of argument 0 (128 bytes)"),
        ("    st.global.b32 [%d_out-4], %r1;\n", "4 bytes before argument 0 (128 bytes)"),
        ("    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d_out+128];\n", "16 bytes at global address"),
        ("    mov.b64 %d1, 0;\n    ld.global.b32 %r1, [%d1];\n", "4 bytes at global address 0x0"),
        ("    mov.b64 %d1, 0;\n    atom.global.add.u32 %r1, [%d1], 1;\n", "4 bytes at global address 0x0"),
        ("    ld.shared.b32 %r1, [64];\n", "shared address 0x40"),
        ("    ld.b32 %r1, [%d_out+4096];\n", "argument 0"),
        ("    mul.lo.u32 %r2, %r_tid, 4;\n    ld.shared.b32 %r1, [%r2];\n", "shared address 0x40"),
    ],
)
def test_accesses_outside_are_found(body: str, what: str) -> None:
    found = finding(body, shared=64)
    assert found.startswith("out-of-bounds") and what in found


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("    ld.global.b32 %r1, [%d_out+124];\n", "4 bytes at out[31], after the end of out (31 elements)"),
        (
            "    ld.global.b16 %h1, [%d_out+130];\n",
            "2 bytes at out[32], byte 2 of it, after the end of out (31 elements)",
        ),
        ("    ld.global.b32 %r1, [%d_out-4];\n", "4 bytes at out[-1], before out (31 elements)"),
        (
            "    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d_out+112];\n",
            "16 bytes at out[28], the last 4 of them after the end of out (31 elements)",
        ),
    ],
)
def test_arrays_with_names_are_reported_by_their_elements(body: str, what: str) -> None:
    report = launch(body, {"out": np.zeros(31, np.uint32)}, names=["out"])
    assert what in str(report.findings[0])


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d_out+16];\n",
        "st.global.v2.b64 [%d_out+16], {%d1, %d2};\n",
        "ld.v4.b32 {%r1, %r2, %r3, %r4}, [%d_out+16];\n",
    ],
)
@pytest.mark.parametrize("lanes", ["", "    setp.lt.u32 %p1, %r_tid, 5;\n    @%p1 "])
def test_accesses_that_begin_inside_and_end_outside_are_found(body: str, lanes: str) -> None:
    """An array of 31 bytes: only the last byte of the access lies outside."""
    report = launch(lanes + body, {"out": np.zeros(31, np.uint8)})
    assert [finding.kind for finding in report.findings] == ["out-of-bounds"]
    assert "16 bytes at global address" in str(report.findings[0])


def test_the_last_byte_of_shared_memory_is_watched() -> None:
    assert finding("    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [64];\n", shared=79).startswith(
        "out-of-bounds: 16 bytes"
    )
    assert not launch("    ld.shared.v2.b32 {%r1, %r2}, [64];\n", {}, shared=72).findings


@pytest.mark.parametrize(
    "body",
    [
        "    ld.global.b32 %r1, [%d_out+2];\n",
        "    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d_out+8];\n",
        "    st.shared.b64 [4], %d1;\n",
        "    red.global.add.u32 [%d_out+1], 1;\n",
        "    red.global.add.v4.f32 [%d_out+8], {%r1, %r2, %r3, %r4};\n",
        "    atom.global.add.noftz.v4.f16 {_, _, _, _}, [%d_out+4], {%h1, %h1, %h1, %h1};\n",
    ],
)
def test_misaligned_accesses_are_found(body: str) -> None:
    assert finding(body, shared=64).startswith("misaligned")


def test_masked_lanes_may_hold_any_address() -> None:
    body = """
    setp.lt.u32 %p1, %r_tid, 4;
    mul.wide.u32 %d1, %r_tid, 1000;
    selp.b64 %d2, 0, %d1, %p1;
    add.u64 %d2, %d2, %d_out;
    mov.b32 %r1, 0;
    @%p1 ld.global.b32 %r1, [%d2];
"""
    assert not launch(body, OUT).findings


def test_local_memory_is_each_threads_own() -> None:
    body = (
        """
    .local .align 16 .b8 frame[32];
    st.local.b32 [frame+4], %r_tid;
    mov.b64 %d1, frame;
    cvta.local.u64 %d2, %d1;
    ld.b32 %r0, [%d2+4];
"""
        + at("out", 4)
        + "    st.global.b32 [%d0], %r0;\n"
    )
    report = launch(body, {"out": np.zeros(64, np.uint32)}, threads=64, schedule="round-robin").check()
    np.testing.assert_array_equal(report.outputs[0], np.arange(64))
    assert finding("    .local .align 16 .b8 frame[16];\n    ld.local.b32 %r1, [frame+16];\n").startswith(
        "out-of-bounds"
    )
    assert finding("    .local .align 16 .b8 frame[16];\n    ld.local.b32 %r1, [frame-4];\n").startswith(
        "out-of-bounds"
    )


def test_constants_and_globals_have_their_first_values() -> None:
    module = ".const .align 4 .b32 table[3] = {7, 8, 9};\n.global .align 8 .u64 place = values;\n"
    module += ".global .b32 values[2] = {5, -1};\n"
    body = (
        """
    ld.const.b32 %r1, [table+8];
    ld.global.b64 %d1, [place];
    ld.global.b32 %r2, [%d1+4];
    add.u32 %r0, %r1, %r2;
"""
        + at("out", 4)
        + "    st.global.b32 [%d0], %r0;\n"
    )
    with pytest.raises(KeyError):
        launch(body, OUT, module=module.replace("values;", "missing;"))
    np.testing.assert_array_equal(launch(body, OUT, module=module).check().outputs[0], np.full(32, 8))


def test_fresh_shared_memory_and_registers_are_poison() -> None:
    body = (
        "    ld.shared.b32 %r0, [0];\n    and.b32 %r0, %r0, %r63;\n"
        + at("out", 4)
        + "    st.global.b32 [%d0], %r0;\n"
    )
    np.testing.assert_array_equal(launch(body, OUT, shared=16).check().outputs[0], np.full(32, 0xFFFFFFFF))


def test_the_heap_distinguishes_freed_memory() -> None:
    heap = Heap()
    first, second = heap.allocate(10, "first"), heap.allocate(20, "second", skew=16)
    assert first % 256 == 0 and second % 256 == 16 and second - first >= RED_ZONE
    heap.bytes(first, 10)[:] = 1
    heap.free(first)
    with pytest.raises(Fault, match="byte 0 of first"):
        heap.check(np.array([first - heap.base]), 1)
    with pytest.raises(Fault, match="not the start"):
        heap.free(second + 1)
    with pytest.raises(Fault, match=r"21 bytes at .* byte 0 of second .20 bytes"):
        heap.bytes(second, 21)


class Recorder:
    """Keeps the accesses that it is notified of."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def accessed(self, kind, space, offsets, size, lanes, data, site) -> None:
        stored = None if data is None else data.tolist()
        self.heard.append((kind, space.name, offsets.tolist(), size, lanes.tolist(), stored, site[0].first))


def test_observers_are_notified_of_every_access() -> None:
    recorder = Recorder()
    body = """
    setp.eq.u32 %p1, %r_tid, 3;
    mov.b32 %r1, 258;
    @%p1 st.shared.b32 [4], %r1;
    @%p1 ld.shared.b16 %h1, [4];
    @%p1 atom.shared.add.u32 %r2, [8], 1;
"""
    launch(body, OUT, shared=16, observers=[recorder]).check()
    assert recorder.heard == [
        ("store", "shared", [4], 4, [3], [[2, 1, 0, 0]], 0),
        ("load", "shared", [4], 2, [3], None, 0),
        ("atomic", "shared", [8], 4, [3], None, 0),
    ]


def test_the_emulator_knows_ptx_and_not_the_compiler() -> None:
    folder = Path(kbuild.emulator.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not name.startswith("kbuild") or name.startswith(
                    ("kbuild.emulator", "kbuild.errors")
                ), (file.name, name)
