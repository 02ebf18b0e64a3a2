"""Asynchronous operations without PTX: mbarriers, groups of copies, tensor maps and boxes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from kbuild.emulator.async_ops import TensorMap, TensorMapError, replace, timing_named
from kbuild.emulator.async_ops.cp_async import CopyGroups
from kbuild.emulator.async_ops.mbarrier import Barriers
from kbuild.emulator.async_ops.tma import box_at, reduce_elements
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.memory import Heap, Local, Memory, Space


@pytest.fixture
def barriers() -> Barriers:
    return Barriers(Space("shared", 0, 256))


def test_a_phase_ends_when_arrivals_and_bytes_are_complete(barriers: Barriers) -> None:
    barriers.init(16, 2)
    assert barriers.passed(16, 1) and not barriers.passed(16, 0)
    assert barriers.expect(16, 64) == 0 and barriers.arrive(16) == 0
    barriers.complete(16, 48)
    assert barriers.arrive(16) == 0 and not barriers.passed(16, 0)
    assert barriers.complete(16, 16) == 0
    assert barriers.passed(16, 0) and not barriers.passed(16, 1) and barriers.passed_token(16, 0)
    assert barriers.arrive(16) == 1 and not barriers.passed_token(16, 1)


def test_a_state_is_of_the_phase_under_way_or_the_one_before(barriers: Barriers) -> None:
    barriers.init(16, 1)
    for phase in range(3):
        assert barriers.arrive(16) == phase
    assert barriers.passed_token(16, 2) and not barriers.passed_token(16, 3)
    for phase in (0, 1, 4):
        with pytest.raises(Fault, match=f"waits at 0x10 for phase {phase} while phase 3 is under way"):
            barriers.passed_token(16, phase)


def test_an_arrival_that_must_not_be_the_last(barriers: Barriers) -> None:
    barriers.init(16, 2)
    assert barriers.arrive(16, completes=False) == 0
    with pytest.raises(Fault, match="the last arrival of a phase at the mbarrier at 0x10 must not be it"):
        barriers.arrive(16, completes=False)
    assert barriers.arrive(16) == 0 and barriers.passed(16, 0)


def test_bytes_may_land_before_they_are_announced(barriers: Barriers) -> None:
    barriers.init(0, 1)
    barriers.complete(0, 128)
    barriers.expect(0, 128)
    assert not barriers.passed(0, 0)
    barriers.arrive(0)
    assert barriers.passed(0, 0)


def test_dropping_lowers_what_later_phases_expect(barriers: Barriers) -> None:
    barriers.init(0, 2)
    barriers.arrive(0, drop=True)
    barriers.arrive(0)
    barriers.arrive(0)
    assert barriers.at(0).phase == 2


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda b: b.arrive(0, 3), "needs 2 more of 2"),
        (lambda b: (b.init(0, 2), b.arrive(0), b.init(0, 2)), "while a phase is under way"),
        (lambda b: b.init(8, 0), "cannot expect 0 arrivals"),
        (lambda b: b.init(4, 1), "not aligned"),
        (lambda b: b.at(8), "no initialised mbarrier"),
        (lambda b: (b.invalidate(0), b.arrive(0)), "no initialised mbarrier"),
        (lambda b: (b.shared.data.__setitem__(3, 7), b.arrive(0)), "was overwritten"),
        (lambda b: b.expect(0, 1 << 20), "bytes short"),
        (lambda b: b.passed_token(0, 5), "waits at 0x0 for phase 5"),
    ],
)
def test_misuse_of_barriers_is_named(barriers: Barriers, misuse, message: str) -> None:
    barriers.init(0, 2)
    with pytest.raises(Fault, match=message):
        misuse(barriers)


# Groups of copies


def small_memory(shared: int = 512, data: int = 512) -> tuple[Memory, int]:
    heap = Heap()
    address = heap.allocate(data)
    heap.bytes(address, data)[:] = np.arange(data) % 251
    memory = Memory(heap, Space("shared", 0, shared), Local(0, 32), Space("const", 0), Space("param", 0))
    return memory, address


def issue(
    copies: CopyGroups, base: int, threads: list[int], first: int, size: int = 16, amount: int | None = None
) -> None:
    lanes = np.array(threads)
    amounts = np.full(len(lanes), size if amount is None else amount)
    site = (SimpleNamespace(first_thread=0), None, lanes)
    copies.issue(site, lanes, first + size * lanes, base + first + size * lanes, size, amounts)


@pytest.mark.parametrize("timing", ["early", "late", "random(1)", "random(2)"])
def test_each_thread_waits_for_its_own_groups(timing: str) -> None:
    memory, base = small_memory()
    shared, source = memory.spaces["shared"].data, np.arange(512) % 251
    copies = CopyGroups(memory, 32, timing_named(timing))
    both, one = np.array([0, 1]), np.array([0])
    issue(copies, base, [0, 1], 0)
    copies.commit(both)
    issue(copies, base, [0, 1], 64)
    copies.commit(one)  # thread 1 leaves its second copy in the open group
    copies.wait(both, 1, None)
    assert (shared[:16] == source[:16]).all()
    if timing == "late":
        assert (shared[16:32] == 0xFF).all() and (shared[64:96] == 0xFF).all()
    copies.wait(both, 0, None)
    assert (shared[:32] == source[:32]).all() and (shared[64:80] == source[64:80]).all()
    if timing == "late":
        assert (shared[80:96] == 0xFF).all()
    copies.wait(both, None, None)
    assert (shared[64:96] == source[64:96]).all() and not copies.pending


@pytest.mark.parametrize("size", [4, 8, 16])
def test_copies_fill_with_zeros(size: int) -> None:
    for amount in (0, 1, size - 1, size):
        memory, base = small_memory()
        copies = CopyGroups(memory, 32, timing_named("late"))
        issue(copies, base, [3], 0, size, amount)
        copies.wait(np.array([3]), None, None)
        got = memory.spaces["shared"].data[3 * size : 4 * size]
        assert got.tolist() == [*range(3 * size, 3 * size + amount), *[0] * (size - amount)]


def test_a_copy_of_no_bytes_reads_nothing_and_others_are_checked() -> None:
    memory, base = small_memory()
    copies = CopyGroups(memory, 32, timing_named("early"))
    issue(copies, base - 4096, [0], 0, amount=0)
    with pytest.raises(Fault, match="bytes at global address"):
        issue(copies, base - 4096, [0], 0)
    with pytest.raises(Fault, match="shared address"):
        issue(copies, base, [0], 512)
    with pytest.raises(Fault, match="not aligned to the 16 bytes"):
        issue(copies, base, [0], 8)


def test_copies_of_different_amounts_are_each_checked_by_their_own() -> None:
    """Threads 0 and 1 of an instruction copy all 16 bytes and 4 of them."""
    amounts, lanes = np.array([16, 4]), np.array([0, 1])

    def issue_at(first: int, second: int) -> None:
        memory, base = small_memory()
        copies = CopyGroups(memory, 32, timing_named("late"))
        copies.issue(("a", 0, lanes), lanes, 16 * lanes, base + np.array([first, second]), 16, amounts)
        copies.wait(lanes, None, None)
        shared = memory.spaces["shared"].data
        assert shared[:32].tolist() == [
            *(np.arange(first, first + 16) % 251),
            *(np.arange(second, second + 4) % 251),
            *[0] * 12,
        ]

    issue_at(32, 64)
    issue_at(32, 508)  # no more than the four bytes that are there
    with pytest.raises(Fault, match="not aligned to the 16 bytes"):
        issue_at(8, 64)
    with pytest.raises(Fault, match="global address"):
        issue_at(512, 64)
    with pytest.raises(Fault, match="global address"):
        issue_at(32, 512)


def test_arrivals_follow_the_copies() -> None:
    memory, base = small_memory()
    copies, done = CopyGroups(memory, 32, timing_named("late")), []
    copies.when_landed(0, lambda: done.append("nothing pending"))
    issue(copies, base, [0, 1], 0)
    copies.when_landed(0, lambda: done.append("thread 0"))
    copies.when_landed(1, lambda: done.append("thread 1"))
    assert done == ["nothing pending"]
    copies.wait(np.array([1]), None, None)
    assert done[1:] == ["thread 1"]
    assert copies.land() and done[2:] == ["thread 0"] and not copies.land()


# Tensor maps and boxes


def example(**changes) -> TensorMap:
    fields = {
        "address": 0x1000,
        "element": "f16",
        "sizes": (100, 50),
        "strides": (208,),
        "box": (64, 8),
        "steps": (1, 1),
        "swizzle": 3,
    }
    return TensorMap(**{**fields, **changes})


def test_the_128_bytes_hold_a_map_of_any_rank() -> None:
    for rank in range(1, 6):
        found = TensorMap(
            64,
            "f32",
            (2**32, 7, 5, 3, 2)[:rank],
            (1 << 36, 32, 48, 64)[: rank - 1],
            (4, 256, 1, 2, 3)[:rank],
            (1, 8, 2, 1, 1)[:rank],
            1,
            True,
        )
        assert len(found.encode()) == 128 and TensorMap.decode(found.encode()) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": 8}, "not a multiple of 16"),
        ({"strides": (200,)}, "stride 200 of dimension 1"),
        ({"sizes": (0, 1)}, "size 0"),
        ({"box": (257, 1)}, "box size 257"),
        ({"box": (4, 8)}, "8 bytes wide"),
        ({"box": (72, 8)}, "swizzle has rows of 128"),
        ({"steps": (1, 9)}, "element stride 9"),
        ({"element": "s8"}, "not an element type"),
        ({"strides": ()}, "0 strides for rank 2"),
        ({"element": "u16", "fill_nan": True}, "NaN cannot fill"),
        ({"element": "tf32.ftz", "swizzle": 0}, "not supported"),
        ({"interleave": 1}, "interleave"),
    ],
)
def test_what_the_driver_refuses_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(TensorMapError, match=message):
        example(**changes).encode()


def test_a_map_built_field_by_field_is_the_encoded_one() -> None:
    wanted = example(
        element="bf16", sizes=(100, 50, 3), strides=(208, 10400), box=(64, 8, 1), steps=(1, 2, 1)
    )
    data = bytes(128)
    fields = [
        ("global_address", 0, 0x1000),
        ("rank", 0, 2),
        ("elemtype", 0, 10),
        ("interleave_layout", 0, 0),
        ("swizzle_mode", 0, 3),
        ("fill_mode", 0, 0),
        *(
            (name, i, value)
            for name, values in (
                ("global_dim", wanted.sizes),
                ("global_stride", wanted.strides),
                ("box_dim", wanted.box),
                ("element_stride", wanted.steps),
            )
            for i, value in enumerate(values)
        ),
    ]
    for count, (field, index, value) in enumerate(fields):
        with pytest.raises(TensorMapError, match="not set are"):
            TensorMap.decode(data)
        data = replace(data, field, index, value)
        assert count < len(fields)
    assert TensorMap.decode(data) == wanted and data == wanted.encode()
    with pytest.raises(TensorMapError, match="no field box_dim with the ordinal 5"):
        replace(data, "box_dim", 5, 1)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
def test_boxes_of_every_rank_match_a_loop_over_their_elements(rank: int, swizzle: int) -> None:
    """Every element of the box, one at a time, with parts of the box outside on either side."""
    sizes, box, steps = (13, 6, 4, 3, 2)[:rank], (16, 4, 3, 2, 2)[:rank], (1, 2, 1, 1, 1)[:rank]
    strides = tuple(16 * n for n in (2, 14, 60, 200))[: rank - 1]
    tensor_map = TensorMap(0x8000, "u16", sizes, strides, box, steps, swizzle).check()
    moved = (box[0], *(-(-size // step) for size, step in zip(box[1:], steps[1:])))
    for corner in ((0,) * rank, (-8, *(-3,) * 4)[:rank], (8, 3, 2, 2, 1)[:rank], (104,) * rank):
        found = box_at(tensor_map, corner, 0x400)
        assert tensor_map.box_bytes == 2 * len(found.places) == 2 * int(np.prod(moved))
        for number, place in enumerate(itertools.product(*(range(n) for n in reversed(moved)))):
            index = [c + step * i for c, step, i in zip(corner, steps, reversed(place))]
            inside = all(0 <= i < size for i, size in zip(index, sizes))
            assert bool(found.inside[number]) == inside
            if inside:
                assert found.sources[number] == 0x8000 + 2 * index[0] + sum(
                    i * s for i, s in zip(index[1:], strides)
                )
            plain = 0x400 + 2 * number
            mask = (0, 1, 3, 7)[swizzle]
            assert found.places[number] == plain ^ ((plain >> 7 & mask) << 4)


@pytest.mark.parametrize(
    "columns, corner, unit, size",
    [
        (64, 0, 1, 16),
        (64, -8, 1, 16),
        (64, 56, 1, 16),
        (40, 32, 1, 16),  # 16 bytes lie together, inside or outside.
        (37, 32, 16, 16),
        (37, 32, 1, 2),  # The array ends within 16 bytes.
    ],
)
@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
def test_a_wide_box_has_the_bytes_of_its_elements(
    swizzle: int, columns: int, corner: int, unit: int, size: int
) -> None:
    tensor_map = TensorMap(0x8000, "u16", (columns, 6), (144,), (16, 4), (1, 2), swizzle).check()
    wide, plain = (box_at(tensor_map, (corner, 1), 0x400, unit, wide) for wide in (True, False))
    assert (wide.size, plain.size) == (size, 2)
    for box_bytes in ("places", "sources"):
        of_wide, of_plain = (
            (getattr(box, box_bytes)[box.inside][:, None] + np.arange(box.size)).ravel()
            for box in (wide, plain)
        )
        np.testing.assert_array_equal(of_wide, of_plain)
    np.testing.assert_array_equal(np.repeat(wide.inside, size // 2), plain.inside)


def test_boxes_refuse_wrong_coordinates_and_places() -> None:
    with pytest.raises(Fault, match="3 coordinates for a tensor map of rank 2"):
        box_at(example(), (0, 0, 0), 0)
    with pytest.raises(Fault, match="not a multiple of 128"):
        box_at(example(), (0, 0), 64)
    with pytest.raises(Fault, match="begins at element -3 of its rows, which is not a multiple of 16 bytes"):
        box_at(example(), (-3, 0), 0)


def test_bulk_reductions() -> None:
    old, new = np.array([1, 5, 0xFFFFFFFF], np.uint32), np.array([4, 4, 4], np.uint32)
    assert reduce_elements("add", "u32", old, new).tolist() == [5, 9, 3]
    assert reduce_elements("max", "s32", old, new).tolist() == [4, 5, 4]
    assert reduce_elements("inc", "u32", old, new).tolist() == [2, 0, 0]
    assert reduce_elements("dec", "u32", old, new).tolist() == [0, 4, 4]
    halves = np.array([1.5, -2], np.float16).view(np.uint16)
    assert reduce_elements("add", "f16", halves, halves).view(np.float16).tolist() == [3, -4]
    bfloats = np.array([0x3F80, 0x4000], np.uint16)
    assert reduce_elements("add", "bf16", bfloats, bfloats).tolist() == [0x4000, 0x4080]


def test_a_box_to_memory_ends_with_a_whole_unit() -> None:
    tensor_map = TensorMap(0x8000, "u16", (37, 4), (80,), (16, 2), (1, 1), 0).check()
    for unit, columns in ((1, 5), (16, 8)):
        inside = box_at(tensor_map, (32, 3), 0x400, unit).inside.reshape(2, 16)
        np.testing.assert_array_equal(inside[0], np.arange(16) < columns)
        assert not inside[1].any()
