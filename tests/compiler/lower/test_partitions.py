"""What specialised warps become: barriers of their own, registers that move, and values in shared memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from zoo import CASES

import kbuild


def compiled(name: str) -> kbuild.Artifact:
    case = CASES[name]
    return kbuild.compile(
        case.source,
        signature=case.signature(case.make(np.random.default_rng(0))),
        constexprs=case.constexprs,
        target="sm_90",
        options=case.options("sm_90"),
    )


@pytest.mark.parametrize(
    ("name", "threads", "at_entry", "moves"),
    [
        ("gluon_specialised", 256, 255, [("dec", "24")]),
        ("gluon_specialised_groups", 384, 168, [("inc", "240"), ("dec", "24")]),
    ],
)
def test_a_warp_that_copies_gives_its_registers_away(
    name: str, threads: int, at_entry: int, moves: list[tuple[str, str]]
) -> None:
    """A launch has whole warpgroups.  ptxas has to know the registers at the entry; it would say if it ignored
    the moves."""
    artifact = compiled(name)
    ptx, about = artifact.asm["ptx"], artifact.metadata
    assert f".reqntid {threads}" in ptx and f".maxnreg {at_entry}" in ptx
    assert about.warps == threads // 32 and about.registers == at_entry
    assert re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", ptx) == moves
    assert about.warnings == () and about.spill_stores == 0


def test_warps_of_a_partition_meet_at_a_barrier_of_their_own() -> None:
    """All meet at barrier 0, where partitions begin and end."""
    ptx = compiled("gluon_partitions_with_tensors").asm["ptx"]
    own, theirs = ["0", "1, 128", "0"], ["0", "2, 64", "2, 64", "0"]
    assert re.findall(r"bar\.sync\s+(\d+(?:, \d+)?);", ptx) == own + theirs


def test_what_was_loaded_goes_to_a_partition_by_shared_memory() -> None:
    """What the arguments say it computes again."""
    artifact = compiled("gluon_partitions_with_tensors")
    (place,) = re.findall(r"ttg.warp_specialize %factor .*scratch = (\d+)", artifact.asm["ttgir"])
    met, *_ = re.findall(rf"(?s)(st\.shared.*\[shared\+{place}\].*)bar\.sync", artifact.asm["ptx"])
    assert f"[shared+{place}]" in met[met.index("bar.sync") :]
