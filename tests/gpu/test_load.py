"""`kbuild.load(artifact)[grid](…)` on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.core", reason="kernels are launched through cuda-core: pip install 'kbuild[gpu]'")

from device import Device
from emulated.kernels import SOURCE

import kbuild

ROOT = Path(__file__).parents[2]


@pytest.fixture
def target(device: Device) -> str:
    """The architecture of the device."""
    return f"sm_{device.capability}"


def scale(folder: Path, target: str, element: str = "fp32") -> kbuild.Artifact:
    (folder / "kernels.py").write_text(SOURCE)
    signature = {"x": f"*{element}:16", "out": f"*{element}:16", "factor": "fp32", "n": "i32:16"}
    return kbuild.compile(
        f"{folder}/kernels.py:scale", signature=signature, constexprs={"BLOCK": 1024}, target=target
    )


def test_buffers_and_addresses(device: Device, target: str, tmp_path: Path) -> None:
    values = np.arange(100_000, dtype=np.float32)
    x, out = device.placed(values), device.placed(np.zeros_like(values))
    kernel = kbuild.load(scale(tmp_path, target))
    kernel[98](x, int(out.handle), 0.5, 99_984, stream=device.stream)
    found = np.empty_like(values)
    device.download(found, int(out.handle))
    assert (found[:99_984] == values[:99_984] / 2).all() and not found[99_984:].any()
    with pytest.raises(kbuild.KbuildError, match="argument n is 99985"):
        kernel[98](x, out, 0.5, 99_985)
    with pytest.raises(kbuild.KbuildError, match="16 divides its address"):
        kernel[98](int(x.handle) + 4, out, 0.5, 16)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_of_torch_in_its_current_stream(
    device: Device, target: str, tmp_path: Path, dtype: str
) -> None:
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU: torch finds no CUDA device")
    element = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[dtype]
    kernel = kbuild.load(scale(tmp_path, target, element))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.randn(1 << 20, device="cuda").to(getattr(torch, dtype))
        torch.cuda._sleep(50_000_000)
        x.mul_(2)  # A launch in any other stream would be before this.
        out = torch.empty_like(x)
        kernel[1 << 10](x, out, 4.0, 1 << 20)
        assert torch.equal(out, x * 4)
    kernel[1 << 10](x, out, 8.0, 1 << 20, stream=side)
    side.synchronize()
    assert torch.equal(out, x * 8)
    with pytest.raises(kbuild.KbuildError, match="an array of float64"):
        kernel[1 << 10](x.double(), out, 4.0, 1 << 20)
    with pytest.raises(kbuild.KbuildError, match="argument x is in the host's memory"):
        kernel[1 << 10](x.cpu(), out, 4.0, 1 << 20)


def test_tensor_maps(device: Device, tmp_path: Path) -> None:
    if device.capability != 90:
        pytest.skip("only sm_90 has kernels with tensor maps and wgmma")
    ones = {"stride_ak": "i32:1", "stride_bn": "i32:1", "stride_cn": "i32:1"}
    strides = dict.fromkeys(
        ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"), "i32:16"
    )
    artifact = kbuild.compile(
        f"{ROOT}/kernels/matmul.py:matmul_kernel",
        signature={
            "a": "*fp16:16",
            "b": "*fp16:16",
            "c": "*fp16:16",
            "M": "i32",
            "N": "i32:16",
            "K": "i32:16",
        }
        | strides
        | ones,
        constexprs={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8},
        num_warps=8,
    )
    assert artifact.metadata.params[-1][1].startswith("tensormap")
    random, size = np.random.default_rng(0), 512
    a, b = (random.integers(-3, 4, (size, size)).astype(np.float16) for _ in range(2))
    placed = [device.placed(array) for array in (a, b, np.zeros_like(a))]
    kbuild.load(artifact)[16](*placed, size, size, size, size, 1, size, 1, size, 1)
    found = np.empty_like(a)
    device.download(found, int(placed[2].handle))
    assert (found == (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)).all()
