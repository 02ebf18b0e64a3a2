"""Kernels in Gluon with one step left out or wrong: the interpreter or the emulator names the fault, and what
would hang on a GPU ends with a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zoo import CASES
from zoo.case import KERNELS

import kbuild
from kbuild.compiler import interp
from kbuild.compiler.ir.parser import parse_module
from kbuild.errors import InterpretError
from tests.emulator.artifacts import emulate

WAIT = "mbarrier.wait(full.index(slot), step // TILES & 1)"
BYTES = "a_map.block_type.nbytes + b_map.block_type.nbytes"
RINGS = "ring_of(TILES, 1), ring_of(TILES, 1)"
AGAIN = "used again before its phase was waited for"
NEVER_ENDS = "a wait that never ends"
FAULTS = [
    ("gluon_pipelined", WAIT, "pass", AGAIN, "race"),
    ("gluon_pipelined", "step // TILES & 1)", "step // TILES & 1 ^ 1)", AGAIN, "race"),
    ("gluon_pipelined", "fence_async_shared()", "pass", "right", "proxy-fence"),
    ("gluon_pipelined", "tma.store_wait(0)", "pass", "ends while TMA reads", "bulk-unfinished"),
    ("gluon_pipelined", BYTES, "a_map.block_type.nbytes", NEVER_ENDS, "race"),
    ("gluon_pipelined", BYTES, f"2 * {BYTES}", NEVER_ENDS, "deadlock"),
    ("gluon_pipelined", "warpgroup_mma_wait(1, (acc,))", "warpgroup_mma_wait(2, (acc,))", "wrong", "race"),
    ("gluon_specialised", "mbarrier.arrive(empty.index(slot), count=1)", "pass", NEVER_ENDS, "deadlock"),
    ("gluon_specialised", RINGS, RINGS.replace("1)", "2)"), NEVER_ENDS, "deadlock"),
    ("gluon_partitions_with_tensors", "mbarrier.wait(ready, 0)", "pass", "right", "race"),
]


@pytest.mark.parametrize(("name", "old", "new", "meaning", "finding"), FAULTS)
def test_a_fault_is_named(name: str, old: str, new: str, meaning: str, finding: str, tmp_path: Path) -> None:
    case = CASES[name]
    text = (KERNELS / case.file).read_text()
    assert old in text
    (tmp_path / "k.py").write_text(text.replace(old, new, 1))
    arguments = case.make(np.random.default_rng(1))
    artifact = kbuild.compile(
        f"{tmp_path / 'k.py'}:{case.function}",
        signature=case.signature(arguments),
        constexprs=case.constexprs,
        target="sm_90",
        stop="ptx",
        options=case.options("sm_90"),
    )
    assert finding in [each.kind for each in emulate(artifact, arguments, case.grid).findings]

    outputs = {
        key: np.copy(value) if isinstance(value, np.ndarray) else value for key, value in arguments.items()
    }
    outcome = "right"
    try:
        interp.run(parse_module(artifact.asm["ttir"]), list(outputs.values()), grid=case.grid)
        case.check(arguments, outputs)
    except InterpretError as error:
        outcome = str(error)
    except AssertionError:
        outcome = "wrong"
    assert meaning in outcome
