"""Launches by `kbuild.load` that come one after the other, and from several threads, on the fake driver."""

from __future__ import annotations

import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kbuild
from emulated.kernels import compiled, scale
from kbuild.emulator.driver import FakeDriver
from tests.emulator.fake_gpu import on_fake_gpu

ROOT = Path(__file__).parents[3]


@on_fake_gpu("sm_90", "sm_90")
def test_what_a_launch_asks_the_driver(driver: FakeDriver) -> None:
    """What costs time: once the kernel is loaded, no more than it has to."""
    kernel = kbuild.load(scale(driver))
    x, y = (driver.array(np.ones(64, np.float32), device=device) for device in (0, 1))
    kernel[1](x, x, 2.0, 64)
    kernel[1](y, y, 2.0, 64)

    def asked(array: Any) -> list[str]:
        count = len(driver.calls)
        kernel[1](array, array, 2.0, 64)
        return [call.name for call in driver.calls[count:]]

    # An array says by its interface where it lies; which device that is says the driver.
    places = ["cuPointerGetAttribute"] * 2
    assert asked(x) == [*places, "cuCtxGetCurrent", "cuLaunchKernelEx"]
    switch = ["cuCtxSetCurrent"]
    assert asked(y) == [*places, "cuCtxGetCurrent", *switch, "cuLaunchKernelEx", *switch]
    assert x.copy_to_host().tolist() == y.copy_to_host().tolist() == [4.0] * 64


@on_fake_gpu("sm_90", "sm_90")
def test_the_current_device_stays(driver: FakeDriver) -> None:
    from cuda.core import Device

    kernel = kbuild.load(scale(driver))
    x, y = (driver.array(np.ones(64, np.float32), device=device) for device in (0, 1))
    Device(0).set_current()
    for _ in range(2):
        kernel[1](y, y, 2.0, 64)
        assert int(Device().device_id) == 0
    with pytest.raises(kbuild.KbuildError, match="launching scale failed"):
        kernel[2](y, y, 2.0, 128)
    assert int(Device().device_id) == 0
    with pytest.raises(kbuild.KbuildError, match="is no stream"):
        kernel[1](y, y, 2.0, 64, stream=-1)
    assert int(Device().device_id) == 0
    kernel[1](x, x, 2.0, 64)
    assert [launch.device for launch in driver.launches] == [1, 1, 0]


@on_fake_gpu("sm_90", "sm_90")
def test_threads_launch_at_the_same_time(driver: FakeDriver) -> None:
    kernel, count = kbuild.load(scale(driver)), 8
    x, out = (
        [driver.array(np.ones(64, np.float32), device=number % 2) for number in range(count)]
        for _ in range(2)
    )

    def launch(number: int) -> None:
        for factor in range(10):
            kernel[1](x[number], out[number], float(10 * number + factor), 64)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(launch, range(count)))
    sys.setswitchinterval(interval)
    found = {
        (launch.device, *struct.unpack("<QQf", b"".join(launch.arguments[:3]))) for launch in driver.launches
    }
    assert found == {
        (number % 2, x[number].pointer, out[number].pointer, 10.0 * number + factor)
        for number in range(count)
        for factor in range(10)
    }
    assert [array.copy_to_host()[63] for array in out] == [10 * number + 9 for number in range(count)]


@on_fake_gpu()
def test_values_are_those_of_the_launch(driver: FakeDriver) -> None:
    """None of an earlier one, whose memory is used again, is left."""
    signature = {"x": "*i8", "out": "*i8", "factor": "i8", "n": "i16"}
    kernel = kbuild.load(compiled(driver, "scale", signature=signature, constexprs={"BLOCK": 64}))
    x, y = driver.empty(64, np.int8), driver.empty(64, np.int8)
    calls: list[tuple[Any, ...]] = [(x, y, -1, 64), (None, 2**63, 127, -(2**15)), (y, None, -128, 2**15 - 1)]
    for array, out, factor, n in calls:
        kernel[1](array, out, factor, n if array is x else -5)
        given = driver.launches[-1].arguments
        addresses = [getattr(one, "pointer", one) or 0 for one in (array, out)]
        assert given == (
            *(struct.pack("<Q", address) for address in addresses),
            struct.pack("<b", factor),
            struct.pack("<h", n if array is x else -5),
        )


@on_fake_gpu()
def test_floating_point_is_rounded_as_by_numpy(driver: FakeDriver) -> None:
    for type_, dtype in (("fp16", np.float16), ("fp32", np.float32), ("fp64", np.float64)):
        signature = {"x": "*fp64", "out": "*fp64", "factor": type_, "n": "i32"}
        kernel = kbuild.load(compiled(driver, "scale", signature=signature, constexprs={"BLOCK": 64}))
        for value in (0.1, -0.0, 65519.9, 65520.0, -1e39, 2049, np.float32(0.3), np.inf, 1e-8):
            kernel[1](None, None, value, 0)
            with np.errstate(over="ignore"):
                assert driver.launches[-1].arguments[2] == dtype(float(value)).tobytes(), (type_, value)


