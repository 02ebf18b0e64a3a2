"""`kbuild layout`, and `kbuild opt` on Triton's texts and with analyses."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kbuild import cli
from kbuild.compiler.upstream import is_upstream

TEXTS = Path(__file__).parents[1] / "compiler/upstream/texts"
WIDE = "BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])"
TILE = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"


@pytest.fixture(autouse=True)
def texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TEXTS)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main([*words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_a_layout_as_table_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "layout", WIDE, "--shape", "16x32")
    assert out.startswith("element at its place: register:lane:warp\n 0:0:0  1:0:0")
    assert "\nregisters " in out and "\nvector along axis 1 " in out
    quiet = run(capsys, "layout", WIDE, "--shape", "16x32", "-q")
    assert quiet.startswith("layout ") and out.endswith(quiet)


def test_two_layouts_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "layout", WIDE, "--shape", "64,64", "--with", TILE, "--json"))
    assert found["facts"]["shape"] == "64x64"
    assert found["with"]["load"].startswith("4 ld.shared.v4.b32 of each warp")


def test_a_value_of_triton_s_dump(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    drawing = tmp_path / "b.svg"
    out = run(
        capsys, "layout", "pipelined.ttgir:%b_tiles", "--with", "pipelined.ttgir:%36", "-o", str(drawing)
    )
    assert "swizzled{vector=8, perPhase=2, maxPhase=4, order=[1,0]}" in out
    assert "ldmatrix.x4.trans of each warp" in out and "free of bank conflicts" in out
    assert "pipelined: 2 warps" in out
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([WIDE], "its shape is not known\nhelp: a layout in words fits tensors of many shapes: say which"),
        ([WIDE, "--shape", "64x60"], "--shape 64x60: sizes are powers of two"),
        ([WIDE, "--shape", "64x64", "-o", "x.png"], "-o x.png: drawings are SVG\nhelp: write, for example, -o x.svg"),
        ([WIDE, "--shape", "64x64", "--with", "no.ttgir:%x"], "no.ttgir: No such file or directory"),
        (["pipelined.ttgir:%a_tile"], 'there is no value %a_tile\nhelp: did you mean "%a_tiles"?'),
        (["pipelined.ttgir:%20", "--with", "pipelined.ttgir:%b_tiles"], "the layouts are of shapes 32x16 and 16x32"),
        ([WIDE, "--shape", "64x64", "--type", "fp61"], '--type fp61: no such type\nhelp: did you mean "fp64"?'),
        (["BlokcedLayout([1])", "--shape", "64"], "BlokcedLayout"),
        ([WIDE, "--shape", "64x64", "--arch", "sm_80", "--arch", "sm_90"], "layout takes one --arch"),
    ],
)  # fmt: skip
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert cli.main(["layout", *words]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and "kbuild failed" not in err


def test_opt_translates_what_triton_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = run(capsys, "opt", "wgmma.ttgir")
    assert not is_upstream(out) and "ttng.warp_group_dot" in out
    (tmp_path / "again.ttgir").write_text(out)
    assert run(capsys, "opt", str(tmp_path / "again.ttgir")) == out
    assert "ttg.async_copy" in run(capsys, "opt", "pipelined.ttgir", "-p", "canonicalize,cse")


def test_opt_shows_analyses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = run(capsys, "opt", "masked_add.ttir", "--print", "axis_info")
    assert "// axis_info: contiguity=[64]" in out
    (tmp_path / "shown.ttir").write_text(out)
    again = run(capsys, "opt", str(tmp_path / "shown.ttir"))
    assert again == run(capsys, "opt", "masked_add.ttir")
    both = run(capsys, "opt", "pipelined.ttgir", "--print", "liveness,allocation", "--print", "layouts")
    assert "// liveness: " in both and "allocation: " in both and "layouts: " in both
    assert cli.main(["opt", "masked_add.ttir", "--print", "livenes"]) == 2
    assert 'did you mean "liveness"?' in capsys.readouterr().err


def test_triton_s_ttgir_goes_on_to_ptx(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "compile", "wgmma.ttgir", "--emit", "ptx")
    assert "wgmma.mma_async.sync.aligned.m64n32k16" in out and "cp.async.bulk.tensor.2d" in out
    assert "mma.sync" in run(capsys, "compile", "pipelined.ttgir", "--emit", "ptx", "--arch", "sm_80")


def test_a_mistake_in_triton_s_text_has_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.ttgir"
    file.write_text(
        (TEXTS / "wgmma.ttgir").read_text().replace("ttng.warp_group_dot ", "ttng.warp_group_dto ")
    )
    for words in (["opt", str(file)], ["compile", str(file)], ["layout", f"{file}:%full"]):
        assert cli.main(words) == 1
        err = capsys.readouterr().err
        assert f"{file}:24:18: error: kbuild does not read ttng.warp_group_dto" in err
        assert 'did you mean "ttng.warp_group_dot"?' in err
