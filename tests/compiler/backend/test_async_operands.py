"""Registers that are written while a `wgmma` may still read them are found, on every path and nowhere else."""

from __future__ import annotations

import re
import struct

import pytest

from kbuild.compiler.backend.async_operands import overwritten
from kbuild.compiler.backend.cubin import assemble, ptxas_version
from kbuild.compiler.backend.elf import sections
from kbuild.compiler.backend.ptxas_wheels import installed, is_of
from kbuild.errors import ToolError
from tests.compiler.backend.test_cross_check import code_of, kernel

LAST = 0
"""Of a `wgmma`: the bits that close its group."""


def words(*instructions: int) -> bytes:
    return b"".join(struct.pack("<QQ", word & (1 << 64) - 1, word >> 64) for word in instructions)


def wgmma(register: int, closes: bool = True) -> int:
    """HGMMA.64x16x8.F32.TF32 R24, R<register>, gdesc[UR16], R24, gsb0"""
    return 0x7DF0 | 24 << 16 | register << 24 | (0 if closes else 7) << 84


SHARED = 0x79F0 | 24 << 16
"""A `wgmma` whose left operand is in shared memory."""
ARRIVE, EXIT, BARRIER = 0x79C5, 0x794D, 0x7B1D


def wait(groups: int) -> int:
    """WARPGROUP.DEPBAR.LE gsb0, <groups>"""
    return 0x79C5 | 1 << 47 | (0x10000 | groups << 8) << 64


def mov(register: int) -> int:
    """IMAD.MOV.U32 R<register>, RZ, RZ, R1"""
    return 0x7224 | register << 16


def load(register: int, size: int = 4) -> int:
    """LDS, LDS.64 or LDS.128 R<register>, [R6]"""
    return 0x7984 | register << 16 | 6 << 24 | {4: 4, 8: 5, 16: 6}[size] << 73


def branch(instructions: int, predicate: int = 7) -> int:
    """BRA to so many instructions after the next one."""
    distance = 4 * instructions & (1 << 56) - 1
    return 0x947 | predicate << 12 | (distance & 0xFF) << 16 | (distance >> 8) << 34


def found(*instructions: int) -> list[tuple[int, int, int]]:
    """Number of the writing instruction and of the `wgmma`, and the register."""
    return [
        (place // 16, reader // 16, register) for place, reader, register in overwritten(words(*instructions))
    ]


def test_a_write_before_the_wait_and_after_it() -> None:
    assert found(wgmma(40), mov(42), wait(0), mov(41), EXIT) == [(1, 0, 42)]


@pytest.mark.parametrize(
    "register, size, first",
    [
        (39, 4, None),
        (39, 8, 40),
        (40, 4, 40),
        (43, 4, 43),
        (44, 16, None),
        (36, 16, None),
        (38, 16, 40),
    ],
)
def test_wide_loads_write_several_registers(register: int, size: int, first: int | None) -> None:
    assert found(wgmma(40), load(register, size), EXIT) == ([] if first is None else [(1, 0, first)])


def test_what_writes_no_register_is_let_be() -> None:
    store, compare, uniform = 0x7388 | 40 << 16, 0x720C | 40 << 16, 0x7882 | 40 << 16
    assert found(wgmma(40), store, compare, uniform, BARRIER, ARRIVE, SHARED, wait(0), EXIT) == []
    assert found(SHARED, mov(24), mov(0), EXIT) == [], "operands in shared memory are not registers"


def test_a_wait_that_leaves_a_group_in_flight() -> None:
    body = (wgmma(40), wgmma(44), wgmma(48), wait(1))
    assert found(*body, mov(40), mov(44), EXIT) == []
    assert found(*body, mov(48), EXIT) == [(4, 2, 48)]
    assert found(wgmma(40, closes=False), wgmma(44), wait(0), mov(40), EXIT) == [], "one group"
    assert found(wgmma(40), wgmma(44, closes=False), wait(0), mov(44), EXIT) == [(3, 1, 44)], (
        "the group is open still"
    )


def test_around_a_loop() -> None:
    """The next round's operands are loaded in front of the wait: what ptxas 12.9 makes."""
    assert found(load(40), wait(0), wgmma(40), branch(-4, predicate=0), EXIT) == [(0, 2, 40)]
    assert found(wait(0), load(40), wgmma(40), branch(-4, predicate=0), EXIT) == []
    twice = (wait(1), load(40), wgmma(44), wgmma(40), branch(-5, predicate=0), EXIT)
    assert found(*twice) == [(1, 3, 40)], "a wait that leaves one is too little for what is read last"


def test_either_way_of_a_branch() -> None:
    assert found(wgmma(40), branch(1, predicate=0), wait(0), mov(40), EXIT) == [(3, 0, 40)]
    assert found(wgmma(40), branch(1, predicate=0), mov(40), wait(0), mov(40), EXIT) == [(2, 0, 40)]
    assert found(wgmma(40), branch(1), mov(40), wait(0), EXIT) == [], "no path leads there"
    assert found(wgmma(40), EXIT, mov(40)) == []


def test_many_groups_and_endless_loops_end() -> None:
    rounds = [wgmma(40 + 4 * index) for index in range(40)]
    assert found(mov(40), *rounds, branch(-42), EXIT)[0] == (0, 1, 40)
    assert len(found(*rounds, mov(40), EXIT)) == 1


TF32 = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7}, %b, 1, 1, 1;"
LOOP = f"""mov.u32 %t, 0;
Loop:
.pragma "nounroll";
{"".join(f"ld.volatile.shared.b32 %r{index + 4}, [shared+{4 * index}];" for index in range(4, 8))}
wgmma.wait_group.sync.aligned 0;
{"".join(f"mov.b32 %r{index}, %r{index + 4};" for index in range(4, 8))}
wgmma.fence.sync.aligned;
{TF32}
wgmma.commit_group.sync.aligned;
add.u32 %t, %t, 1;
setp.lt.u32 %q, %t, %r3;
@%q bra Loop;
wgmma.wait_group.sync.aligned 0;"""
"""The left operand of each round is loaded while the previous round's `wgmma` may read its own, and replaces it
after the wait, as PTX requires."""


def test_real_code() -> None:
    """13.3 and later versions load into other registers; the earlier ones into those that are read, and are refused."""
    versions = {one.name: one for one in installed(ptxas_version)}
    assert any(is_of(one.version, "13.5") for one in versions.values())
    for one in versions.values():
        if one.version >= (13, 3):
            cubin, _ = assemble(kernel(LOOP), "sm_90a", one.path)
            assert (
                re.search(rb"\.text\.k", cubin)
                and overwritten(code_of(cubin)) == []
                and len(sections(cubin)) > 5
            )
        else:
            with pytest.raises(
                ToolError,
                match=r"register R\d+: written at 0x\w+ while the wgmma at 0x\w+ may still read it",
            ):
                assemble(kernel(LOOP), "sm_90a", one.path)
