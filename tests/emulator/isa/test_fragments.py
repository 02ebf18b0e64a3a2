"""Misuse of `wmma` and `mma.sp`, and what `wmma` does to memory."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator.isa.matrix.sparse import kept_numbers
from kbuild.emulator.ptx.model import PtxError
from tests.emulator.emulated import launch
from tests.emulator.isa.wmma_products import SPARSE, WMMA
from tests.emulator.race.races import findings

REGISTERS = "    .reg .b32 %x<16>;\n"
SUM = "{%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7}"


@pytest.mark.parametrize(
    ("numbers", "kind", "ordered", "fits"),
    [
        (0b0100, "f16", True, True),
        (0b1110, "f16", True, True),
        (0b0001, "f16", True, False),
        (0b0001, "f16", False, True),
        (0b0101, "f16", False, False),
        (0b1000, "tf32", False, False),
        (0b1110, "tf32", True, True),
    ],
)
def test_metadata_must_name_two_elements(numbers: int, kind: str, ordered: bool, fits: bool) -> None:
    words = np.full((1, 32), numbers * 0x11111111, np.uint32)
    depth = 8 if kind == "tf32" else 16
    if fits:
        assert (kept_numbers(words, kind, depth, 0, ordered) == [numbers & 3, numbers >> 2]).all()
    else:
        with pytest.raises(ValueError, match="the metadata hold"):
            kept_numbers(words, kind, depth, 0, ordered)


def test_metadata_of_a_kernel_are_checked() -> None:
    arrays = {name: np.zeros_like(array) for name, array in SPARSE[0].arrays.items()}
    (found,) = launch(SPARSE[0].body, arrays).findings
    assert found.kind == "sparse-metadata" and "0b0000 for a group of elements of 16 bits" in found.message


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("%r1, 0;", "%r1, 4;", "the selector 4 is not one of the 4 of the shape"),
        ("{%r10, %r11}", "{%r10}", "A of m16n8k16"),
    ],
)
def test_selectors_and_registers_must_fit(wrong: str, right: str, message: str) -> None:
    assert SPARSE[0].body.count(wrong) == 1
    with pytest.raises(PtxError, match=message):
        launch(SPARSE[0].body.replace(wrong, right), SPARSE[0].arrays)


def test_the_threads_of_a_warp_load_one_matrix() -> None:
    body = REGISTERS + "    mad.wide.u32 %d1, %r_tid, 32, %d_out;\n"
    body += f"    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {SUM}, [%d1];\n"
    (found,) = launch(body, {"out": np.zeros(4096, np.uint32)}).findings
    assert found.kind == "divergent-collective" and "different addresses of a matrix" in found.message
    with pytest.raises(PtxError, match="needs 8 registers, not 4"):
        launch(body.replace(SUM, "{%x0, %x1, %x2, %x3}"), {"out": np.zeros(4096, np.uint32)})


def test_a_matrix_must_lie_inside_and_be_ordered() -> None:
    body = REGISTERS + f"    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {SUM}, [%d_y], 16;\n"
    store = f"    wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d_y], {SUM}, 16;\n"
    assert [each.kind for each in launch(body, {"y": np.zeros(255, np.uint32)}).findings] == ["out-of-bounds"]
    assert not findings(body + store, threads=32, schedule="reverse")
    assert "race" in {each.kind for each in findings(body + store, threads=64, schedule="reverse")}


def test_programs_are_of_every_shape() -> None:
    shapes = {program.name.split()[-2] for program in WMMA}
    assert shapes == {"m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8k4", "m8n8k32", "m8n8k128"}
