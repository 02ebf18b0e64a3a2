"""Kernels of Gluon in a manifest: layouts as compile-time values, and of descriptors' blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load
from kbuild.cli import main
from tests.aot.manifest.mistakes import mistakes
from tests.manifests import package_table

MANIFEST = (
    package_table("demo_kernels", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "transpose"
source = "transpose.py"
grid = ["cdiv(rows, BLOCK)", "cdiv(columns, BLOCK)"]
[kernel.args]
x = "tensordesc<fp16[BLOCK, 32],gl.NVMMASharedLayout(64, 16)>"
y = "*fp16"
rows = "i32"
columns = "i32"
[[kernel.config]]
when = { rows = "<= 64" }
BLOCK = 32
layout = "gl.BlockedLayout([4, 1], order=[0, 1], threads_per_warp=[8, 4], warps_per_cta=[1, 4])"
[[kernel.config]]
BLOCK = 32
layout = "gl.CoalescedLayout()"
[kernel.verify]
sizes = { x = "rows * 40", y = "rows * columns" }
[[kernel.verify.values]]
rows = 37
columns = 24
x_shape_0 = 37
x_shape_1 = 24
x_stride_0 = 40
"""
)

KERNEL = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def transpose_kernel(x, y, rows, columns, BLOCK: gl.constexpr, layout: gl.constexpr):
    top, left = gl.program_id(0) * BLOCK, gl.program_id(1) * 32
    tile = gl.allocate_shared_memory(gl.float16, [BLOCK, 32], x.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [top, left], ready, tile)
    mbarrier.wait(ready, 0)
    mbarrier.invalidate(ready)
    a, b = top + gl.arange(0, BLOCK)[:, None], left + gl.arange(0, 32)[None, :]
    inside = gl.set_auto_layout((a < rows) & (b < columns), layout)
    held: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    place = gl.set_auto_layout(y + a + b * rows, layout)
    gl.store(place, gl.convert_layout(tile.load(held), layout), inside)
"""
BLOCKED = "gl.BlockedLayout(size_per_thread=[4,1],threads_per_warp=[8,4],warps_per_cta=[1,4],order=[0,1])"


@pytest.fixture
def transpose(tmp_path: Path) -> Path:
    """A project with a kernel of Gluon."""
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    (tmp_path / "transpose.py").write_text(KERNEL)
    return tmp_path


def test_variants_name_layouts_by_their_numbers(transpose: Path) -> None:
    variants = expand(load(transpose / "kernels.toml")).variants
    assert [variant.values["layout"] for variant in variants] == [BLOCKED, "gl.CoalescedLayout()"]
    assert dict(variants[0].signature)["x"] == ("tensordesc<fp16[32x32],gl.NVMMASharedLayout(64,16)>")
    assert [Variant.parse(str(variant)) for variant in variants] == list(variants)
    assert len({variant.file_name for variant in variants}) == 2


def test_they_compute_what_they_mean(transpose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-C", str(transpose), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert len(verdicts) == 2 and "failed" not in json.dumps(verdicts)


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        (
            "gl.CoalescedLayout()",
            "gl.BlockedLayout([3], [32], [4], [0])",
            22,
            "size_per_thread is 3; it must be of powers of two",
        ),
        ("gl.CoalescedLayout()", "gl.CoalescdLayout()", 22, "has no CoalescdLayout"),
        ("NVMMASharedLayout(64, 16)", "NVMMASharedLayout(64)", 12, "NVMMASharedLayout"),
        ("NVMMASharedLayout(64, 16)", "SwizzledSharedLayout(1, 1, 1, [1, 0])", 12, "is not the layout of"),
    ],
)
def test_mistakes_are_reported(transpose: Path, before: str, after: str, line: int, message: str) -> None:
    assert before in MANIFEST
    (transpose / "kernels.toml").write_text(MANIFEST.replace(before, after))
    (found,) = mistakes(transpose)
    assert found.startswith(f"{line}: ") and message in found
