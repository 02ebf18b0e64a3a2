"""Tensor descriptors as arguments of a manifest: a tensor in a call, its address, sizes and strides for
the cubin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.aot.artifact import rendering
from kbuild.aot.manifest import descriptors
from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.load import load
from kbuild.cli import main
from kbuild.compiler import driver, interp
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.transforms.gpu.memory.tensor_stores.choice import ELEMENTS
from kbuild.emulator import TensorMapArgument, arguments_of, run
from kbuild.emulator import load as load_program
from kbuild.emulator.async_ops import tensor_map
from kbuild.errors import UsageError
from tests.aot.manifest.mistakes import mistakes
from tests.manifests import package_table

MANIFEST = (
    package_table("demo_kernels", "sm_80", "sm_90", version="0.1.0")
    + """\
[[kernel]]
name = "matmul"
source = "kernels/matmul.py"
grid = ["cdiv(a_shape_0, TILE)", "cdiv(N, TILE)"]
[kernel.args]
a = "tensordesc<{dtype}[TILE, 32]>"
b = "*{dtype}:16"
c = "tensordesc<fp32[TILE, TILE]>"
N = "i32"
K = "i32"
[kernel.matrix]
dtype = ["fp16", "bf16"]
[[kernel.config]]
TILE = 64
num_stages = 2
[kernel.verify]
sizes = { a = "a_shape_0 * 40", b = "N * 40", c = "a_shape_0 * 52" }
[[kernel.verify.values]]
N = 52
K = 40
a_shape_0 = 70
a_shape_1 = 40
a_stride_0 = 40
c_shape_0 = 70
c_shape_1 = 52
c_stride_0 = 52
"""
)

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, N, K, TILE: tl.constexpr):
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    right = tl.make_tensor_descriptor(b, [N, K], [40, 1], [TILE, 32])
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, 32):
        total = tl.dot(a.load([row, k]), right.load([column, k]).T, total)
    c.store([row, column], total)
"""


@pytest.fixture
def matmul(tmp_path: Path) -> Path:
    """A project whose kernel takes two descriptors."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    (tmp_path / "kernels/matmul.py").write_text(KERNEL)
    return tmp_path


def test_a_variant_names_the_sizes_of_its_blocks(matmul: Path) -> None:
    variants = expand(load(matmul / "kernels.toml")).variants
    assert dict(variants[0].signature)["a"] == "tensordesc<fp16[64x32]>"
    assert [Variant.parse(str(variant)) for variant in variants] == list(variants)


def test_a_cubin_takes_address_sizes_and_strides_and_maps_of_them(matmul: Path) -> None:
    variant = next(v for v in expand(load(matmul / "kernels.toml")).variants if v.arch == "sm_90")
    artifact = driver.compile(
        f"{matmul}/kernels/matmul.py:matmul_kernel",
        signature=dict(variant.signature),
        constexprs={"TILE": 64},
        num_stages=2,
        stop="ptx",
    )
    taken = {name: type_ for name, type_, _ in descriptors.expanded(variant.signature)}
    assert {name for name, type_ in artifact.metadata.params if not type_.startswith("tensormap")} == set(
        taken
    )
    assert (
        dict(artifact.metadata.params)["a_map"] == "tensormap f16 64x32 64 a a_shape_0,a_shape_1 a_stride_0"
    )


def test_it_computes_what_it_means(matmul: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "-C", str(matmul), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert "ok" in json.dumps(verdicts) and "failed" not in json.dumps(verdicts)


def test_its_launches_are_guessed(matmul: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without [kernel.verify]: sizes of 40, rows of 48 elements, both of which the kernel sees."""
    (matmul / "kernels.toml").write_text(MANIFEST.partition("[kernel.verify]")[0])
    file = matmul / "kernels/matmul.py"
    file.write_text(KERNEL.replace("[N, K], [40, 1]", "[N, K], [48, 1]"))
    assert main(["verify", "-C", str(matmul), "--no-cache", "--json"]) == 0
    (launch,) = {
        check["launch"] for verdict in json.loads(capsys.readouterr().out) for check in verdict["checks"]
    }
    assert "a_shape_0=40" in launch and "a_stride_0=48" in launch and "N=40" in launch


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "[TILE, 32]",
            "[TIL, 32]",
            'TIL is not a compile-time integer of every variant; did you mean "TILE"?',
        ),
        ("{dtype}[TILE, 32]", "fp61[TILE, 32]", 'unknown type "fp61"; did you mean "fp64"?'),
        ("tensordesc<{dtype}[TILE, 32]>", "tensordesc<{dtype}>", "is not a type; write it as"),
    ],
)
def test_mistakes_are_reported(matmul: Path, before: str, after: str, message: str) -> None:
    file = matmul / "kernels.toml"
    file.write_text(file.read_text().replace(before, after))
    assert message in " ".join(mistakes(matmul))


