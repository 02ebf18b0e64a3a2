"""Drawings of layouts are SVG that needs nothing else, and show each element where it is."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from kbuild.compiler.views.drawing import CELL_WIDTH, SMALLEST_LABEL
from kbuild.compiler.views.pictures import picture
from kbuild.compiler.views.sources import in_words
from kbuild.targets import find_target

SVG = "{http://www.w3.org/2000/svg}"
WIDE = "BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])"
TILE = "swizzled{vector=8, perPhase=1, maxPhase=8, order=[1,0]}"
LETTER = 0.605
"""Width of a letter of DejaVu Sans Mono, the widest of the fonts, in units of its size."""


def drawn(text: str, shape: tuple[int, ...], other: str = "", element: str = "fp16") -> ElementTree.Element:
    shown = in_words(text, shape, element)
    with_ = in_words(other, shape, element) if other else None
    return ElementTree.fromstring(picture(shown, with_, find_target("sm_90")))


def labels(root: ElementTree.Element) -> list[list[str]]:
    """The labels of each line of a grid."""
    lines = [[span.text or "" for span in line] for line in root.iter(f"{SVG}text") if len(line)]
    return [line for line in lines if len(line) > 1]


def words(root: ElementTree.Element) -> list[str]:
    return [line.text for line in root.iter(f"{SVG}text") if line.text]


def check_drawing(root: ElementTree.Element) -> None:
    """It refers to nothing outside of itself, fits its size, and labels fit their cells."""
    assert root.tag == f"{SVG}svg"
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for element in root.iter():
        assert element.tag in {f"{SVG}{name}" for name in ("svg", "rect", "path", "text", "tspan")}
        assert not any("href" in name or "url(" in text for name, text in element.attrib.items())
    for line in root.iter(f"{SVG}text"):
        size = float(line.attrib["font-size"])
        assert size >= SMALLEST_LABEL and 0 <= float(line.attrib["y"]) <= height
        for span in line:
            assert 0 <= float(span.attrib["x"]) <= width
            if line.attrib.get("text-anchor") == "middle":
                assert len(span.text or "") * size * LETTER <= CELL_WIDTH + 2
        if line.text:
            assert float(line.attrib["x"]) + len(line.text) * size * LETTER <= width


def test_each_element_of_a_tensor_has_its_owner() -> None:
    root = drawn(WIDE, (64, 64))
    check_drawing(root)
    layout = in_words(WIDE, (64, 64), "fp16").layout
    grid = labels(root)
    assert grid[0] == [str(column) for column in range(64)] and len(grid) == 65
    for row, line in enumerate(grid[1:]):
        places = [layout.find(row * 64 + column) for column in range(64)]
        assert line == [f"{place['lane']}:{place['register']}" for place in places]
    # 32 lanes of 4 warps have colours of their own, and each cell a box.
    boxes = {path.attrib["fill"]: path.attrib["d"].count("M") for path in root.iter(f"{SVG}path")}
    assert len(boxes) == 128 and set(boxes.values()) == {32}
    assert [f"warp {warp}" for warp in range(4)] == [text for text in words(root) if text.startswith("warp ")]


def test_a_tile_shows_banks_and_swizzle() -> None:
    root = drawn(TILE, (8, 64))
    check_drawing(root)
    grid = labels(root)
    # Element (1, 0) is moved by 8 columns of 2 bytes: to bank 4 of the next 128 bytes.
    assert grid[1][:4] == ["0", "0", "1", "1"] and grid[2][:2] == ["4", "4"]
    ends = [
        line[0].text
        for line in root.iter(f"{SVG}text")
        if len(line) == 1 and str(line[0].text).startswith("^")
    ]
    assert ends == [f"^ {8 * row}" for row in range(8)]
    assert grid[-8][:2] == ["0,0", "0,2"] and grid[-7][:2] == ["1,8", "1,10"]


def test_gaps_stay_empty() -> None:
    root = drawn("padded{gaps=[[32,8]], offset=[[0,1],[0,2],[0,4],[0,8],[0,16],[1,0]]}", (2, 32))
    check_drawing(root)
    memory = labels(root)[-2:]
    assert memory[0][:16] == [f"0,{column}" for column in range(0, 32, 2)]
    assert memory[0][16:] == [f"1,{column}" for column in range(0, 24, 2)]  # From bank 20 on.


@pytest.mark.parametrize(
    ("tile", "wavefronts"), [(TILE, 1), ("swizzled{vector=1, perPhase=1, maxPhase=1, order=[1,0]}", 8)]
)
def test_bank_conflicts_are_stacks(tile: str, wavefronts: int) -> None:
    operand = "DotOperandLayout(0, NVMMADistributedLayout([2, 0], [4, 1], [16, 8]), 2)"
    root = drawn(operand, (64, 64), tile)
    check_drawing(root)
    phrases = words(root)
    assert "ldmatrix.x4" in " ".join(phrases)
    plural, conflicts = ("s", ", bank conflicts") if wavefronts > 1 else ("", "")
    assert f"lanes 0 to 7: {wavefronts} wavefront{plural}{conflicts}" in phrases


@pytest.mark.parametrize(
    ("text", "shape", "element"),
    [
        ("BlockedLayout([2], [32], [4], [0])", (512,), "fp32"),
        ("BlockedLayout([1, 1, 4], [1, 8, 4], [1, 4, 1], [2, 1, 0])", (8, 32, 16), "i8"),
        ("BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])", (256, 256), "fp64"),
        ("NVMMASharedLayout(64, 8, 2)", (16, 64), "fp8e5"),
        ("swizzled{vector=1, perPhase=1, maxPhase=1, order=[0]}", (4,), "i1"),
    ],
)
def test_other_shapes_are_legible_too(text: str, shape: tuple[int, ...], element: str) -> None:
    root = drawn(text, shape, element=element)
    check_drawing(root)
    cut = [line for line in words(root) if line.startswith("the first ")]
    is_whole = math.prod(shape[:-2]) <= 4 and (len(shape) == 1 or max(shape[-2:]) <= 64)
    assert bool(cut) == (not is_whole)
