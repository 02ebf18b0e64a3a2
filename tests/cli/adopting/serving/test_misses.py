"""Calls that a package does not answer are recorded for its next build, and packages stand beside each other."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild import cli
from kbuild.aot.capture.records import Capture, read_captures
from tests.cli.adopting.serving.conftest import World


@pytest.fixture
def misses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the records of a test."""
    monkeypatch.setenv("KBUILD_RECORD", str(tmp_path / "misses"))
    return tmp_path / "misses"


def softmax(world: World, n: int, strict: bool) -> None:
    """A call that was not captured."""
    world.package.install(strict)
    x = world.torch.tensor(np.ones((8, n), np.float32))
    if strict:
        with pytest.raises(world.package.dispatch.NoVariantError):
            world.library.softmax(x)
    else:
        world.library.softmax(x)


def asked(capture: Capture) -> list[Any]:
    return [
        (one.args, one.constexprs, one.options, [*one.launches.values()]) for one in capture.variants.values()
    ]


def test_a_miss_is_recorded_alike_whether_triton_compiles_it_or_not(
    world: World, misses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax(world, 250, strict=False)
    compiled = read_captures([misses])
    softmax(world, 1000, strict=True)
    refused = read_captures([misses])
    assert world.compiled() == 1
    (kernel,) = refused.kernels.values()
    assert (kernel.module, kernel.name) == ("tiny_ops.rows", "softmax_kernel")
    first, second = asked(refused)
    assert [first] == asked(compiled) and not refused.failed
    rows = {"shape": [8, 1000], "strides": [1000, 1]}
    assert second == (
        {"x": "*fp32:16", "out": "*fp32:16", "stride": "i32", "n": "i32"},
        {"BLOCK": 1024},
        {"num_warps": 4},
        [{"grid": [8], "values": {"x": rows, "out": rows, "n": 1000, "stride": 1000}}],
    )


def test_an_import_of_misses_adds_the_line_that_the_error_said(world: World, misses: Path) -> None:
    world.package.install(strict=True)
    x = world.torch.tensor(np.ones((8, 250), np.float32))
    with pytest.raises(world.package.dispatch.NoVariantError) as error:
        world.library.softmax(x)
    project = world.folder / "again"
    shutil.copytree(world.project, project, ignore=shutil.ignore_patterns("build", "dist", "captured"))
    (project / "kernels.toml").unlink()
    assert cli.main(["import", "-q", "-C", str(project), str(project / "capture.jsonl"), str(misses)]) == 0
    before = (world.project / "captured/softmax.jsonl").read_text().splitlines()
    after = (project / "captured/softmax.jsonl").read_text().splitlines()
    (line,) = [line for line in after if line not in before]
    assert line in str(error.value)


def test_what_was_answered_is_no_miss_unless_it_asked_for_another_option(world: World, misses: Path) -> None:
    x = world.torch.tensor(np.ones(4096, np.float32))
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.elementwise").add_kernel
    kernel[(4,)](x, x, x, 4096, BLOCK=1024)
    assert not misses.exists()
    kernel[(4,)](x, x, x, 4096, BLOCK=1024, num_warps=8)
    (variant,) = read_captures([misses]).variants.values()
    assert variant.options == {"num_warps": 8}


def test_a_tuned_kernel_that_is_refused_is_recorded_with_a_configuration(world: World, misses: Path) -> None:
    """One that its tuner has, since none was chosen."""
    world.package.install(strict=True)
    kernel = world.module("tiny_ops.matrices").matmul_kernel
    x = world.torch.tensor(np.ones((64, 64), np.int32))
    with pytest.raises(world.package.dispatch.NoVariantError):
        kernel[lambda meta: (64 // meta["BLOCK_M"], 64 // meta["BLOCK_N"])](x, x, x, 64, 64, 64)
    (variant,) = read_captures([misses]).variants.values()
    assert variant.constexprs == {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
    assert {"BLOCK_M", "num_warps"} <= {*variant.tuned}
    assert [one["key"] for one in variant.launches.values()] == [{"M": 64, "N": 64, "K": 64}]
    assert [one["grid"] for one in variant.launches.values()] == [[2, 2]]


def test_what_tritons_tuner_tries_is_no_miss(world: World, misses: Path) -> None:
    world.package.install()
    kernel = world.module("tiny_ops.matrices").matmul_kernel
    x = world.torch.tensor(np.ones((64, 64), np.int32))
    kernel[lambda meta: (64 // meta["BLOCK_M"], 64 // meta["BLOCK_N"])](x, x, x, 64, 64, 64)
    assert world.compiled() == 2 and not world.launched()
    (variant,) = read_captures([misses]).variants.values()
    assert variant.constexprs["BLOCK_M"] == 32 and {"BLOCK_M", "num_warps"} <= {*variant.tuned}


def test_two_packages_answer_beside_each_other(world: World, site: Path) -> None:
    """The first that takes a call: here both have the same kernels."""
    copy = world.folder / "more"
    shutil.copytree(site / "adopt", copy / "other")
    sys.path.insert(0, str(copy))
    other = world.module("other")
    x = world.torch.tensor(np.ones((8, 256), np.float32))
    world.package.install()
    other.install(strict=True)
    world.library.row_max(world.torch.tensor(np.ones((8, 512), np.float32)))
    assert world.launched() == ["row_max_kernel"]
    with pytest.raises(other.dispatch.NoVariantError):  # One is strict.
        world.library.row_max(x)
    world.package.uninstall()
    world.library.row_max(world.torch.tensor(np.ones((8, 512), np.float32)))
    assert world.launched() == ["row_max_kernel"]
    other.uninstall()
    world.library.row_max(x)
    assert world.compiled() == 1
