"""The code that a call takes, and the device: by device, type, flag and alignment, seen by the digest of the
image that the driver loads."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from kbuild.emulator.driver import Array
from tests.emulator.driver.conftest import Built, World
from tests.emulator.driver.cuda import Cuda

Make = Callable[..., World]


@pytest.fixture(scope="session")
def names(built: Built) -> dict[str, str]:
    """`arch/kernel/variant` by digest; `+ptx` after those of texts."""
    found: dict[str, str] = {}
    for path in built.builds.glob("sm_*/*/*"):
        if path.suffix in (".cubin", ".ptx"):
            name = "/".join(path.with_suffix("").parts[-3:])
            found[hashlib.sha256(path.read_bytes()).hexdigest()] = name + "+ptx" * (path.suffix == ".ptx")
    return found


def launched(world: World, names: dict[str, str]) -> str:
    """The name of the code that the last launch ran."""
    return names[world.driver.launches[-1].digest]


def vectors(world: World, dtype: str = "f4", device: int = 0, count: int = 64) -> list[Array]:
    return [world.driver.array(numpy.ones(count, dtype), device) for _ in range(3)]


def test_each_device_takes_its_own_code(world: Make, names: dict[str, str]) -> None:
    here = world("sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    taken = []
    for device in range(5):
        x, y, out = vectors(here, device=device)
        here.package.launch.vector_add(x, y, out, 64)
        assert out.copy_to_host().tolist() == [2] * 64
        taken.append(
            launched(here, names).partition("/")[0] + "+ptx" * launched(here, names).endswith("+ptx")
        )
    assert taken == ["sm_80", "sm_80", "sm_90", "sm_80+ptx", "sm_80+ptx"]


def test_a_device_without_code_is_reported_what_there_is(world: Make) -> None:
    here = world("sm_75")
    with pytest.raises(here.package.NoVariantError) as caught:
        here.package.launch.vector_add(*vectors(here), 64)
    assert "nothing was built for device 0 (compute capability 7.5" in str(caught.value)
    assert "there is sm_80, sm_80+ptx, sm_90" in str(caught.value)
    assert not here.driver.loads


def test_code_for_hopper_alone_runs_there_alone(world: Make, names: dict[str, str]) -> None:
    """`matmul` is sm_90a; a newer device falls back to the PTX of sm_80."""
    here = world("sm_90", "sm_100")
    for device, name in ((0, "sm_90/matmul"), (1, "sm_80/matmul")):
        a, b, c = (here.driver.array(numpy.ones((16, 16), "f2"), device) for _ in range(3))
        here.package.launch.matmul(a, b, c, 16, 16, 16, 16, 16, 16)
        assert launched(here, names).startswith(name)
        assert c.copy_to_host().tolist() == [[16] * 16] * 16


def test_type_flag_and_alignment_choose(world: Make, names: dict[str, str]) -> None:
    here = world()
    seen = set()
    for dtype, word in (("f4", "fp32"), ("f2", "fp16")):
        x, y, out = vectors(here, dtype, count=80)
        for n, skip in ((64, 0), (63, 0), (64, 1)):
            address = [array.pointer + skip * array.dtype.itemsize for array in (x, y, out)]
            here.package.launch.vector_add(*address, n, dtype=word)
            is_aligned = n % 16 == 0 and not skip
            assert launched(here, names).startswith(f"sm_90/vector_add/{word}.")
            assert ("n=d16" in launched(here, names)) == is_aligned
            seen.add(launched(here, names))
            start = out.copy_to_host()[skip : skip + n]
            assert start.tolist() == [2] * n
    assert len(seen) == 4
    q, lse = here.driver.array(numpy.ones((1, 1, 16, 64), "f2")), here.driver.empty((1, 1, 16), "f4")
    for causal in (True, False):
        here.package.attention(
            q, q, q, q, lse, 1.0, *(1024, 1024, 64) * 4, 1, 1, 16, 16, 1, HEAD_DIM=64, IS_CAUSAL=causal
        )
        assert f"IS_CAUSAL={int(causal)}" in launched(here, names)


def test_the_tensor_s_device_is_taken_and_the_caller_s_stays_current(world: Make) -> None:
    here = world("sm_90", "sm_80", "sm_90")
    cuda = Cuda(here.driver.path, 2)
    for device in (1, 0, 2):
        here.package.launch.vector_add(*vectors(here, device=device), 64)
        assert here.driver.launches[-1].device == device
        assert cuda.get("cuCtxGetDevice", kind=ctypes.c_int).value == 2
    cuda("cuCtxSetCurrent", None)
    here.package.launch.vector_add(*vectors(here, device=1), 64)
    current = cuda.get("cuCtxGetCurrent")
    assert current.value is None, "the stack is as it was"
    with pytest.raises(ValueError, match="y is on device 1, and an argument before it is on device 0"):
        here.package.launch.vector_add(vectors(here)[0], *vectors(here, device=1)[1:], 64)


def test_launches_go_to_the_stream_that_is_named(world: Make) -> None:
    """The driver works late: results that are not waited for are missing."""
    here = world("sm_90", streams="late")
    cuda = Cuda(here.driver.path)
    (x, y, out), side = vectors(here), cuda.stream(1)
    seen = (ctypes.c_float * 64)()
    here.package.launch.vector_add(x, y, out, 64, stream=side.value)
    cuda(
        "cuMemcpyDtoHAsync_v2",
        seen,
        ctypes.c_uint64(out.pointer),
        ctypes.c_size_t(256),
        other := cuda.stream(1),
    )
    cuda("cuStreamSynchronize", other)
    assert list(seen) == [1.0] * 64, "another stream comes too early"
    cuda("cuMemcpyDtoHAsync_v2", seen, ctypes.c_uint64(out.pointer), ctypes.c_size_t(256), side)
    cuda("cuStreamSynchronize", side)
    assert list(seen) == [2.0] * 64


def test_preload_loads_what_the_device_runs(world: Make) -> None:
    here = world("sm_90", "sm_80")
    assert here.package.preload(1, kernels=["vector_add", here.package.softmax]) == 2 * (4 + 1), (
        "cubins, and PTX for the driver"
    )
    assert here.driver.loads == {1: 10}
    here.package.launch.vector_add(*vectors(here, device=1), 64)
    assert (
        here.driver.loads == {1: 10}
        and here.package.is_loaded("softmax", 1)
        and not here.package.is_loaded("softmax", 0)
    )


@pytest.mark.parametrize("devices", [1, 3])
def test_64_threads_at_once_load_one_module_for_each_device(world: Make, devices: int) -> None:
    here = world(*("sm_90", "sm_80", "sm_86")[:devices])
    start, errors, results = threading.Barrier(64), [], []

    def work(device: int) -> None:
        try:
            x, y, out = vectors(here, device=device)
            start.wait()
            here.package.launch.vector_add(x, y, out, 64)
            results.append(out.copy_to_host().tolist() == [2] * 64)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number % devices,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, results) == ([], [True] * 64)
    assert here.driver.loads == dict.fromkeys(range(devices), 1)
    names = [call.name for call in here.driver.calls]
    assert names.count("cuInit") == 1 and names.count("cuDevicePrimaryCtxRetain") == devices


WRONG: dict[str, tuple[Callable[[Any, Any, Any], object], str]] = {
    "a list": (
        lambda p, x, h: p.vector_add([1.0], x, x, 64),
        "x must be a tensor on a CUDA device or an address, not list",
    ),
    "a host array": (lambda p, x, h: p.vector_add(h, x, x, 64), "x is not on a CUDA device"),
    "too few": (lambda p, x, h: p.vector_add(x, x, x), "is missing the argument 'n'"),
    "too many": (lambda p, x, h: p.vector_add(x, x, x, 64, 65), "takes 4 positional arguments, not 5"),
    "unknown": (lambda p, x, h: p.vector_add(x, x, x, 64, m=1), "has no argument 'm'"),
    "float": (lambda p, x, h: p.vector_add(x, x, x, 64.0), "n must be an integer, not float"),
    "large": (lambda p, x, h: p.vector_add(x, x, x, 2**63), "n = 9223372036854775808 does not fit i64"),
    "type": (lambda p, x, h: p.vector_add(x, x, x, 64, dtype="fp64"), "dtype = fp64 is not fp32"),
    "ambiguous": (
        lambda p, x, h: p.vector_add(x.pointer, 16, 16, 64),
        "the element type of an argument is unknown",
    ),
    "condition": (
        lambda p, x, h: p.softmax(x, x, 8, 8, 257, 1),
        r"n_cols <= 256 does not hold (n_cols = 257)",
    ),
    "negative grid": (lambda p, x, h: p.softmax(x, x, 8, 8, 8, -1), "has -1 programs along axis 0"),
    "option": (
        lambda p, x, h: p.attention(x, x, x, x, x, 1.0, *(16,) * 12, 1, 1, 1, 1, 1, HEAD_DIM=64),
        "'IS_CAUSAL'",
    ),
    "map": (
        lambda p, x, h: p.matmul(*(x.pointer,) * 3, 8, 8, 8, -16, 16, 16),
        "a has a stride of -16 elements",
    ),
    "stream": (lambda p, x, h: p.vector_add(x, x, x, 64, stream="main"), "stream must be"),
    "no stream": (
        lambda p, x, h: p.vector_add(x, x, x, 64, stream=0x123),
        "is not a stream",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_reported_and_the_next_one_works(world: Make, case: str) -> None:
    here = world("sm_90")
    call, text = WRONG[case]
    x, y, out = vectors(here)
    with pytest.raises((TypeError, ValueError, here.package.LaunchError)) as caught:
        call(here.package, x, numpy.ones(64, "f4"))
    assert text in str(caught.value)
    assert not here.driver.launches
    here.package.launch.vector_add(x, y, out, 64)
    assert out.copy_to_host().tolist() == [2] * 64


def test_a_kernel_that_goes_out_of_bounds_says_where(world: Make) -> None:
    here = world("sm_90")
    x, y = (here.driver.array(numpy.ones(64, "f4"), name=name) for name in "xy")
    out = here.driver.empty(60, "f4", name="out")
    with pytest.raises(here.package.DriverError) as caught:
        here.package.launch.vector_add(x, y, out, 64)
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert "vector_add(), row sm_90 dtype=fp32 BLOCK=256" in str(caught.value)
    assert "out-of-bounds" in str(caught.value) and "after the end of out (60 elements)" in str(caught.value)
    released = x.pointer
    x.free()
    with pytest.raises(here.package.DriverError, match="use-after-free"):
        here.package.launch.vector_add(released, y, y, 64)
