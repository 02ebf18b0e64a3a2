"""Streams, events, captures and graphs: what is done when, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.emulator.driver import DriverResult, FakeDriver
from tests.emulator.driver.cuda import ADD_ONE, Cuda, CudaError

N = ctypes.c_uint(4)
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


@pytest.fixture
def late(libraries: Path) -> Iterator[Cuda]:
    """A driver that does nothing before a thread waits for it."""
    with FakeDriver(folder=libraries, streams="late") as driver:
        yield Cuda(driver.path)


def copied(cuda: Cuda, source: ctypes.c_uint64, stream: ctypes.c_void_p) -> ctypes.Array[ctypes.c_int]:
    """Four integers that are copied from the device by the stream."""
    target = (ctypes.c_int * 4)(-1, -1, -1, -1)
    cuda("cuMemcpyDtoHAsync_v2", target, source, ctypes.c_size_t(16), stream)
    return target


def test_work_waits_until_a_thread_waits_for_it(late: Cuda) -> None:
    x, stream, function = late.allocate(16), late.stream(), late.kernel()
    late.write(x, [0] * 4)
    late.launch(function, x, N, stream=stream)
    result = copied(late, x, stream)
    assert list(result) == [-1] * 4
    late("cuStreamSynchronize", stream)
    assert list(result) == [1] * 4
    with pytest.raises(CudaError) as caught:
        late.launch(function, x, N, stream=stream)
        late("cuStreamQuery", stream)
    assert caught.value.code == DriverResult.CUDA_ERROR_NOT_READY
    late("cuStreamQuery", stream)


def test_a_missing_wait_shows_and_an_event_fixes_it(late: Cuda) -> None:
    x, y, function = late.allocate(16), late.allocate(16), late.kernel()
    first, second, event = late.stream(1), late.stream(1), late.event()
    for is_waited_for, expected in ((False, [0] * 4), (True, [1] * 4)):
        late.write(x, [0] * 4)
        late.launch(function, x, N, stream=first)
        if is_waited_for:
            late("cuEventRecord", event, first)
            late("cuStreamWaitEvent", second, event, 0)
        late("cuMemcpyDtoDAsync_v2", y, x, ctypes.c_size_t(16), second)
        late("cuStreamSynchronize", second)
        assert late.read(y, 4) == expected
        late("cuCtxSynchronize")


BEFORE_AND_AFTER = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry before_and_after(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.b64 %rd1, [x];
    ld.param.b64 %rd2, [y];
    ld.global.b32 %r1, [%rd1];
    st.global.b32 [%rd2], %r1;
    griddepcontrol.wait;
    ld.global.b32 %r2, [%rd1];
    st.global.b32 [%rd2+4], %r2;
    ret;
}
"""
"""Copies an integer twice: before it waits for earlier launches, and after."""


@pytest.mark.parametrize(("is_early", "expected"), [(False, [1, 1]), (True, [0, 1])])
def test_a_launch_that_may_begin_early_sees_the_one_before_it_where_it_waits(
    late: Cuda, is_early: bool, expected: list
) -> None:
    x, y, stream = late.allocate(16), late.allocate(8), late.stream(1)
    late.write(x, [0] * 4)
    late.launch(late.kernel(), x, N, stream=stream)
    addresses = (ctypes.c_void_p * 2)(ctypes.addressof(x), ctypes.addressof(y))
    attribute = (ctypes.c_uint * 18)(6, 0, is_early)
    config = (ctypes.c_uint64 * 7)(
        1 | 1 << 32, 1 | 1 << 32, 1 | 1 << 32, 0, stream.value or 0, ctypes.addressof(attribute), 1
    )
    late("cuLaunchKernelEx", config, late.kernel(BEFORE_AND_AFTER, "before_and_after"), addresses, None)
    late("cuStreamSynchronize", stream)
    assert (late.read(y, 2), late.read(x, 4)) == (expected, [1] * 4)


