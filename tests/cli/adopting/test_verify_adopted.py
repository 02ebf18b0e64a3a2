"""`kbuild verify` after `kbuild capture` and `kbuild import`, with nothing written by hand: variants run with captured
launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbuild import cli
from kbuild.compiler import driver
from tests.cli.adopting.conftest import Recording

GATHER = """
import triton
import triton.language as tl
from lib.ops import Tensor


@triton.jit
def gather_kernel(x, rows, out, stride, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(rows + tl.program_id(0)) - {offset}
    values = tl.load(x + row * stride + columns, mask=columns < n)
    tl.store(out + tl.program_id(0) * stride + columns, values, mask=columns < n)


class Strided(Tensor):
    def stride(self):
        return (self.shape[1] + 8, 1)


for shape in ((3, 100), (5000, 100)):
    out = Strided(*shape)
    gather_kernel[shape[:1]](Tensor(2, 108), Tensor(shape[0], dtype="i64"), out, 108, 100, BLOCK=128)
"""


def verified(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[list[Any], str]:
    """The verdicts of the manifest that an import writes, and what else is said."""
    capsys.readouterr()
    assert cli.main(["import", "capture.jsonl", "-q"]) == 0
    assert cli.main(["verify", "--no-cache", "-k", "--json", "-j", "1", *words]) == code
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def test_variants_run_with_the_smallest_launch_that_was_captured(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record()
    verdicts, said = verified(capsys)
    assert {verdict["state"] for verdict in verdicts} == {"ok"} and len(verdicts) == 16
    assert "note: launches are the smallest that were captured, with a few programs of each" in said
    assert "16 ok, 0 failed" in said and "guessed" not in said
    launches = {verdict["variant"]: verdict["checks"][0]["launch"] for verdict in verdicts}
    assert launches["add.sm_90.fp16.BLOCK=1024.n=d16.w4s3"] == "n=4096, grid_0=4, grid_1=1, grid_2=1"
    assert launches["scale.sm_90.fp32.EVEN=1.n=d16.BLOCK=128.w8s3"] == (
        "n=6400, factor=2.0, grid_0=50, grid_1=1, grid_2=1; programs (0, 0, 0) (1, 0, 0) (48, 0, 0) (49, 0, 0)"
    )


def test_each_row_has_its_smallest_and_its_largest_launch(record: Recording) -> None:
    record(
        program="from lib.ops import Tensor, add\nfor n in (1000, 3000, 3000, 200, 160): add(Tensor(n), Tensor(n))\n"
    )
    assert cli.main(["import", "capture.jsonl", "-q"]) == 0
    assert 'launches = "captured/add.launches.jsonl"' in Path("kernels.toml").read_text()
    header, *rows = map(json.loads, Path("captured/add.launches.jsonl").read_text().splitlines())
    assert header == {
        "kbuild": "launches",
        "schema": 1,
        "at": ["BLOCK"],
        "hints": ["x", "y", "out", "n"],
        "values": ["grid_0", "grid_1", "grid_2", "n"],
        "arrays": ["x", "y", "out"],
    }
    assert rows == [
        [[1024], ["16", "16", "16", ""], [1, 1, 1, 200], [[200], [200], [200]]],
        [[1024], ["16", "16", "16", ""], [3, 1, 1, 3000], [[3000], [3000], [3000]]],
        [[1024], ["16", "16", "16", "16"], [1, 1, 1, 160], [[160], [160], [160]]],
    ]


def test_indices_are_made_up_and_strides_are_kept(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record(program=GATHER.format(offset=0))
    verdicts, _ = verified(capsys)
    assert [verdict["state"] for verdict in verdicts] == ["ok"]
    rows = Path("captured/gather.launches.jsonl").read_text().splitlines()
    assert json.loads(rows[1])[3] == [[2, 108], [3], [[3, 100], [108, 1]]]


def test_indices_that_cannot_be_made_up_are_no_mistake_of_the_kernel(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record(program=GATHER.format(offset=9000))
    (verdict,), said = verified(capsys)
    assert verdict["state"] == "unfinished" and verdict["problem"] == ""
    assert [check["problems"] for check in verdict["checks"]] == 4 * [[]]
    why = verdict["checks"][0]["unfinished"]
    assert "the captured launch cannot be made again: " in why and "out of bounds" in why
    assert "captures do not have what rows held" in why and "[kernel.verify]" in why
    assert "0 ok, 0 failed, 1 not finished, nothing wrong so far" in said


def test_a_launch_that_takes_too_long_is_not_finished(
    record: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(program="from lib.ops import Tensor, add\nadd(Tensor(100000), Tensor(100000))\n")
    monkeypatch.setattr("kbuild.aot.verify.check.STEP_BUDGET", 20)
    (verdict,), said = verified(capsys)
    assert verdict["state"] == "unfinished"
    (check,) = verdict["checks"]
    assert check["unfinished"] == "no end after 20 instructions" and check["problems"] == []
    assert check["launch"].endswith("programs (0, 0, 0)")  # Fewer programs have been tried.
    assert "unfinished  add.sm_90" in said


def test_wrong_code_is_found(
    record: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = driver.compile

    def compile(*args: Any, **options: Any) -> driver.Artifact:
        artifact = right(*args, **options)
        ptx = artifact.asm["ptx"].replace("add.f32", "sub.f32").replace("add.rn.f32", "sub.rn.f32")
        return driver.Artifact({**artifact.asm, "ptx": ptx}, artifact.metadata)

    record(program="from lib.ops import Tensor, add\nadd(Tensor(100000), Tensor(100000))\n")
    monkeypatch.setattr(driver, "compile", compile)
    (verdict,), _ = verified(capsys, code=1)
    assert verdict["state"] == "failed" and "elements differ" in verdict["checks"][0]["problems"][0]


def test_a_table_is_in_place_of_captured_launches(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record(program="from lib.ops import Tensor, add\nadd(Tensor(1000), Tensor(1000))\n")
    assert cli.main(["import", "capture.jsonl", "-q"]) == 0
    file = Path("kernels.toml")
    table = 'verify = { sizes = { "x, y, out" = "n" }, values = [{ n = 77, grid_0 = 1, grid_1 = 1, grid_2 = 1 }] }\n'
    file.write_text(file.read_text() + table)
    capsys.readouterr()
    assert cli.main(["verify", "--no-cache", "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert verdict["checks"][0]["launch"].startswith("n=77,")


def test_tuning_needs_no_table(
    record: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record()
    assert cli.main(["import", "capture.jsonl", "-q"]) == 0
    capsys.readouterr()
    assert cli.main(["tune", "--dry-run", "-q", "norm", "scale"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("  ")]
    assert [line.partition(" specialize")[0] for line in lines if line.startswith("norm")] == [
        f"norm.sm_90 dtype={dtype} HAS_BIAS=False BLOCK={block}"
        for dtype in ("fp16", "fp32")
        for block in (128, 512)
    ]
    scale = "scale.sm_90 dtype=fp16 EVEN=True n<=2023: 3 of 3 candidates"
    assert scale in lines and len(lines) == 8


def test_what_lies_beyond_a_captured_shape_is_noted(
    record: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    program = GATHER.format(offset=0).replace("Tensor(2, 108)", "Tensor(1, 50)")
    record(program=program)
    (verdict,), said = verified(capsys)
    assert verdict["state"] == "ok"
    assert "note: gather runs with its first programs and larger arrays alone: as captured, use.py:" in said
    assert "out of bounds" in said and "made-up numbers in rows may be why" in said
