"""Tiles that the programs of a cluster copy together: which are, and what the emulator says of holes in their
protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import kbuild
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.types import MemDescType
from kbuild.compiler.ops.nvidia import ArriveBarrier, InitBarrier, WaitBarrier, WarpSpecialize
from kbuild.compiler.ops.tensor import Barrier
from kbuild.emulator import Finding
from kbuild.errors import KbuildError
from tests.emulator.artifacts import emulate
from tests.zoo.case import SHIPPED

ROWS, COLUMNS, DEPTH = 200, 136, 336
SIGNATURE = dict.fromkeys("abc", "*fp16:16") | dict.fromkeys("MNK", "i32:8")
SIGNATURE |= {"stride_am": "i32:8", "stride_ak": "i32:1", "stride_bk": "i32:8", "stride_bn": "i32:1"}
SIGNATURE |= {"stride_cm": "i32:8", "stride_cn": "i32:1"}
TILE = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 0, "cluster_size": 2}


def compiled(
    stop: str = "ptx", size: int = 2, target: str = "sm_90", warps: int = 4, **changed: int
) -> kbuild.Artifact:
    """Of the shipped matmul; the kernel itself takes the cluster's size from a constant of its own."""
    return kbuild.compile(
        f"{SHIPPED / 'matmul.py'}:matmul_kernel",
        signature=SIGNATURE,
        constexprs=TILE | changed,
        target=target,
        stop=stop,
        num_warps=warps,
        num_stages=3,
        cluster_size=size,
    )


@lru_cache
def whole() -> kbuild.Artifact:
    return compiled()


def findings(text: str, timing: str, schedule: str) -> list[Finding]:
    """What is found in a launch; there must be something where the result is wrong."""
    generator = np.random.default_rng(1)
    a, b = (
        generator.integers(-2, 3, shape).astype(np.float16) for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS))
    )
    given = {
        "a": a,
        "b": b,
        "c": np.full((ROWS, COLUMNS), np.nan, np.float16),
        "M": ROWS,
        "N": COLUMNS,
        "K": DEPTH,
    }
    given |= {
        "stride_am": DEPTH,
        "stride_ak": 1,
        "stride_bk": COLUMNS,
        "stride_bn": 1,
        "stride_cm": COLUMNS,
        "stride_cn": 1,
    }
    report = emulate(whole(), given, (4, 2), ptx=text, schedule=schedule, timing=timing)
    if not report.findings:
        np.testing.assert_array_equal(
            report.outputs[2], (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
        )
    return list(report.findings)


def test_each_program_copies_a_part_of_what_is_the_same_for_all() -> None:
    artifact = whole()
    assert artifact.metadata.options.cluster_size == 2 and ".reqnctapercluster 2" in artifact.asm["ptx"]
    assert artifact.metadata.tma == (
        "a_values: by a_map",
        "b_values: by b_map, by all programs of a cluster together",
    )
    lines = [line for line in artifact.asm["ptx"].splitlines() if "cp.async.bulk.tensor" in line]
    assert ["multicast::cluster" in line for line in lines] == [False, True], (
        "B's two boxes side by side: one for each"
    )
    four = compiled("ttgir", 4, cluster_size=4).metadata
    maps = {name: type_.split()[2] for name, type_ in four.params if name.endswith("map")}
    assert maps == {"a_map": "64x64", "b_map": "16x64"}, "its rows are shared out where there are fewer boxes"


@pytest.mark.parametrize(
    "schedule, timing", [("reverse", "early"), ("random(1)", "late"), ("starve(0)", "random(2)")]
)
def test_no_race_whichever_program_is_slow(schedule: str, timing: str) -> None:
    assert not findings(whole().asm["ptx"], timing, schedule)


@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_producer_waits_for_each_buffer_that_is_still_to_be_given_back(is_persistent: bool) -> None:
    """The loop's own waits are behind by the number of buffers.  Only a loop that runs once keeps its last
    buffer: round an outer loop it is released too, and if no wait followed, the release could reach a
    program that has ended."""
    artifact = compiled("ttgir", PERSISTENT=1, GROUP_M=2) if is_persistent else compiled("ttgir")
    kernel = parse_module(artifact.asm["ttgir"]).kernel
    (split,) = (op for op in kernel.body if isinstance(op, WarpSpecialize))
    (empty,) = (op.barriers for op in kernel.body if isinstance(op, InitBarrier) and op.arrivals > 1)
    assert isinstance(empty.type, MemDescType) and empty.type.shape[0] >= 3
    assert sum(isinstance(op, WaitBarrier) for op in split.producer) == empty.type.shape[0] - (
        not is_persistent
    )


def no_meeting(module: Module) -> None:
    for op in module.kernel.body:
        if isinstance(op, Barrier):
            op.cluster = False


def arrivals_at_home_alone(module: Module) -> None:
    for op in module.kernel.body.walk():
        if isinstance(op, ArriveBarrier):
            op.programs = 1


def no_wait_for_the_neighbour(module: Module) -> None:
    arrivals_at_home_alone(module)
    for op in module.kernel.body:
        if isinstance(op, InitBarrier) and op.arrivals > 1:
            op.arrivals //= 2


def no_last_wait(module: Module) -> None:
    (split,) = (op for op in module.kernel.body if isinstance(op, WarpSpecialize))
    for op in split.producer:
        if isinstance(op, WaitBarrier):
            op.erase()


HOLES: dict[Callable[[Module], None], set[str]] = {
    no_meeting: {"mbarrier-misuse"},
    arrivals_at_home_alone: {"deadlock"},
    no_wait_for_the_neighbour: {"race", "mbarrier-misuse"},
    no_last_wait: {"ended-peer"},
}


@pytest.mark.parametrize("hole", HOLES, ids=lambda hole: hole.__name__)
def test_a_hole_in_the_protocol_is_found(hole: Callable[[Module], None], tmp_path: Path) -> None:
    module = parse_module(whole().asm["ttgir"])
    hole(module)
    (tmp_path / "broken.ttgir").write_text(print_module(module))
    text = kbuild.compile(tmp_path / "broken.ttgir", target="sm_90", stop="ptx").asm["ptx"]
    runs = [
        (timing, schedule)
        for timing in ("late", "early")
        for schedule in ("reverse", "starve(0)", "starve(9)")
    ]
    kinds = (finding.kind for timing, schedule in runs for finding in findings(text, timing, schedule))
    assert any(kind in HOLES[hole] for kind in kinds)


MISTAKES = {
    "no tile in common": (
        {"GROUP_M": 8, "cluster_size": 1},
        "what the loop copies depends on tl.program_id(0)",
    ),
    "rounds of their own": (
        {"GROUP_M": 8, "PERSISTENT": 1, "cluster_size": 1},
        "how often the loop runs depends on tl.program_id(0)",
    ),
    "tiles of few rows": ({"size": 8, "BLOCK_K": 32}, "the tiles in common have too few rows"),
    "no warp for copies": (
        {"warps": 16, "BLOCK_M": 256},
        "it has no loop whose dots read only what a warp of its",
    ),
    "another size": ({"size": 3}, "cluster_size is 3"),
    "another architecture": ({"target": "sm_80"}, "sm_80 has no clusters"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_cluster_that_would_be_of_no_use_is_a_mistake(name: str) -> None:
    changed, message = MISTAKES[name]
    with pytest.raises(KbuildError) as caught:
        compiled("ttgir", **changed)  # type: ignore[arg-type]
    assert message in str(caught.value)