@pytest.mark.parametrize("element", sorted(ELEMENTS | {"s32", "s64", "tf32", "f8E4M3FNUZ"}))
def test_launcher_and_emulator_make_the_same_map_of_an_element(element: str) -> None:
    made = rendering._map_context(f"tensormap {element} 16x16 0 #0 #1,#2 #3")
    described = TensorMapArgument(element, (16, 16), 0, 0, (64, 64), (64,)).at(0x1000)
    assert (
        made["type"] == tensor_map.ELEMENTS.index(described.element)
        and made["element_bytes"] == described.element_bytes
    )


NAN_KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def columns(a, b, out, K, TILE: tl.constexpr):
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, 32):
        total = tl.dot(a.load([0, k]), b.load([0, k]).T, total)
    numbers = tl.arange(0, TILE)
    tl.store(out + numbers[:, None] * TILE + numbers[None, :], total)
"""


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("type_name", ["fp16", "fp32"])
def test_nan_lies_beyond_a_tensor_that_asks_for_it(
    tmp_path: Path, arch: str, stages: int, type_name: str
) -> None:
    """Rows that are there are right; the dots of the others with NaN are NaN, in every way a block may be
    loaded."""
    (tmp_path / "kernel.py").write_text(NAN_KERNEL)
    block = f"tensordesc<{type_name}[64x32]"
    signature = {"a": f"{block}:nan>", "b": f"{block}>", "out": "*fp32:16", "K": "i32"}
    artifact = driver.compile(
        f"{tmp_path}/kernel.py:columns",
        signature=signature,
        constexprs={"TILE": 64},
        target=arch,
        num_stages=stages,
        stop="ptx",
    )
    maps = dict(artifact.metadata.params)
    if (arch, type_name, stages) == ("sm_90", "fp16", 3):
        assert maps["a_map"].split()[1] == "f16:nan" and maps["b_map"].split()[1] == "f16"
        assert rendering._map_context("tensormap f16:nan 64x32 64 #0 #1,#2 #3")["fill"] == 1
        assert rendering._map_context("tensormap f16 64x32 64 #0 #1,#2 #3")["fill"] == 0
    generator, rows, size = np.random.default_rng(0), 50, 64
    a, b = (generator.integers(-2, 3, (64, size)).astype("f2" if type_name == "fp16" else "f4") for _ in "ab")
    given: dict[str, Any] = {
        "a": a,
        "b": b,
        "out": np.zeros((64, 64), np.float32),
        "K": size,
        "a_shape_0": rows,
        "b_shape_0": 64,
    }
    given |= {"a_shape_1": size, "b_shape_1": size, "a_stride_0": size, "b_stride_0": size}
    right = np.where(np.arange(64)[:, None] < rows, a.astype(np.float32) @ b.T.astype(np.float32), np.nan)
    program, parameters = load_program(artifact.asm["ptx"], artifact.metadata.name), artifact.metadata.params
    report = run(
        program,
        None,
        (1,),
        artifact.metadata.warps,
        artifact.metadata.shared,
        arguments_of(parameters, given),
    )
    outputs = {name: output for (name, _), output in zip(parameters, report.check().outputs)}
    np.testing.assert_array_equal(outputs["out"], right)
    module = parse_module(
        driver.compile(
            f"{tmp_path}/kernel.py:columns",
            signature=signature,
            constexprs={"TILE": 64},
            target=arch,
            num_stages=stages,
            stop="ttgir",
        ).asm["ttgir"]
    )
    interp.run(
        module, {name: given[name] for name, type_ in parameters if not type_.startswith("tensormap")}, (1,)
    )
    np.testing.assert_array_equal(given["out"], right)


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("tensordesc<i32[64x32]:nan>", "has no NaN to be padded with"),
        ("tensordesc<fp16[64x32]:one>", "has the padding 'one'"),
    ],
)
def test_a_padding_that_is_not_there(tmp_path: Path, type_: str, message: str) -> None:
    (tmp_path / "kernel.py").write_text(NAN_KERNEL)
    with pytest.raises(UsageError, match=message):
        driver.compile(
            f"{tmp_path}/kernel.py:columns",
            signature={"a": type_, "b": type_, "out": "*fp32", "K": "i32"},
            constexprs={"TILE": 64},
            stop="ttir",
        )


def test_a_manifest_may_ask_for_nan(matmul: Path) -> None:
    (matmul / "kernels.toml").write_text(MANIFEST.replace("[TILE, 32]>", "[TILE, 32]:nan>"))
    variants = expand(load(matmul / "kernels.toml")).variants
    assert dict(variants[0].signature)["a"] == "tensordesc<fp16[64x32]:nan>"
    assert "a=" not in variants[0].file_name