@on_fake_gpu()
def test_tensor_maps_are_those_of_the_launch(driver: FakeDriver) -> None:
    pointers = dict.fromkeys(("a", "b", "c"), "*fp16:16")
    numbers = {"M": "i32", "N": "i32:16", "K": "i32:16", "stride_am": "i32:16", "stride_ak": "i32:1"}
    strides = {"stride_bk": "i32:16", "stride_bn": "i32:1", "stride_cm": "i32:16", "stride_cn": "i32:1"}
    artifact = compiled(
        driver,
        "matmul_kernel",
        ROOT / "kernels/matmul.py",
        signature=pointers | numbers | strides,
        constexprs={"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8},
    )
    assert any(type_.startswith("tensormap") for _, type_ in artifact.metadata.params)
    kernel, random = kbuild.load(artifact), np.random.default_rng(0)
    for size in (64, 48, 32):
        a, b = (random.integers(-3, 4, (size, size)).astype(np.float16) for _ in range(2))
        c = driver.empty((size, size), np.float16)
        kernel[1](driver.array(a), driver.array(b), c, size, size, size, size, 1, size, 1, size, 1)
        assert (c.copy_to_host() == a @ b).all()


@on_fake_gpu()
def test_maps_of_memory_that_is_not_the_devices(driver: FakeDriver) -> None:
    from kbuild.gpu.device import Gpu
    from kbuild.gpu.tensor_maps import put_tensor_map
    from kbuild.tensor_map import TensorMapType

    record = TensorMapType.parse("tensormap f16 64x64 128 a M,K lda")
    assert record is not None
    gpu, host = Gpu(), np.zeros(1 << 16, np.uint8)
    place, values, buffer = host.ctypes.data + 63 & -64, {"M": 64, "K": 64, "lda": 64}, gpu.allocate(1 << 16)
    put_tensor_map(place, record, values | {"a": int(buffer.handle)})
    assert host[:256].any()
    for address in (0, place):
        with pytest.raises(
            kbuild.KbuildError, match=r"the tensor map of a .*: .* is no address of the device's memory"
        ):
            put_tensor_map(place, record, values | {"a": address})


@on_fake_gpu()
def test_whether_launches_may_begin_early(driver: FakeDriver) -> None:
    x = driver.array(np.ones(64, np.float32))
    for early in (True, False):
        kbuild.load(scale(driver, launch_pdl=early))[1](x, x, 2.0, 64)
        assert driver.launches[-1].may_begin_early is early


@on_fake_gpu()
def test_arguments_by_name(driver: FakeDriver) -> None:
    kernel = kbuild.load(scale(driver))
    x = driver.array(np.ones(64, np.float32))
    kernel[1](x, n=64, factor=3.0, out=x)
    kernel[1](n=64, factor=2.0, out=x, x=x)
    assert x.copy_to_host().tolist() == [6.0] * 64
    for args, named, text in (
        ((x, x, 2.0), {"x": x}, "multiple values for argument 'x'"),
        ((x, x, 2.0), {"m": 64}, "missing a required argument: 'n'"),
        ((x, x, 2.0, 64), {"m": 64}, "unexpected keyword argument 'm'"),
        ((x, x, 2.0, 64, 64), {}, "too many positional arguments"),
    ):
        with pytest.raises(kbuild.KbuildError, match=text):
            kernel[1](*args, **named)


@on_fake_gpu("sm_90", "sm_90", streams="late")
def test_tensors_of_torch_take_its_current_stream(driver: FakeDriver) -> None:
    from cuda.core import Device

    device = Device(1)
    device.set_current()
    stream = device.create_stream()
    asked = []

    def current(ordinal: int) -> int:
        asked.append(ordinal)
        return int(stream.handle)

    @dataclass(frozen=True)
    class Place:
        type: str
        index: int | None

    class Tensor:
        def __init__(self, dtype: str, device: Place) -> None:
            self.array = driver.array(np.ones(64, np.float32), device=1)
            self.dtype, self.device, self.shape = dtype, device, (64,)

        def data_ptr(self) -> int:
            return self.array.pointer

        def stride(self) -> tuple[int, ...]:
            return (1,)

    sys.modules["torch"] = SimpleNamespace(  # type: ignore[assignment]
        Tensor=Tensor, _C=SimpleNamespace(_cuda_getCurrentRawStream=current)
    )
    kernel, x = kbuild.load(scale(driver)), Tensor("torch.float32", Place("cuda", 1))
    kernel[1](x, x, 2.0, 64)
    assert (asked, driver.launches[-1].stream) == ([1], int(stream.handle))
    stream.sync()
    assert x.array.copy_to_host().tolist() == [2.0] * 64
    for wrong, text in (
        (Tensor("torch.float16", x.device), "an array of float16"),
        (Tensor("torch.float32", Place("cpu", None)), "argument x is in the host's memory"),
        (
            Tensor("torch.float32", Place("cuda", 0)),
            "argument out is on device 1, and x on device 0",
        ),
    ):
        with pytest.raises(kbuild.KbuildError, match=text):
            kernel[1](wrong, x, 2.0, 64)
