"""Every call of the driver that the launcher makes is made to fail once: the message, the state left behind,
and the next launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from kbuild.emulator.driver import DriverResult
from tests.emulator.driver.conftest import World
from tests.emulator.driver.cuda import Cuda

Make = Callable[..., World]
OUT_OF_MEMORY = DriverResult.CUDA_ERROR_OUT_OF_MEMORY


def add(here: World, stream: int | None = None) -> list[float]:
    """A launch with everything that the launcher does except tensor maps."""
    x, out = here.driver.array(numpy.ones(64, "f4"), 1), here.driver.empty(64, "f4", 1)
    here.package.launch.vector_add(x, x, out, 64, stream=stream)
    return out.copy_to_host().tolist()


def matmul(here: World) -> list[float]:
    """A launch with tensor maps and more shared memory than the default limit."""
    a, c = here.driver.array(numpy.ones((16, 16), "f2")), here.driver.empty((16, 16), "f2")
    here.package.launch.matmul(a, a, c, 16, 16, 16, 16, 16, 16)
    return c.copy_to_host().ravel().tolist()


def attend(here: World) -> list[float]:
    q, out, lse = (
        here.driver.array(numpy.ones((16, 64), "f2")),
        here.driver.empty((16, 64), "f2"),
        here.driver.empty(16, "f4"),
    )
    here.package.attention(
        q, q, q, out, lse, 1.0, *(1024, 1024, 64) * 4, 1, 1, 16, 16, 1, HEAD_DIM=64, IS_CAUSAL=False
    )
    return out.copy_to_host().ravel().tolist()


def called(world: Make, *launches: Callable[[World], Any]) -> set[str]:
    """The functions that launches call."""
    here = world("sm_90", "sm_80")
    for launch in launches:
        launch(here)
    return {call.name for call in here.driver.calls}


REPORTED = (
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuStreamIsCapturing",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuTensorMapEncodeTiled",
    "cuLaunchKernel",
)
"""Functions whose failure is a DriverError."""
ENDURED = ("cuDriverGetVersion", "cuCtxGetCurrent", "cuPointerGetAttribute")
"""Functions whose failure leaves something unknown that the launch does not need."""


def test_these_are_all_the_functions_that_launches_call(world: Make) -> None:
    undone = {"cuCtxPopCurrent_v2"}  # it fails where no context is current alone, and one is
    assert called(world, add, matmul) == {*REPORTED, *ENDURED, *undone}


@pytest.mark.parametrize("launch", [add, matmul], ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", REPORTED)
def test_a_failure_is_reported_and_leaves_nothing(
    world: Make, name: str, launch: Callable[[World], list[float]]
) -> None:
    here = world("sm_90", "sm_80")
    here.driver.fail_next(name, OUT_OF_MEMORY)
    if launch is add and name in ("cuFuncSetAttribute", "cuTensorMapEncodeTiled"):
        assert launch(here) == [2.0] * 64
        return
    with pytest.raises(here.package.DriverError) as caught:
        launch(here)
    error = caught.value
    assert (error.call, error.code, error.name) == (name.removesuffix("_v2"), 2, "CUDA_ERROR_OUT_OF_MEMORY")
    assert (
        f"{error.call} failed with CUDA_ERROR_OUT_OF_MEMORY (2): {name} fails because a test requests it"
        in str(error)
    )
    assert "[driver for CUDA 13.0]" in str(error)
    modules = [text for text in here.driver.leftovers if text.startswith("Module")]
    assert len(modules) == (name in ("cuTensorMapEncodeTiled", "cuLaunchKernel")), (
        "a module that cannot be used is unloaded"
    )
    if name not in ("cuInit", "cuDeviceGetCount"):
        current = Cuda(here.driver.path, None).get("cuCtxGetCurrent")
        assert current.value is None, "the stack of contexts is as it was"
    assert launch(here) == ([2.0] * 64 if launch is add else [16.0] * 256)
    assert len([text for text in here.driver.leftovers if text.startswith("Module")]) == 1


@pytest.mark.parametrize("name", ENDURED)
def test_a_failure_that_does_not_matter_is_endured(world: Make, name: str) -> None:
    here = world("sm_80", "sm_80")
    here.driver.fail_next(name, DriverResult.CUDA_ERROR_INVALID_VALUE)
    assert add(here) == [2.0] * 64


def test_a_failure_of_the_undoing_is_not_the_caller_s(world: Make) -> None:
    here = world("sm_90", "sm_80")
    here.driver.fail_next("cuModuleGetFunction", 500)
    here.driver.fail_next("cuModuleUnload", 400)
    with pytest.raises(
        here.package.DriverError, match="cuModuleGetFunction failed with CUDA_ERROR_NOT_FOUND"
    ):
        add(here)
    assert add(here) == [2.0] * 64


def test_the_producer_s_stream_may_fail(world: Make) -> None:
    here = world("sm_90")
    cuda = Cuda(here.driver.path)
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")

    class Produced:
        __cuda_array_interface__ = x.__cuda_array_interface__ | {"stream": cuda.stream().value}

    here.driver.fail_next("cuStreamSynchronize", 700)
    with pytest.raises(
        here.package.DriverError, match="cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS"
    ):
        here.package.launch.vector_add(Produced(), x, out, 64, stream=cuda.stream().value)
    here.package.launch.vector_add(Produced(), x, out, 64, stream=cuda.stream().value)
    assert out.copy_to_host().tolist() == [2.0] * 64


def capture(cuda: Cuda, mode: int = 0) -> ctypes.c_void_p:
    cuda("cuStreamBeginCapture_v2", stream := cuda.stream(), mode)
    return stream


def test_a_graph_is_captured_after_preloading(world: Make) -> None:
    here = world("sm_90")
    cuda = Cuda(here.driver.path)
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    stream = capture(cuda)
    with pytest.raises(here.package.LaunchError, match=r"preload\(0\) before the capture"):
        here.package.launch.vector_add(x, x, out, 64, stream=stream.value)
    graph = ctypes.c_void_p()
    cuda("cuStreamEndCapture", stream, ctypes.byref(graph))
    assert not here.driver.loads, "the refused call did not end the capture"
    here.package.preload(0, kernels=["vector_add"])
    stream = capture(cuda)
    here.package.launch.vector_add(x, x, out, 64, stream=stream.value)
    cuda("cuStreamEndCapture", stream, ctypes.byref(graph))
    assert numpy.isnan(out.copy_to_host()).all()
    executable = cuda.get("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
    for value in (3.0, 4.0):
        x.copy_from_host(numpy.full(64, value, "f4"))
        cuda("cuGraphLaunch", executable, stream)
        assert out.copy_to_host().tolist() == [2 * value] * 64, (
            "the arguments are kept, the data that they point to are read again"
        )


def test_another_stream_than_the_captured_one_cannot_load_either(world: Make) -> None:
    """An older driver refuses to load while any stream is captured; the message
    names preload all the same."""
    here = world("sm_90", version="12.4")
    cuda = Cuda(here.driver.path)
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    for stream in (None, cuda.stream().value, cuda.stream(1).value):
        captured = capture(cuda)
        with pytest.raises(here.package.LaunchError, match=r"preload\(0?\) before the capture"):
            here.package.launch.vector_add(x, x, out, 64, stream=stream)
        code = cuda.library.cuStreamEndCapture(captured, ctypes.byref(ctypes.c_void_p()))
        assert code in (0, DriverResult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    here.package.launch.vector_add(x, x, out, 64)
    assert out.copy_to_host().tolist() == [2.0] * 64


@pytest.mark.parametrize("producer", ["default", "another"])
def test_a_captured_launch_waits_for_no_producer(world: Make, producer: str) -> None:
    """A graph reads its arrays when it runs; waiting now would end the capture."""
    here = world("sm_90")
    cuda = Cuda(here.driver.path)
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    here.package.preload(0, kernels=["vector_add"])
    stream = cuda.stream(1)
    made_on = 1 if producer == "default" else cuda.stream(1).value

    class Produced:
        __cuda_array_interface__ = x.__cuda_array_interface__ | {"stream": made_on}

    cuda("cuStreamBeginCapture_v2", stream, 0)
    here.package.launch.vector_add(Produced(), x, out, 64, stream=stream.value)
    graph = ctypes.c_void_p()
    cuda("cuStreamEndCapture", stream, ctypes.byref(graph))
    cuda("cuGraphLaunch", cuda.get("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0)), stream)
    assert out.copy_to_host().tolist() == [2.0] * 64
