"""The layouts that authors of Gluon write, against what Triton documents of them, and their way through operations."""

import pytest

from kbuild.compiler.layout import LinearLayout, blocked, describe, parse_layout
from kbuild.compiler.layout.derived import (
    expanded,
    joined,
    permuted,
    permuted_shared,
    placed,
    reshaped,
    reshaped_shared,
    sliced,
    split,
    written,
)
from kbuild.compiler.layout.gluon import (
    AutoLayout,
    BlockedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from kbuild.compiler.layout.padded import PaddedLayout, gaps_of, moved_up, together

TILE = BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
DENSE = SwizzledSharedLayout(1, 1, 1, [1, 0])


def test_registers_that_repeat_others_are_left_out():
    assert BlockedLayout([4, 4], [4, 8], [4, 1], [1, 0]).linear((16, 16)) == LinearLayout.make(
        (16, 16),
        register=[(0, 1), (0, 2), (1, 0), (2, 0)],
        lane=[(0, 4), (0, 8), (0, 0), (4, 0), (8, 0)],
        warp=[(0, 0), (0, 0)],
    )
    narrow = BlockedLayout([8], [32], [4], [0])
    assert narrow.whole((4,)).size("register") == 8 and narrow.linear((4,)).size("register") == 4


def test_words_of_one_meaning_are_one_layout():
    assert BlockedLayout([1, 4], (4, 8), [4, 1], (1, 0)) == TILE
    assert str(TILE) == (
        "BlockedLayout(size_per_thread=[1, 4], threads_per_warp=[4, 8], warps_per_cta=[4, 1], order=[1, 0])"
    )
    by_bases = DistributedLinearLayout.of(TILE.linear((16, 32)))
    assert by_bases != TILE and placed(by_bases, (16, 32)) == placed(TILE, (16, 32))
    assert written(placed(TILE, (16, 32))) is TILE


def test_a_slice_keeps_its_lanes_as_copies():
    rows = SliceLayout(1, TILE).linear((16,))
    assert rows == LinearLayout.make((16,), lane=[0, 0, 0, 1, 2], warp=[4, 8])


def test_warps_of_mma_sync_go_along_n_first():
    layout = NVMMADistributedLayout([2, 0], [2, 2], [16, 8]).linear((32, 16))
    assert layout.coordinates(register=0, lane=0, warp=1) == (0, 8)
    assert layout.coordinates(register=0, lane=0, warp=2) == (16, 0)
    assert [layout.coordinates(register=r, lane=5, warp=0) for r in range(4)] == [
        (1, 2), (1, 3), (9, 2), (9, 3)
    ]  # fmt: skip


def test_warps_of_wgmma_go_along_m_first():
    layout = NVMMADistributedLayout([3, 0], [4, 2], [16, 32, 16]).linear((64, 64))
    assert layout.coordinates(register=0, lane=0, warp=1) == (16, 0)
    assert layout.coordinates(register=0, lane=0, warp=4) == (0, 32)


def test_operands_of_tensor_cores_hold_k_width_neighbours():
    parent = NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    left = DotOperandLayout(0, parent, 2).linear((64, 16))
    assert [left.coordinates(register=r, lane=1, warp=0) for r in (0, 1, 2, 4)] == [
        (0, 2), (0, 3), (8, 2), (0, 10)
    ]  # fmt: skip
    right = DotOperandLayout(1, parent, 2).linear((16, 8))
    assert [right.coordinates(register=r, lane=1, warp=3) for r in (0, 1, 2)] == [(2, 0), (3, 0), (10, 0)]


def test_operands_of_scalar_dots_hold_all_of_k():
    left = DotOperandLayout(0, TILE, 0).linear((16, 8))
    assert left == blocked((16, 8), [1, 8], [4, 8], [4, 1], [1, 0])
    assert {left.coordinates(register=r, lane=9, warp=1) for r in range(8)} == {(5, k) for k in range(8)}


@pytest.mark.parametrize(
    ("swizzle", "row", "column", "offset"),
    [
        (128, 1, 0, 64 + 8),
        (128, 7, 8, 7 * 64 + 48),
        (64, 2, 0, 2 * 32 + 8),
        (32, 4, 0, 4 * 16 + 8),
        (0, 1, 0, 64),
    ],
)
def test_nvmma_shared_swizzles_chunks_of_16_bytes(swizzle, row, column, offset):
    tile = NVMMASharedLayout(swizzle, 16, 2).linear((64, 64))
    assert tile.coordinates(offset=offset) == (row, column)


def test_a_tile_for_tma_goes_box_by_box():
    tile = NVMMASharedLayout(128, 16, 2).linear((64, 128))
    assert tile.coordinates(offset=64 * 64) == (0, 64)
    turned = NVMMASharedLayout(128, 16, 2, transposed=True).linear((64, 64))
    assert turned.coordinates(offset=1) == (1, 0)


class _Half:
    primitive_bitwidth = 16


@pytest.mark.parametrize(
    ("shape", "swizzle"),
    [
        ([64, 64], 128),
        ([64, 32], 64),
        ([8, 16], 32),
        ([64, 8], 0),
        ([4, 64], 0),
        ([256], 0),
        ([2, 8, 64], 128),
    ],
)
def test_default_for_takes_the_widest_swizzle(shape, swizzle):
    found = NVMMASharedLayout.get_default_for(shape, _Half)
    assert found == NVMMASharedLayout(swizzle, 16, len(shape))


def test_gaps_move_up_what_lies_above_them():
    author = PaddedSharedLayout.with_identity_for([[4, 1], [8, 2]], [4, 4], [1, 0])
    layout = author.linear((4, 4))
    assert isinstance(layout, PaddedLayout)
    assert [moved_up(offset, gaps_of(layout)) for offset in (3, 4, 8, 15)] == [3, 5, 12, 20]
    assert together(gaps_of(layout)) == 1
    assert PaddedSharedLayout.of(layout) == author
    assert gaps_of(layout.transpose((1, 0))) == gaps_of(layout)
    assert layout != DENSE.linear((4, 4))


@pytest.mark.parametrize("text", ["auto{}", "coalesced{}"])
def test_open_layouts_have_a_text(text):
    layout = parse_layout(text, (8, 8))
    assert describe(layout) == text
    assert layout != placed(TILE, (8, 8)) and layout.transpose((1, 0)) == layout


WAYS = [
    ("expand", expanded(SliceLayout(0, TILE), 0), TILE),
    ("expand elsewhere", expanded(SliceLayout(0, TILE), 1), None),
    ("expand no slice", expanded(BlockedLayout([1], [32], [4], [0]), 0), None),
    ("reduce", sliced(TILE, 1), SliceLayout(1, TILE)),
    ("reduce open", sliced(AutoLayout(), 1), AutoLayout()),
    ("permute", permuted(TILE, (16, 32), (1, 0)), BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])),
    (
        "permute three",
        permuted(BlockedLayout([1, 2, 4], [2, 4, 4], [4, 1, 1], [2, 1, 0]), (8, 8, 16), (2, 0, 1)),
        BlockedLayout([4, 1, 2], [4, 2, 4], [1, 4, 1], [0, 2, 1]),
    ),
    (
        "flatten",
        reshaped(BlockedLayout([4], [32], [4], [0]), (512,), (16, 32)),
        BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]),
    ),
    ("join", joined(BlockedLayout([4], [32], [4], [0]), (512,)), BlockedLayout([4, 2], [32, 1], [4, 1], [1, 0])),
    ("join halves", joined(SliceLayout(1, BlockedLayout([1, 2], [32, 1], [4, 1], [1, 0])), (128,)),
     BlockedLayout([1, 2], [32, 1], [4, 1], [1, 0])),
    ("split", split(BlockedLayout([1, 2], [32, 1], [4, 1], [1, 0]), (128, 2)),
     SliceLayout(1, BlockedLayout([1, 2], [32, 1], [4, 1], [1, 0]))),
    ("split across threads", split(BlockedLayout([1, 1], [16, 2], [4, 1], [1, 0]), (64, 2)), None),
]  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_through_operations(found, expected):
    assert found == expected


def test_views_of_shared_memory_keep_their_words_where_there_are_some():
    tile = NVMMASharedLayout(128, 16, 2)
    assert permuted_shared(tile, tile.linear((64, 64)), (1, 0)) == NVMMASharedLayout(
        128, 16, 2, transposed=True
    )
    assert reshaped_shared(DENSE, DENSE.linear((8, 8)), (64,)) == SwizzledSharedLayout(1, 1, 1, [0])
    swizzled = SwizzledSharedLayout(4, 1, 4, [1, 0])
    view = reshaped_shared(swizzled, swizzled.linear((8, 16)), (8, 4, 4))
    assert isinstance(view, SharedLinearLayout)
    assert view.linear((8, 4, 4)) == swizzled.linear((8, 16)).reshape((8, 4, 4))
