"""Layouts as text and as pictures."""

import random

import pytest

from kbuild.compiler.layout import (
    LinearLayout,
    blocked,
    coalesced,
    default_blocked,
    describe,
    dot_operand,
    mma_accumulator,
    parse_layout,
    show,
    slice_of,
    swizzled,
    unswizzled,
    wgmma_accumulator,
    wgmma_shared,
)
from kbuild.errors import CompileError
from tests.compiler.layout.random_layouts import SHAPES, random_layout

NAMED = {
    "blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}": (
        blocked((64, 32), [1, 4], [4, 8], [4, 1], [1, 0])
    ),
    "blocked{sizePerThread=[4,2], threadsPerWarp=[8,4], warpsPerCTA=[1,4], order=[0,1]}": (
        blocked((64, 64), [4, 2], [8, 4], [1, 4], [0, 1])
    ),
    "blocked{sizePerThread=[1], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}": default_blocked(
        (1024,), 4
    ),
    "mma{warps=[2,2], instruction=[16,8]}": mma_accumulator((64, 64), (2, 2)),
    "mma{warps=[4,1], instruction=[16,8]}": wgmma_accumulator((64, 128), (4, 1), 128),
    "mma{warps=[4,2], instruction=[16,64]}": wgmma_accumulator((64, 256), (4, 2), 64),
    "dotOperand{index=0, warps=[2,2], kWidth=2}": dot_operand((64, 64), (2, 2), 0, 2),
    "dotOperand{index=1, warps=[4,1], kWidth=4}": dot_operand((64, 64), (4, 1), 1, 4),
    "swizzled{vector=8, perPhase=1, maxPhase=8, order=[1,0]}": swizzled((64, 64), 8, 1, 8, [1, 0]),
    "swizzled{vector=8, perPhase=2, maxPhase=4, order=[0,1]}": swizzled((32, 64), 8, 2, 4, [0, 1]),
    "swizzled{vector=1, perPhase=1, maxPhase=1, order=[2,1,0]}": unswizzled((4, 8, 8), [2, 1, 0]),
    "wgmmaShared{elementBits=16, swizzleBytes=128, transposed=0}": wgmma_shared((64, 128), 16, 128),
    "slice{axis=0, size=16, parent=blocked{sizePerThread=[1,4], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}": (
        slice_of(blocked((64, 64), [1, 4], [4, 8], [4, 1], [1, 0]), 0)
    ),
    "slice{axis=1, size=8, parent=mma{warps=[4,1], instruction=[16,8]}}": slice_of(
        mma_accumulator((64, 64), (4, 1)), 1
    ),
}


@pytest.mark.parametrize("text", NAMED)
def test_named_forms(text):
    assert describe(NAMED[text]) == text
    assert parse_layout(text, NAMED[text].shape) == NAMED[text]


def test_raw_bases():
    layout = LinearLayout.make((4, 4), register=[(1, 1), (0, 2)], lane=[(2, 0), (0, 1)], warp=[])
    assert describe(layout) == "linear{register=[[1,1],[0,2]], lane=[[2,0],[0,1]], warp=[]}"


@pytest.mark.parametrize("seed", range(40))
def test_text_is_read_back(seed):
    source = random.Random(seed)
    layout = random_layout(source, source.choice(SHAPES))
    assert parse_layout(describe(layout), layout.shape) == layout


def test_everyday_layouts_have_names():
    """Whatever the shape, blocked layouts and slices of them never fall back to bases."""
    for shape in [(16, 256), (64, 64), (128, 16), (1, 256), (256, 1), (2, 2), (8, 16, 32), (1, 1, 64)]:
        for vector in (1, 2, 4):
            for warps in (1, 4, 8):
                order = list(reversed(range(len(shape))))
                layout = coalesced(shape, order, vector, warps)
                for this in [layout] + [slice_of(layout, axis) for axis in range(2) if len(shape) == 2]:
                    text = describe(this)
                    assert parse_layout(text, this.shape) == this
                    assert text.startswith(("blocked", "slice")), text


def test_layouts_of_many_axes_are_described_at_once():
    """An order of nine axes is not found by trying all 362,880; what no order fits has no name."""
    for shape in [(2,) * 9, (2, 1, 4, 1, 2, 1, 8, 1, 2), (1,) * 9, (16,) + (1,) * 8]:
        order = list(reversed(range(9)))
        for this in (
            coalesced(shape, order, 2, 4),
            coalesced(shape, order[::-1], 1, 8),
            unswizzled(shape, order[::-1]),
        ):
            text = describe(this)
            assert parse_layout(text, this.shape) == this
            assert text.startswith(("blocked", "swizzled")), text
    against = LinearLayout.make((4, 4, *(1,) * 12), lane=[1, 4], warp=[8, 2])
    assert describe(against).startswith("linear")
    mixed = LinearLayout.make((2,) * 9, register=[1, 6], lane=[3, 8, 16, 32, 64], warp=[128, 256])
    assert describe(mixed).startswith("linear") and parse_layout(describe(mixed), (2,) * 9) == mixed


@pytest.mark.parametrize(
    "text, message",
    [
        ("tiled{}", "unknown layout 'tiled'"),
        ("blocked{order=[1,0]}", "lacks its parameter sizePerThread"),
        ("linear{lane=[[0,1]", "ends too early"),
        ("linear{lane=x}", "expected a number or a list"),
        ("linear{lane=[]} more", "unexpected text"),
        ("linear lane", "expected '{'"),
        ("slice{axis=0, size=2, parent=linear{", "not closed"),
    ],
)
def test_errors_are_reported(text, message):
    with pytest.raises(CompileError, match=message):
        parse_layout(text, (4, 4))


def test_show_draws_the_grid():
    assert show(LinearLayout.make((2, 4), register=[1], lane=[2], warp=[4, 0])) == (
        "0:0:0 1:0:0 0:1:0 1:1:0\n0:0:1 1:0:1 0:1:1 1:1:1\ncopies: warp^2"
    )
    assert show(swizzled((4, 4), 1, 1, 4, [1, 0])) == " 0  1  2  3\n 5  4  7  6\n10 11  8  9\n15 14 13 12"
    assert show(unswizzled((2, 1, 2), [2, 1, 0])) == "[0, :, :]\n0 1\n[1, :, :]\n2 3"
