"""Tensor maps that a kernel writes: which fences TMA requires before it uses them."""

from __future__ import annotations

import pytest

from tests.emulator.race.races import findings

FIELDS = (
    ("global_address", "b64", "%d_x"),
    ("rank", "b32", "0"),
    ("box_dim", "b32", "0, 64"),
    ("global_dim", "b32", "0, 64"),
    ("element_stride", "b32", "0, 1"),
    ("elemtype", "b32", "6"),
    ("interleave_layout", "b32", "0"),
    ("swizzle_mode", "b32", "0"),
    ("fill_mode", "b32", "0"),
)
IN_PLACE = "".join(
    f"@%p1 tensormap.replace.tile.{name}.global.b1024.{kind} [%d1], {value};\n"
    for name, kind, value in FIELDS
)
IN_SHARED = "".join(
    f"@%p1 tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%r1], {value};\n"
    for name, kind, value in FIELDS
)
SETUP = """
    mov.b32 %r1, buffer;
    add.u32 %r2, %r1, 4096;
    add.u64 %d1, %d_y, 8192;
    setp.eq.u32 %p1, %r_tid, 0;
    setp.eq.u32 %p2, %r_tid, 32;
    @%p1 mbarrier.init.shared.b64 [%r2], 1;
    @%p1 fence.proxy.async.shared::cta;
"""
COPY = """
    @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
    @%p2 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1+1024], [%d1, {0}], [%r2];
    -late @%p2 tensormap.replace.tile.fill_mode.global.b1024.b32 [%d1], 0;
    again:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;
    @!%p3 bra again;
    +late @%p2 tensormap.replace.tile.fill_mode.global.b1024.b32 [%d1], 0;
"""
# Thread 0 makes a map in global memory, thread 32 uses it.
MADE = f"""{SETUP}{IN_PLACE}
    +release @%p1 fence.proxy.tensormap::generic.release.gpu;
    +order bar.sync 0;
    -order bar.sync 1, 64;
    +acquire @%p2 fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
    -other @%p2 fence.proxy.tensormap::generic.acquire.gpu [%d1+128], 128;
{COPY}"""
# The first warp makes it in shared memory, publishes it, and a thread that waits at the barrier has it
# acquired by another.
PUBLISHED = f"""{SETUP}
    setp.lt.u32 %p4, %r_tid, 32;
    mad.lo.u32 %r3, %r_tid, 4, %r1;
    st.shared.b32 [%r3], 0;
    bar.sync 0;
{IN_SHARED}
    bar.sync 0;
    @!%p4 bra published;
    +copy tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [%r1], 128;
    -copy ld.shared.b32 %r4, [%r3];
    -copy mad.wide.u32 %d2, %r_tid, 4, %d1;
    -copy st.global.b32 [%d2], %r4;
    published:
    bar.sync 0;
    setp.eq.u32 %p5, %r_tid, 33;
    +acquire @%p5 fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
    +order bar.sync 0;
{COPY}"""


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
def test_a_map_needs_a_release_and_an_acquire(schedule: str) -> None:
    assert not findings(MADE, threads=64, schedule=schedule)
    for missing in ("release", "acquire"):
        (found, *others) = findings(MADE, missing, threads=64, schedule=schedule)
        assert found.kind == "tensormap-fence" and "release and acquire" in found.message
        assert {other.kind for other in others} <= {"tensormap-fence"}
        assert found.instruction is not None and found.instruction.name.startswith("cp.async.bulk.tensor")
        assert found.other is not None and found.other.opcode == "tensormap"


def test_an_acquire_is_for_one_map_and_comes_after_the_release() -> None:
    elsewhere = MADE.replace("+acquire", "+other").replace("-other", "-other ")
    assert not findings(elsewhere, threads=64)
    assert {found.kind for found in findings(elsewhere, "other", threads=64)} == {"tensormap-fence"}
    early = MADE.replace(
        "    +release", "    @%p2 fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;\n    +release"
    )
    assert {found.kind for found in findings(early, "acquire", threads=64)} == {"tensormap-fence"}


def test_fences_order_no_threads() -> None:
    unordered = MADE.replace("    +order bar.sync 0;\n", "").replace("    -order bar.sync 1, 64;\n", "")
    assert "race" in {found.kind for found in findings(unordered, threads=64, schedule="round-robin")}


@pytest.mark.parametrize("missing", ["copy", "acquire"])
def test_a_copy_with_a_fence_publishes_at_once(missing: str) -> None:
    assert not findings(PUBLISHED, threads=64)
    assert {found.kind for found in findings(PUBLISHED, missing, threads=64)} == {"tensormap-fence"}
    assert {found.kind for found in findings(PUBLISHED, "order", threads=64, schedule="round-robin")} == {
        "tensormap-fence"
    }


@pytest.mark.parametrize("schedule", ["lockstep", "round-robin", "reverse"])
def test_a_map_is_not_written_again_before_the_copies_by_it_have_ended(schedule: str) -> None:
    assert not findings(MADE, threads=64, schedule=schedule)
    (found,) = findings(MADE, "late", threads=64, schedule=schedule)
    assert found.kind == "race" and "writes global address" in found.message
    assert found.instruction is not None and found.instruction.opcode == "tensormap"
    assert found.other is not None and found.other.name.startswith("cp.async.bulk.tensor")