def test_the_default_stream_waits_for_blocking_streams_and_they_for_it(late: Cuda) -> None:
    x, function = late.allocate(16), late.kernel()
    for flags, expected in ((0, [1] * 4), (1, [0] * 4)):
        late.write(x, [0] * 4)
        late.launch(function, x, N, stream=(stream := late.stream(flags)))
        assert late.read(x, 4) == expected, "a copy on the default stream"
        late("cuStreamSynchronize", stream)
    late.write(x, [0] * 4)
    late.launch(function, x, N)
    result = copied(late, x, stream := late.stream())
    late("cuStreamSynchronize", stream)
    assert list(result) == [1] * 4
    late("cuStreamDestroy_v2", stream)
    with pytest.raises(CudaError, match="is not a stream"):
        late("cuStreamSynchronize", stream)


def test_a_stream_is_used_while_another_device_is_current(libraries: Path) -> None:
    with FakeDriver(["sm_90", "sm_90"], folder=libraries, streams="late") as driver:
        cuda = Cuda(driver.path)
        x, stream, event = cuda.allocate(16), cuda.stream(), cuda.event()
        cuda("cuCtxSetCurrent", cuda.get("cuDevicePrimaryCtxRetain", 1))
        cuda("cuMemsetD8Async", x, 3, ctypes.c_size_t(16), stream)
        cuda("cuEventRecord", event, stream)
        cuda("cuStreamSynchronize", stream)
        assert cuda.read(x, 1) == [0x03030303]
        for fails in (
            lambda: cuda.launch(cuda.kernel(), x, N, stream=stream),
            lambda: cuda("cuEventRecord", cuda.event(), stream),
        ):
            with pytest.raises(CudaError, match=r"400: .* belongs to another|400: .* on another device"):
                fails()


def test_the_default_stream_of_a_thread_is_one(late: Cuda) -> None:
    x, function, of_thread = late.allocate(16), late.kernel(), ctypes.c_void_p(2)
    late.write(x, [0] * 4)
    for _ in range(3):
        late.launch(function, x, N, stream=of_thread)
    with pytest.raises(CudaError, match="cuStreamQuery: 600"):
        late("cuStreamQuery", of_thread)
    late("cuStreamSynchronize", of_thread)
    late("cuStreamQuery", of_thread)
    assert late.read(x, 4) == [3] * 4


def test_an_error_of_late_work_is_reported_by_the_call_that_waits(late: Cuda) -> None:
    x, function = late.allocate(16), late.kernel()
    late.launch(function, x, ctypes.c_uint(5))
    with pytest.raises(CudaError, match="cuCtxSynchronize: 700: add_one: out-of-bounds"):
        late("cuCtxSynchronize")
    late("cuCtxSynchronize")


def test_events_measure_time_in_instructions(late: Cuda) -> None:
    x, first, last = late.allocate(16), late.event(), late.event()
    late("cuEventRecord", first, None)
    late.launch(late.kernel(), x, N)
    late("cuEventRecord", last, None)
    with pytest.raises(CudaError) as caught:
        late.get("cuEventElapsedTime", first, last, kind=ctypes.c_float)
    assert caught.value.code == DriverResult.CUDA_ERROR_NOT_READY
    late("cuEventSynchronize", last)
    assert 0 < late.get("cuEventElapsedTime", first, last, kind=ctypes.c_float).value < 1e-3


def begin(cuda: Cuda, mode: int = GLOBAL) -> ctypes.c_void_p:
    """A stream that is being captured."""
    cuda("cuStreamBeginCapture_v2", stream := cuda.stream(), mode)
    return stream


