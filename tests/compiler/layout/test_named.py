"""The named layouts against the formulas of the PTX manual and of Triton, written out."""

import pytest

from kbuild.compiler.layout import (
    LinearLayout,
    blocked,
    classify,
    coalesced,
    default_blocked,
    dot_operand,
    fma_operand,
    fma_result,
    in_pairs,
    mma_accumulator,
    out_of_pairs,
    slice_of,
    swizzled,
    unswizzled,
    wgmma_accumulator,
    wgmma_mode,
    wgmma_shared,
    widened,
)
from kbuild.compiler.layout.shared import wavefronts
from kbuild.errors import InternalError

LANES = [(lane, lane >> 2, lane & 3) for lane in range(32)]


def test_blocked_by_hand():
    layout = blocked((16, 64), [1, 2], [4, 8], [2, 2], [1, 0])
    for lane in range(32):
        for warp in range(4):
            for register in range(layout.size("register")):
                row = lane // 8 + 4 * (warp // 2) + 8 * (register // 4)
                column = register % 2 + 2 * (lane % 8) + 16 * (warp % 2) + 32 * (register // 2 % 2)
                assert layout.coordinates(register=register, lane=lane, warp=warp) == (row, column)


def test_blocked_larger_than_the_tensor_copies():
    layout = blocked((2, 4), [1, 2], [4, 8], [2, 2], [1, 0])
    assert layout == LinearLayout.make((2, 4), register=[1], lane=[2, 0, 0, 4, 0], warp=[0, 0])


def test_coalesced_fills_the_fastest_axis_first():
    assert coalesced((128, 64), [1, 0], 8, 4) == blocked((128, 64), [1, 8], [4, 8], [4, 1], [1, 0])
    assert coalesced((64, 512), [1, 0], 4, 4) == blocked((64, 512), [1, 4], [1, 32], [1, 4], [1, 0])
    assert coalesced((64, 512), [0, 1], 4, 4) == blocked((64, 512), [4, 1], [16, 2], [1, 4], [0, 1])
    assert default_blocked((1024,), 4) == blocked((1024,), [1], [32], [4], [0])
    assert default_blocked((), 4).size("lane") == 32
    assert default_blocked((), 4).free_bits("warp") == 3


def test_coalesced_gives_each_warp_a_run_of_vectors():
    layout = coalesced((8192,), [0], 8, 4, run=2)
    assert [layout.flat(register=register, lane=0, warp=0) for register in (0, 7, 8, 16)] == [0, 7, 256, 2048]
    assert layout.flat(register=0, lane=0, warp=1) == 512
    assert coalesced((1024,), [0], 8, 4, run=2) == blocked((1024,), [8], [32], [4], [0])


def test_widened_exchanges_lanes_for_registers_of_the_same_warp():
    layout = mma_accumulator((32, 64), (2, 1))
    wide = widened(layout, 8)
    assert wide is not None and wide.contiguous_per_thread() == 8
    assert wide == LinearLayout.make(
        (32, 64), register=[1, 2, 4, 512, 32], lane=[8, 16, 64, 128, 256], warp=[1024]
    )
    assert wide.bases_of("warp") == layout.bases_of("warp") and classify(layout, wide) == "shuffle"
    assert widened(layout, 2) == layout
    assert widened(mma_accumulator((32, 16), (2, 1)), 8) is None, (
        "two columns for each lane are too few to give"
    )


def test_slice_keeps_copies_in_other_threads_only():
    parent = blocked((16, 64), [1, 2], [4, 8], [2, 2], [1, 0])
    layout = slice_of(parent, 1)
    assert layout == LinearLayout.make((16,), register=[8], lane=[0, 0, 0, 1, 2], warp=[0, 4])
    assert parent.drop(1).bases_of("register") == (0, 0, 8)


@pytest.mark.parametrize(
    "shape, num_warps, tile",
    [
        ((128, 64), 4, (8, 8)),
        ((128, 128), 4, (8, 16)),
        ((256, 128), 8, (8, 16)),
        ((16, 256), 4, (4, 8)),
        ((8, 8), 1, (1, 2)),
        ((4, 4), 4, (1, 1)),
        ((4, 32, 32), 4, (1, 4, 8)),
        ((2, 64, 64), 8, (1, 4, 8)),
    ],
)
def test_results_of_fma_are_square_tiles(shape, num_warps, tile):
    """Operands are the fewest for a thread's multiply-adds, and lie in vectors of up to four across k."""
    layout = fma_result(shape, num_warps)
    held = {layout.unflatten(flat) for flat in layout.registers()}
    assert tuple(len({at[axis] for at in held}) for axis in range(len(shape))) == tile
    assert layout.is_surjective() and layout.is_injective() == (layout.numel >= 32 * num_warps)
    box = [range(min(4, size)) for size in tile[-2:]]
    assert {at[-2:] for at in held} >= {(row, column) for row in box[0] for column in box[1]}


def test_phases_of_a_load_for_fma_are_free_of_conflicts():
    for shape, num_warps in (((128, 64), 4), ((128, 128), 8), ((128, 256), 8)):
        layout = fma_result(shape, num_warps)
        for index, size in enumerate(shape):
            operand, order = fma_operand(layout, index, 8), [index, 1 - index]
            tile = unswizzled((8, size) if index else (size, 8), order)
            assert wavefronts(operand, tile, 32) == len(operand.unique_registers())


def test_mma_accumulator_formula():
    layout = mma_accumulator((16, 8), (1, 1))
    for lane, g, t in LANES:
        for i in range(4):
            assert layout.coordinates(register=i, lane=lane) == (g + 8 * (i >> 1), 2 * t + (i & 1))


def test_mma_accumulator_over_warps():
    layout = mma_accumulator((64, 64), (2, 2))
    assert layout.coordinates(warp=1) == (16, 0) and layout.coordinates(warp=2) == (0, 8)
    assert [layout.coordinates(register=1 << bit) for bit in range(5)] == [
        (0, 1),
        (8, 0),
        (0, 16),
        (0, 32),
        (32, 0),
    ]
    batched = mma_accumulator((4, 32, 16), (2, 2))
    assert batched.drop(0, compress=True) == mma_accumulator((32, 16), (2, 2))
    double = mma_accumulator((8, 8), (1, 1), instruction=(8, 8))
    assert all(
        double.coordinates(register=i, lane=lane) == (g, 2 * t + i) for lane, g, t in LANES for i in range(2)
    )


@pytest.mark.parametrize("k_width, k", [(2, 16), (4, 32)])
def test_packed_operand_formulas(k_width, k):
    """m16n8k16 for 16-bit, m16n8k32 for 8-bit: register r, element b of it."""
    a, b = dot_operand((16, k), (1, 1), 0, k_width), dot_operand((k, 8), (1, 1), 1, k_width)
    for lane, g, t in LANES:
        for r in range(4):
            for e in range(k_width):
                expected = (g + 8 * (r & 1), k_width * t + e + 4 * k_width * (r >> 1))
                assert a.coordinates(register=r * k_width + e, lane=lane) == expected
        for r in range(2):
            for e in range(k_width):
                assert b.coordinates(register=r * k_width + e, lane=lane) == (
                    k_width * t + e + 4 * k_width * r,
                    g,
                )


def test_tf32_operand_formulas():
    a, b = dot_operand((16, 8), (1, 1), 0, 1), dot_operand((8, 8), (1, 1), 1, 1)
    for lane, g, t in LANES:
        assert all(
            a.coordinates(register=r, lane=lane) == (g + 8 * (r & 1), t + 4 * (r >> 1)) for r in range(4)
        )
        assert all(b.coordinates(register=r, lane=lane) == (t + 4 * r, g) for r in range(2))


def test_f64_operand_formulas():
    a, b = dot_operand((8, 4), (1, 1), 0, 1, (8, 8)), dot_operand((4, 8), (1, 1), 1, 1, (8, 8))
    assert all(
        a.coordinates(lane=lane) == (g, t) and b.coordinates(lane=lane) == (t, g) for lane, g, t in LANES
    )


def test_operands_are_where_the_accumulators_warps_need_them():
    """Warps that own a row of C own it in A, those that own a column of C own it in B."""
    c, a, b = (
        mma_accumulator((64, 32), (2, 2)),
        dot_operand((64, 64), (2, 2), 0, 2),
        dot_operand((64, 32), (2, 2), 1, 2),
    )

    def held(layout, warp, axis):
        return {
            layout.coordinates(register=register, lane=lane, warp=warp)[axis]
            for register in range(layout.size("register"))
            for lane in range(32)
        }

    for warp in range(4):
        assert held(c, warp, 0) == held(a, warp, 0)
        assert held(c, warp, 1) == held(b, warp, 1)


def test_accumulator_pairs_are_the_next_operand():
    """P @ V without shuffles: two n8 tiles of C are the A fragment of one k16 step."""
    c, a = mma_accumulator((16, 16), (1, 1)), dot_operand((16, 16), (1, 1), 0, 2)
    assert c.bases == a.bases


@pytest.mark.parametrize("n", [8, 64, 256])
def test_wgmma_accumulator_formula(n):
    layout = wgmma_accumulator((64, n), (4, 1), n)
    for lane, g, t in LANES:
        for w in range(4):
            for i in range(n // 2):
                expected = (16 * w + g + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * t + (i & 1))
                assert layout.coordinates(register=i, lane=lane, warp=w) == expected


def test_wgmma_groups_and_repetitions():
    layout = wgmma_accumulator((128, 256), (4, 2), 64)
    assert [layout.coordinates(warp=1 << bit) for bit in range(3)] == [(16, 0), (32, 0), (0, 64)]
    assert [layout.coordinates(register=1 << bit) for bit in (5, 6)] == [(0, 128), (64, 0)]


@pytest.mark.parametrize("order", [[1, 0], [0, 1]])
def test_swizzled_rule(order):
    vector, per_phase, max_phase, shape = 8, 2, 4, (64, 32) if order == [1, 0] else (32, 64)
    layout = swizzled(shape, vector, per_phase, max_phase, order)
    for offset in range(2048):
        row, column = divmod(offset, 32)
        chunk = column // vector ^ row // per_phase % max_phase
        expected = (row, chunk * vector + column % vector)
        assert layout.coordinates(offset=offset) == (expected if order == [1, 0] else expected[::-1])
    assert swizzled(shape, 1, 1, 1, order) == unswizzled(shape, order)


@pytest.mark.parametrize("swizzle_bytes, mask", [(128, 7), (64, 3), (32, 1), (0, 0)])
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
def test_wgmma_shared_follows_the_byte_address_rule(swizzle_bytes, mask, element_bytes):
    """TMA writes panels of [rows][swizzle bytes], then the hardware permutes byte addresses a ^= (a >> 7 &
    mask) << 4."""
    rows, columns, width = 32, 256 // element_bytes, (swizzle_bytes or 16) // element_bytes
    layout = wgmma_shared((rows, columns), 8 * element_bytes, swizzle_bytes)
    for row in range(rows):
        for column in range(0, columns, 3):
            panel = column // width * rows * width
            address = (panel + row * width + column % width) * element_bytes
            address ^= (address >> 7 & mask) << 4
            assert layout.coordinates(offset=address // element_bytes) == (row, column)
    transposed = wgmma_shared((columns, rows), 8 * element_bytes, swizzle_bytes, transposed=True)
    assert transposed.transpose((1, 0)) == layout


@pytest.mark.parametrize(("shape", "swizzle"), [((64, 32), 128), ((64, 8), 32), ((64, 4), 0)])
def test_rows_are_at_least_as_wide_as_the_swizzle(shape, swizzle):
    with pytest.raises(
        InternalError, match=f"{shape[1]} elements of 16 bits are narrower than {swizzle or 16} bytes"
    ):
        wgmma_shared(shape, 16, swizzle)
    assert wgmma_shared((shape[0], 2 * shape[1]), 16, swizzle).shape == (shape[0], 2 * shape[1])


def test_pairs_along_an_axis():
    """Place t + 4r of each eight along k holds element 2t + r, for the fragment of A as for a tile of B."""
    plain, held = wgmma_shared((32, 16), 32, 128, transposed=True), dot_operand((64, 32), (4, 1), 0, 1)
    pairs = in_pairs(plain, 0)
    for place in range(32):
        element = place // 8 * 8 + 2 * (place % 4) + place // 4 % 2
        assert pairs.coordinates(offset=place) == (element, 0)
    assert out_of_pairs(pairs, 0) == plain and wgmma_mode(pairs, 32) is None
    words = dot_operand((64, 32), (4, 1), 0, 2)
    assert in_pairs(held, 1).bases_of("lane") == words.bases_of("lane")
    assert set(in_pairs(held, 1).bases_of("register")) == set(words.bases_of("register"))


def test_stages_follow_one_another():
    layout = wgmma_shared((4, 64, 64), 16, 128)
    assert layout.coordinates(offset=4096) == (1, 0, 0)
    assert layout.drop(0).bases_of("offset")[:12] == wgmma_shared((64, 64), 16, 128).bases_of("offset")


def test_wgmma_recognises_its_layouts():
    assert wgmma_mode(wgmma_shared((64, 128), 16, 128), 16) == (128, False)
    assert wgmma_mode(wgmma_shared((4, 32, 64), 8, 32, transposed=True), 8) == (32, True)
    assert wgmma_mode(wgmma_shared((64, 64), 16, 0), 16) == (0, False)
    # One panel of the TMA swizzle is also Triton's swizzle of 16-byte chunks over eight rows.
    assert wgmma_mode(swizzled((64, 64), 8, 1, 8, [1, 0]), 16) == (128, False)
    assert wgmma_mode(unswizzled((64, 64), [1, 0]), 16) is None
