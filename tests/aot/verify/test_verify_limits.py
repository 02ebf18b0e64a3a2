"""Endless kernels, and those that cannot be launched, end `kbuild verify` with a clear report; and large launches
are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.aot.manifest.expand import expand
from kbuild.aot.manifest.load import load
from kbuild.aot.verify.session import VerifyOptions, verify
from kbuild.aot.verify.verdict import Verdict, Wanted
from kbuild.cli import main
from kbuild.compiler import driver
from kbuild.compiler.interp import machine
from kbuild.emulator import EmulationError, arguments_of, run
from tests.manifests import package_table

ROOT = Path(__file__).resolve().parents[3]

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def total_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rest = n
    while rest > BLOCK:
        rest -= BLOCK
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + offsets, mask=offsets < n, other=0)) + rest // BLOCK)
"""
MANIFEST = (
    package_table("demo_kernels", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "total"
source = "kernels/total.py"
grid = ["cdiv(n, BLOCK)"]
[kernel.args]
x = "*i32"
out = "*i32"
n = "i32"
[[kernel.config]]
BLOCK = 256
num_warps = 4
[kernel.verify]
sizes = { x = "n", out = "cdiv(n, BLOCK)" }
values = [{ n = "32 * BLOCK - 5" }]
"""
)


@pytest.fixture
def total(tmp_path: Path) -> Path:
    """A project with one kernel that has a barrier and a loop."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/total.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    return tmp_path


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[driver.Artifact], driver.Artifact]) -> None:
    """Replace the compiler's output."""
    right = driver.compile
    monkeypatch.setattr(driver, "compile", lambda *args, **options: change(right(*args, **options)))


def with_ptx(artifact: driver.Artifact, before: str, after: str) -> driver.Artifact:
    assert before in artifact.asm["ptx"]
    return driver.Artifact(
        {**artifact.asm, "ptx": artifact.asm["ptx"].replace(before, after)}, artifact.metadata
    )


def test_thirty_two_programs(total: Path) -> None:
    assert main(["verify", "-C", str(total), "--no-cache"]) == 0


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda artifact: with_ptx(artifact, "bar.sync \t0;", "bar.sync \t0, 256;"),
            "deadlock: no warp can go on: warp",
        ),
        (lambda artifact: with_ptx(artifact, ", -256;", ", 0;"), "step-budget: no end after 500"),
        (
            lambda artifact: driver.Artifact(artifact.asm, replace(artifact.metadata, block=(2048, 1, 1))),
            "2048 threads",
        ),
        (lambda artifact: with_ptx(artifact, "bar.sync \t0;", ""), "race: "),
    ],
    ids=["deadlock", "endless loop", "2048 threads", "race"],
)
def test_code_that_does_not_end_or_synchronise(
    total: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Any,
    message: str,
) -> None:
    changed(monkeypatch, change)
    monkeypatch.setattr("kbuild.aot.verify.check.STEP_BUDGET", 50_000)
    assert main(["verify", "-C", str(total), "--no-cache"]) == 1
    err = capsys.readouterr().err
    assert message in err, err


def test_a_kernel_that_does_not_end(
    total: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = total / "kernels/total.py"
    file.write_text(file.read_text().replace("rest -= BLOCK", "rest += 0"))
    monkeypatch.setattr(machine, "MAX_ROUNDS", 1000)
    assert main(["verify", "-C", str(total), "--no-cache", "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    problem = verdict["checks"][0]["problems"][0]
    assert "kernels/total.py:9:" in problem and "a loop has no end after 1000 rounds" in problem


def test_a_cluster_of_thirty_two() -> None:
    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n"
    with pytest.raises(EmulationError, match=r"a cluster of .32, 1, 1. CTAs cannot be launched; at most 16"):
        run(ptx, None, (32,), 1, 0, [], cluster=(32, 1, 1))


def test_four_warp_groups() -> None:
    source = f"{ROOT / 'kernels/matmul.py'}:matmul_kernel"
    signature = (
        dict.fromkeys("abc", "*fp16:16")
        | dict.fromkeys("MNK", "i32:16")
        | {
            "stride_am": "i32:16",
            "stride_ak": "i32:1",
            "stride_bk": "i32:16",
            "stride_bn": "i32:1",
            "stride_cm": "i32:16",
            "stride_cn": "i32:1",
        }
    )
    tiles = {"BLOCK_M": 256, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 1}
    artifact = driver.compile(
        source, signature=signature, constexprs=tiles, target="sm_90", num_warps=16, stop="ptx"
    )
    assert "wgmma" in artifact.asm["ptx"]
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((256, 64), (64, 64)))
    values = {"a": a, "b": b, "c": np.full((256, 64), np.nan, np.float16), "M": 256, "N": 64, "K": 64}
    values |= {
        "stride_am": 64,
        "stride_ak": 1,
        "stride_bk": 64,
        "stride_bn": 1,
        "stride_cm": 64,
        "stride_cn": 1,
    }
    facts = artifact.metadata
    arguments = arguments_of(facts.params, values)
    report = run(
        artifact.asm["ptx"],
        None,
        (1,),
        facts.warps,
        facts.shared,
        arguments,
        schedule="reverse",
        checks="strict",
    )
    output = report.check().outputs[[name for name, _ in facts.params].index("c")]
    np.testing.assert_array_equal(output, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def test_shipped_kernels_are_right() -> None:
    """One variant of each kernel and architecture, with its first launch; `kbuild verify` does them all."""
    manifest = load(ROOT / "kernels.toml")
    first = {(variant.kernel, variant.arch): variant for variant in reversed(expand(manifest).variants)}
    options = VerifyOptions(jobs=2, wanted=Wanted(case=1, data="whole"))
    verdicts: list[Verdict] = list(verify(ROOT, manifest, list(first.values()), options))
    assert {verdict.kernel for verdict in verdicts} == {kernel.name for kernel in manifest.kernels}
    assert [verdict.variant for verdict in verdicts if verdict.state != "ok"] == []


def test_a_guessed_launch_that_takes_too_long_is_not_finished(
    total: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = total / "kernels.toml"
    file.write_text(file.read_text().partition("[kernel.verify]")[0])
    monkeypatch.setattr("kbuild.aot.verify.check.STEP_BUDGET", 10)
    assert main(["verify", "-C", str(total), "--no-cache"]) == 0
    err = capsys.readouterr().err
    assert "unfinished  total.sm_90" in err and "no end after 10 instructions" in err
    assert "0 ok, 0 failed, 1 not finished, nothing wrong so far" in err