def end(cuda: Cuda, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    """The graph of what was captured."""
    graph = ctypes.c_void_p()
    cuda("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def is_capturing(cuda: Cuda, stream: ctypes.c_void_p) -> int:
    """The status of a stream."""
    status = ctypes.c_int(-1)
    cuda("cuStreamIsCapturing", stream, ctypes.byref(status))
    return status.value


def test_captured_work_is_done_when_its_graph_is_launched(libraries: Path) -> None:
    with FakeDriver(folder=libraries) as driver:
        cuda = Cuda(driver.path)
        x, function, side, event, join = (
            cuda.allocate(16),
            cuda.kernel(),
            cuda.stream(),
            cuda.event(),
            cuda.event(),
        )
        cuda.write(x, [0] * 4)
        stream = begin(cuda)
        assert is_capturing(cuda, stream) == 1
        cuda.launch(function, x, N, stream=stream)
        cuda("cuEventRecord", event, stream)
        cuda("cuStreamWaitEvent", side, event, 0)
        cuda.launch(function, x, N, stream=side)
        cuda("cuEventRecord", join, side)
        cuda("cuStreamWaitEvent", stream, join, 0)
        graph = end(cuda, stream)
        assert cuda.read(x, 4) == [0] * 4
        executable = cuda.get("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
        for count in (2, 4):
            cuda("cuGraphLaunch", executable, stream)
            assert cuda.read(x, 4) == [count] * 4
        nodes = ctypes.c_size_t()
        cuda("cuGraphGetNodes", graph, None, ctypes.byref(nodes))
        assert nodes.value == 2
        cuda("cuGraphExecDestroy", executable)
        cuda("cuGraphDestroy", graph)


def test_what_a_capture_refuses_ends_it(libraries: Path) -> None:
    with FakeDriver(folder=libraries) as driver:
        cuda = Cuda(driver.path)
        x, function, stray = cuda.allocate(16), cuda.kernel(), cuda.event()
        cuda("cuEventRecord", stray, None)
        unsupported, isolation, implicit = (
            DriverResult[f"CUDA_ERROR_STREAM_CAPTURE_{name}"]
            for name in ("UNSUPPORTED", "ISOLATION", "IMPLICIT")
        )
        for code, call in (
            (unsupported, lambda stream: cuda.allocate(4)),
            (unsupported, lambda stream: cuda("cuMemFree_v2", x)),
            (unsupported, lambda stream: cuda("cuCtxSynchronize")),
            (unsupported, lambda stream: cuda("cuStreamSynchronize", stream)),
            (unsupported, lambda stream: cuda("cuStreamQuery", stream)),
            (isolation, lambda stream: cuda("cuStreamWaitEvent", stream, stray, 0)),
            (implicit, lambda stream: cuda.launch(function, x, N)),
            (implicit, lambda stream: cuda.write(x, [1])),
        ):
            stream = begin(cuda)
            with pytest.raises(CudaError) as caught:
                call(stream)
            assert caught.value.code == code
            with pytest.raises(CudaError) as caught:
                end(cuda, stream)
            assert caught.value.code == DriverResult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        stream = begin(cuda, RELAXED)
        cuda("cuMemFree_v2", cuda.allocate(4))
        end(cuda, stream)
        with pytest.raises(CudaError, match="not being captured"):
            end(cuda, stream)
        with pytest.raises(CudaError, match="the default stream cannot be captured"):
            cuda("cuStreamBeginCapture_v2", None, GLOBAL)


def test_older_drivers_load_nothing_while_a_stream_is_captured(libraries: Path) -> None:
    for version, code in (("12.9", DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED), ("13.0", 0)):
        with FakeDriver(folder=libraries, version=version) as driver:
            cuda = Cuda(driver.path)
            begin(cuda)
            module = ctypes.c_void_p()
            assert cuda.library.cuModuleLoadData(ctypes.byref(module), ADD_ONE.encode()) == code


def test_side_streams_have_to_be_joined(libraries: Path) -> None:
    with FakeDriver(folder=libraries) as driver:
        cuda = Cuda(driver.path)
        x, function, side, event = cuda.allocate(16), cuda.kernel(), cuda.stream(), cuda.event()
        stream = begin(cuda)
        cuda("cuEventRecord", event, stream)
        cuda("cuStreamWaitEvent", side, event, 0)
        cuda.launch(function, x, N, stream=side)
        with pytest.raises(CudaError, match="the capture began on another stream"):
            end(cuda, side)
        with pytest.raises(CudaError, match="work on other streams was not waited for"):
            end(cuda, stream)
        assert is_capturing(cuda, side) == 0
