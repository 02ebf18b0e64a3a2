"""What follows from layouts: `kbuild layout` prints these facts and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.compiler.driver import read_ir
from kbuild.compiler.views.facts import facts_of, facts_of_both
from kbuild.compiler.views.sources import ShownLayout, in_words, of_value, parse_shape, place_of
from kbuild.compiler.views.table import table
from kbuild.errors import CompileError, KbuildError, UsageError
from kbuild.targets import find_target
from tests.compiler.upstream.test_meaning import TEXTS

TARGET = find_target("sm_90")
WIDE = "BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])"
MMA = "NVMMADistributedLayout([2, 0], [4, 1], [16, 8])"
TILE = "swizzled{vector=8, perPhase=1, maxPhase=8, order=[1,0]}"
PLAIN = "swizzled{vector=1, perPhase=1, maxPhase=1, order=[1,0]}"


def shown(text: str, shape: tuple[int, ...] | None = (64, 64), element: str = "fp16") -> ShownLayout:
    return in_words(text, shape, element)


def facts(text: str, shape: tuple[int, ...] = (64, 64), element: str = "fp16") -> dict[str, str]:
    return facts_of(shown(text, shape, element), TARGET)


def both(one: str, other: str, shape: tuple[int, ...] = (64, 64), element: str = "fp16") -> dict[str, str]:
    return facts_of_both(shown(one, shape, element), shown(other, shape, element), TARGET)


def test_a_tensor() -> None:
    assert facts(WIDE) == {
        "layout": "blocked{sizePerThread=[1,8], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}",
        "shape": "64x64",
        "elements": "fp16",
        "spread": "32 registers of a thread, 32 lanes of a warp, 4 warps",
        "registers": "32 elements of a thread in 16 registers of 32 bits",
        "vector along axis 1": (
            "8 elements, 16 bytes; an access of a warp touches 16 sectors of 32 bytes, where 16 would do"
        ),
        "vector along axis 0": (
            "1 element, 2 bytes; an access of a warp touches 4 sectors of 32 bytes, where 2 would do"
        ),
    }


def test_copies_are_counted() -> None:
    assert facts(WIDE, (8, 64))["copies"] == "each element is held 4 times: by 4 warps"
    assert facts(WIDE, (32, 8))["copies"] == "each element is held 4 times: by 4 lanes of a warp"
    assert "copies" not in facts(WIDE)


def test_banks_of_a_tile() -> None:
    column = "32 elements along axis 0"
    assert facts(PLAIN, (32, 32), "fp32")[column] == "32 wavefronts where 1 would do: bank conflicts"
    swizzled = "swizzled{vector=1, perPhase=1, maxPhase=32, order=[1,0]}"
    assert facts(swizzled, (32, 32), "fp32")[column] == "1 wavefront where 1 would do: free of bank conflicts"
    padded = "PaddedSharedLayout.with_identity_for([[32, 1]], [32, 32], [1, 0])"
    assert facts(padded, (32, 32), "fp32")[column] == "1 wavefront where 1 would do: free of bank conflicts"
    assert facts(padded, (32, 32), "fp32")["bytes"] == str((32 * 33 - 1) * 4)


def test_tiles_of_wgmma_are_known() -> None:
    found = facts("NVMMASharedLayout(128, 16, 2)")
    assert found["tensor cores"] == "wgmma and TMA read it: swizzle of 128 bytes"
    assert "tensor cores" not in facts(PLAIN)


def test_instructions_between_a_tensor_and_a_tile() -> None:
    assert both(f"DotOperandLayout(0, {MMA}, 2)", TILE)["load"] == (
        "4 ldmatrix.x4 of each warp, 16 wavefronts where 16 would do: free of bank conflicts"
    )
    assert both(f"DotOperandLayout(0, {MMA}, 2)", PLAIN)["load"] == (
        "4 ldmatrix.x4 of each warp, 128 wavefronts where 16 would do: bank conflicts"
    )
    # Eight lanes whose vectors are served at once have one row, or parts of two rows in the same banks.
    assert both(WIDE.replace("[8, 4]", "[4, 8]"), TILE) == {
        "store": "4 st.shared.v4.b32 of each warp, 16 wavefronts where 16 would do: free of bank conflicts",
        "load": "4 ld.shared.v4.b32 of each warp, 16 wavefronts where 16 would do: free of bank conflicts",
    }
    assert both(WIDE, TILE)["load"].endswith("32 wavefronts where 16 would do: bank conflicts")
    assert both(TILE, WIDE) == both(WIDE, TILE)
    old = facts_of_both(shown(MMA), shown(TILE), find_target("sm_80"))["store"]
    assert "st.shared.b32" in old and "stmatrix" in both(MMA, TILE)["store"]


def test_conversions() -> None:
    other = "BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])"
    assert both(WIDE, WIDE)["conversion"] == "nothing moves"
    assert both(WIDE, other)["conversion"].startswith("through ")
    assert "nothing goes from one to the other" in both(TILE, PLAIN)["together"]


def test_one_layout_in_three_languages() -> None:
    triton = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>"
    own = "#blocked{sizePerThread=[1,8], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}"
    assert shown(triton).layout == shown(own).layout == shown(f"gl.{WIDE}").layout
    sliced = f"SliceLayout(0, {WIDE})"
    assert shown(sliced, (64,)).layout == shown(f"#ttg.slice<{{dim = 0, parent = {triton}}}>", (64,)).layout


def test_a_layout_may_bring_its_shape() -> None:
    text = "#ttg.padded_shared<[32:+4] {order = [1, 0], shape = [16, 32]}>"
    assert shown(text, None).layout.shape == (16, 32)
    with pytest.raises(UsageError, match="its shape is not known"):
        shown(WIDE, None)


def test_the_table_of_a_tensor() -> None:
    small = shown("BlockedLayout([1, 2], [4, 8], [1, 1], [1, 0])", (2, 4))
    assert table(small.layout, 16) == (
        "element at its place: register:lane:warp\n"
        "0:0:0 1:0:0 0:1:0 1:1:0\n"
        "0:8:0 1:8:0 0:9:0 1:9:0\n"
        "copies: lane^2, lane^4, lane^16"
    )


def test_the_table_of_a_tile() -> None:
    tile = shown("swizzled{vector=2, perPhase=1, maxPhase=2, order=[1,0]}", (2, 4))
    assert table(tile.layout, 16) == (
        "byte of shared memory: the elements there, 128 bytes in a line\n"
        "     0: 0,0 0,1 0,2 0,3 1,2 1,3 1,0 1,1\n\n"
        "element at its place: offset in elements\n"
        "0 1 2 3\n"
        "6 7 4 5"
    )
    gaps = shown("padded{gaps=[[2,1]], offset=[[0,1],[1,0]]}", (2, 2))
    assert "     0: 0,0 0,1   . 1,0 1,1" in table(gaps.layout, 16)


def value(name: str, file: Path = TEXTS / "pipelined.ttgir") -> ShownLayout:
    names = {}
    module = read_ir(file.read_text(), str(file), names=names)
    return of_value(f"{file.name}:{name}", name, module, names)


def test_a_value_of_a_dump() -> None:
    tile = facts_of(value("%a_tiles"), TARGET)
    assert tile["layout"] == "swizzled{vector=8, perPhase=4, maxPhase=2, order=[1,0]}"
    assert tile["elements"] == "f16" and tile["shape"] == "32x16"
    assert tile["kernel"] == "pipelined: 2 warps, 4096 bytes of shared memory"
    assert tile["occupancy"].startswith("32 programs on a multiprocessor of sm_90, 64 of 64 warps")
    operand = "DotOperandLayout(1, NVMMADistributedLayout([2, 0], [2, 1], [16, 8]), 2)"
    assert value("%36").layout == shown(operand, (16, 32)).layout


@pytest.mark.parametrize(
    ("name", "message"),
    [("%nothing", "there is no value %nothing"), ("%rounds", "%rounds is i32, whose layout cannot be shown: it has none")],
)  # fmt: skip
def test_values_without_a_layout(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        value(name)
    assert message in caught.value.message


def test_places_and_shapes() -> None:
    assert place_of("dump.ttgir:%x#0") == ("dump.ttgir", "%x#0")
    assert place_of(TILE) is None
    assert parse_shape("64x32") == parse_shape("64, 32") == (64, 32)
    for text in ("64x", "60x64", "0", "1048576"):
        with pytest.raises(UsageError, match="--shape"):
            parse_shape(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#blocked{sizePerThread=[1]}", "threadsPerWarp"),
        ("blokced{order=[0]}", "blokced"),
        ("BlockedLayout([1, 8], [8, 4], [4, 1])", "order"),
        ("BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])", "has 64 threads, a warp has 32"),
        ("SliceLayout(0, BlockedLayout([8], [32], [4], [0]))", ""),
        ("AutoLayout()", "is chosen by the compiler"),
        ("auto{}", "is chosen by the compiler"),
        ("#ttg.blocked<{order = [1, 0]}> and more", "unexpected text after the layout: 'and'"),
        ("#ttg.nvidia_mma<{versionMajor = 9}>", ""),
        ("linear{register=[], lane=[], warp=[], block=[]}", "does not reach all elements of a tensor of shape [64, 64]"),
        ("__import__('os')", ""),
    ],
)  # fmt: skip
def test_layouts_that_are_none(text: str, message: str) -> None:
    with pytest.raises(KbuildError) as caught:
        shown(text)
    assert message in caught.value.message
    assert isinstance(caught.value, CompileError | UsageError)


def test_a_type_that_is_none() -> None:
    with pytest.raises(UsageError) as caught:
        shown(WIDE, element="fp61")
    assert caught.value.help == 'did you mean "fp64"?'
