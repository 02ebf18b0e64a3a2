"""Tensor maps that kernels make: where, of what, and in which order with the copies that use them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from zoo import CASES, Case

import kbuild
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.lower.memory import own_maps
from kbuild.compiler.ops.control import For, If, While
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal
from kbuild.compiler.ops.nvidia import (
    AcquireMaps,
    AsyncTmaCopyGlobalToLocal,
    ClaimMaps,
    MakeTensorMap,
    ReleaseMaps,
)
from kbuild.emulator import Report
from kbuild.emulator.async_ops.tensor_map import ELEMENTS, TensorMap, replace
from kbuild.tensor_map import device_element, element_type
from tests.emulator.artifacts import emulate, outputs_of
from tests.zoo.case import KERNELS

CASE, STORING = CASES["grouped"], CASES["double_batches"]
SOURCE = f"{KERNELS / 'descriptors.py'}"
TILES = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 64}


def artifact_of(stop: str, case: Case = CASE) -> kbuild.Artifact:
    """A case of the zoo: the grouped dots, or another one."""
    signature = case.signature(case.make(np.random.default_rng(0)))
    options = case.options("sm_90")
    return kbuild.compile(
        case.source,
        signature=signature,
        constexprs=case.constexprs,
        target="sm_90",
        options=options,
        stop=stop,
    )


def kernel_of(source: str, signature: dict[str, str], **constexprs: Any) -> tuple[Func, tuple[str, ...]]:
    """A kernel at the end of the passes, and the notes on its loads."""
    artifact = kbuild.compile(
        source, signature=signature, constexprs=constexprs, target="sm_90", stop="ttgir"
    )
    return parse_module(artifact.asm["ttgir"]).kernel, artifact.metadata.tma


def test_maps_are_made_before_the_loop_that_uses_them_again() -> None:
    artifact = artifact_of("ttgir")
    kernel = parse_module(artifact.asm["ttgir"]).kernel
    ops = list(kernel.body.walk())
    (claim,) = (op for op in ops if isinstance(op, ClaimMaps))
    (release,) = (op for op in ops if isinstance(op, ReleaseMaps))
    makes = [op for op in ops if isinstance(op, MakeTensorMap)]
    assert [make.number for make in makes] == [0, 1] and claim.maps == 2
    assert claim.parent is release.parent is kernel.body and isinstance(claim.next, For)
    (acquire,) = (op for op in ops if isinstance(op, AcquireMaps))
    assert isinstance(acquire.parent_op, If) and isinstance(acquire.next, While)
    assert acquire.maps == tuple(make.result for make in makes) and makes[1].prev is makes[0]
    copies = [op for op in ops if isinstance(op, AsyncTmaCopyGlobalToLocal)]
    assert copies and {copy.desc for copy in copies} == {make.result for make in makes}
    assert not any(isinstance(op, AsyncCopyGlobalToLocal) for op in ops)
    assert not any(type_.startswith("tensormap") for _, type_ in artifact.metadata.params)
    assert all(note.endswith("which the kernel makes") for note in artifact.metadata.tma)


def test_a_map_is_not_made_for_one_loop() -> None:
    """That of one program's tile: it would take as long as it saves."""
    signature = dict.fromkeys("abc", "*fp16:16") | {"starts": "*i64:16"} | dict.fromkeys("MNK", "i32")
    kernel, notes = kernel_of(f"{SOURCE}:dot_batches", signature, **TILES)
    assert not any(isinstance(op, MakeTensorMap) for op in kernel.body.walk())
    assert notes[0].endswith(
        "neither its launcher can make its map nor the kernel, once for several runs of the loop"
    )


def test_loads_outside_of_pipelines_use_them() -> None:
    signature = dict.fromkeys(("x", "out"), "*fp32:16") | {
        "starts": "*i64:16",
        "sizes": "*i32:16",
        "groups": "i32",
    }
    kernel, notes = kernel_of(f"{SOURCE}:add_grouped", signature, TILE=64)
    assert sum(isinstance(op, MakeTensorMap) for op in kernel.body.walk()) == 1
    assert len(notes) == 1 and notes[0].endswith("_map, which the kernel makes")


@pytest.mark.parametrize("table", ["outputs", "inputs"])
def test_arrays_of_a_table_that_is_written_are_not_read_by_tma(table: str) -> None:
    """Those of another table are taken for different ones."""
    signature = dict.fromkeys(("inputs", "outputs"), "*i64:16") | {"rows": "i32", "K": "i32"}
    kernel, _ = kernel_of(f"{SOURCE}:dot_of_tables", signature, TILE=64, INTO=table)
    made = [op for op in kernel.body.walk() if isinstance(op, MakeTensorMap)]
    assert len(made) == (2 if table == "outputs" else 0)


def emulated(artifact: kbuild.Artifact, schedule: str, case: Case = CASE, ptx: str = "") -> Report:
    """A case of the zoo; `ptx` is in place of the artifact's."""
    return emulate(artifact, case.make(np.random.default_rng(1)), case.grid, ptx=ptx, schedule=schedule)


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
def test_a_copy_needs_the_fence_before_it(schedule: str) -> None:
    artifact = artifact_of("ptx")
    assert not emulated(artifact, schedule).findings
    broken = re.sub(r"fence\.proxy\.tensormap::generic\.acquire.*", "", artifact.asm["ptx"])
    found = emulated(artifact, schedule, ptx=broken).findings
    assert {finding.kind for finding in found} == {"tensormap-fence"}


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin"])
def test_copies_to_memory_end_before_their_map_is_made_again(schedule: str) -> None:
    artifact = artifact_of("ptx", STORING)
    assert artifact.metadata.tma[0].endswith("_map, which the kernel makes")
    assert not emulated(artifact, schedule, STORING).findings
    broken = artifact.asm["ptx"].replace("cp.async.bulk.wait_group 0;", "", 1)
    found = emulated(artifact, schedule, STORING, broken).findings
    assert {finding.kind for finding in found} == {"race"}
    assert {finding.instruction.opcode for finding in found if finding.instruction} == {"tensormap"}


def test_programs_that_run_at_once_need_places_of_their_own() -> None:
    artifact = artifact_of("ptx")
    broken = re.sub("@taken bra .*", "", artifact.asm["ptx"])
    found = emulated(artifact, "round-robin", ptx=broken).findings
    assert "race" in {finding.kind for finding in found}


def test_programs_wait_where_there_are_too_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_maps, "_places", lambda emit: 1)
    artifact = artifact_of("ptx")
    outputs = outputs_of(artifact, emulated(artifact, "round-robin").check())
    CASE.check(CASE.make(np.random.default_rng(1)), outputs)


@pytest.mark.parametrize(
    "name", ["f16", "bf16", "f32", "tf32", "f64", "i8", "i16", "i32", "s32", "i64", "s64", "f8e4m3"]
)
def test_elements_mean_the_same_by_their_numbers_on_the_device(name: str) -> None:
    by_driver = TensorMap(1 << 20, "u8", (64,), (), (16,), (1,))
    found = TensorMap.decode(replace(by_driver.encode(), "elemtype", 0, device_element(name)))
    assert (ELEMENTS.index(found.element), found.element_bytes) == element_type(name)
