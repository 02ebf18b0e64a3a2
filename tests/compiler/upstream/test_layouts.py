"""Triton's layouts, by the coordinates that each bit of an index adds; those of tensor cores are PTX's fragments."""

from __future__ import annotations

import pytest

from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.padded import gaps_of
from kbuild.compiler.upstream.attributes import AttributeReader
from kbuild.errors import CompileError

WIDE = "#ttg.blocked<{sizePerThread = [1, 2], threadsPerWarp = [8, 4], warpsPerCTA = [2, 1], order = [1, 0]}>"
MMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [1, 1], instrShape = [16, 8]}>"
FOUR_WARPS = MMA.replace("[1, 1]", "[2, 2]")
WGMMA = (
    "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 16, 16]}>"
)
LANES = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
TURNED_LANES = [[2, 0], [4, 0], [0, 1], [0, 2], [0, 4]]
SWIZZLED_ROW = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [1, 8], [2, 16], [4, 32]]


def layout_of(text: str, *shape: int) -> LinearLayout:
    return AttributeReader(text, "text").encoding().layout_of(shape)


def bases(layout: LinearLayout) -> dict[str, list[list[int]]]:
    """The coordinates that each bit adds, but for dimensions without bits."""
    found = {
        dim: [list(layout.unflatten(basis)) for basis in layout.bases_of(dim)] for dim, _ in layout.bases
    }
    return {dim: steps for dim, steps in found.items() if steps}


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        (WIDE, (16, 8), {"register": [[0, 1]], "lane": LANES, "warp": [[8, 0]]}),
        (WIDE, (32, 8), {"register": [[0, 1], [16, 0]], "lane": LANES, "warp": [[8, 0]]}),
        # What does not fit into a tensor is a copy.
        (
            WIDE,
            (4, 8),
            {"register": [[0, 1]], "lane": [[0, 2], [0, 4], [1, 0], [2, 0], [0, 0]], "warp": [[0, 0]]},
        ),
        (
            f"#ttg.slice<{{dim = 1, parent = {WIDE}}}>",
            (16,),
            {"lane": [[0], [0], [1], [2], [4]], "warp": [[8]]},
        ),
        (MMA, (16, 8), {"register": [[0, 1], [8, 0]], "lane": LANES}),
        (FOUR_WARPS, (32, 16), {"register": [[0, 1], [8, 0]], "lane": LANES, "warp": [[0, 8], [16, 0]]}),
        (WGMMA, (64, 16), {"register": [[0, 1], [8, 0], [0, 8]], "lane": LANES, "warp": [[16, 0], [32, 0]]}),
        (
            f"#ttg.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2}}>",
            (16, 16),
            {"register": [[0, 1], [8, 0], [0, 8]], "lane": LANES},
        ),
        (
            f"#ttg.dot_op<{{opIdx = 1, parent = {MMA}, kWidth = 2}}>",
            (16, 8),
            {"register": [[1, 0], [8, 0]], "lane": TURNED_LANES},
        ),
        (
            "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>",
            (16, 8),
            {"register": [[0, 1], [8, 0]], "lane": LANES},
        ),
        (
            "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>",
            (8, 64),
            {"offset": SWIZZLED_ROW},
        ),
        (
            "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>",
            (8, 64),
            {"offset": SWIZZLED_ROW},
        ),
        (
            "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = true, elementBitWidth = 16}>",
            (64, 8),
            {"offset": [[column, row] for row, column in SWIZZLED_ROW]},
        ),
        (
            "#ttg.shared_linear<{offset = [[0, 1], [1, 1], [2, 0]]}, alignment = 16>",
            (4, 2),
            {"offset": [[0, 1], [1, 1], [2, 0]]},
        ),
        (
            "#ttg.padded_shared<[4:+1] {offset = [[0, 1], [1, 0], [2, 0]], block = []}>",
            (4, 2),
            {"offset": [[0, 1], [1, 0], [2, 0]]},
        ),
    ],
)
def test_layouts(text: str, shape: tuple[int, ...], expected: dict[str, list[list[int]]]) -> None:
    assert bases(layout_of(text, *shape)) == expected


def test_memory_with_gaps() -> None:
    layout = layout_of("#ttg.padded_shared<[4:+1, 16:+2] {order = [1, 0], shape = [16, 2]}>", 16, 2)
    assert gaps_of(layout) == ((4, 1), (16, 2))
    assert [layout.find(flat)["offset"] for flat in (3, 4, 8, 16)] == [3, 5, 10, 22]


def test_layouts_of_vectors_and_blocks_have_another_rank() -> None:
    flat = "#ttg.nvmma_shared<{swizzlingByteWidth = 0, transposed = false, elementBitWidth = 8, rank = 1}>"
    assert layout_of(flat, 64).shape == (64,)
    deep = flat.replace("Width = 0", "Width = 32").replace("rank = 1", "rank = 3")
    assert layout_of(deep, 2, 16, 32).shape == (2, 16, 32)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        (WIDE, (16,), "layout blocked does not fit a tensor of shape [16]: it is for 2 axes"),
        (
            WIDE.replace("[8, 4]", "[8, 8]"),
            (16, 16),
            "layout blocked: threads_per_warp [8, 8] has 64 threads, a warp has 32",
        ),
        (WIDE.replace("order = [1, 0]", ""), (16, 16), "layout blocked lacks its parameter order"),
        (
            WIDE.replace("order", "CTAsPerCGA = [2, 1], CTASplitNum = [2, 1], CTAOrder = [1, 0], order"),
            (16, 16),
            "the tensor is spread over several CTAs, and kbuild gives each program one",
        ),
        (
            WIDE.replace("order", "CGALayout = [[0, 8]], order"),
            (16, 16),
            "the tensor is spread over several CTAs, and kbuild gives each program one",
        ),
        (
            "#ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>",
            (128, 64),
            "no layout for tensor_memory_encoding: tensor memory is of Blackwell's tensor cores, for which kbuild has "
            "no instructions",
        ),
        (
            "#ttg.amd_mfma<{version = 3, warpsPerCTA = [4, 1], instrShape = [32, 32, 8], isTransposed = true}>",
            (64, 64),
            "no layout for amd_mfma: it is a layout of AMD's tensor cores",
        ),
        ("#ttg.blokced<{order = [0]}>", (8,), "unknown layout 'blokced'"),
    ],
)
def test_layouts_that_kbuild_lacks(text: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(CompileError) as caught:
        layout_of(text, *shape)
    assert caught.value.message == message
