"""The driver by itself: memory, modules, kernels, tensor maps, errors, as a C program sees them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from kbuild.emulator.async_ops.tensor_map import TensorMap
from kbuild.emulator.driver import DriverResult, FakeDriver
from kbuild.emulator.driver.table import FUNCTIONS
from kbuild.errors import KbuildError, ToolError, UsageError
from tests.emulator.driver.cuda import ADD_ONE, Cuda, CudaError


@pytest.fixture
def driver(libraries: Path) -> Iterator[FakeDriver]:
    with FakeDriver(["sm_90", "sm_80"], folder=libraries) as driver:
        yield driver


def test_a_kernel_from_its_text_to_its_result(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    x, n = cuda.allocate(40), ctypes.c_uint(9)
    cuda.write(x, list(range(10)))
    cuda.launch(cuda.kernel(), x, n)
    assert cuda.read(x, 10) == [*range(1, 10), 9]
    assert [call.name for call in driver.calls][-2:] == ["cuLaunchKernel", "cuMemcpyDtoH_v2"]
    cuda("cuMemFree_v2", x)
    assert [text.split()[0] for text in driver.leftovers] == ["Module", "calls"]


def test_arrays_have_the_shapes_of_their_values(driver: FakeDriver) -> None:
    for values in (numpy.float32(3), numpy.zeros((0, 4)), numpy.arange(6).reshape(2, 3).T):
        array = driver.array(values)
        assert array.shape == values.shape and (array.copy_to_host() == values).all()


def test_devices_are_what_was_asked_for(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path, None)
    assert cuda.get("cuDeviceGetCount", kind=ctypes.c_int).value == 2
    major, minor = (
        cuda.get("cuDeviceGetAttribute", number, 1, kind=ctypes.c_int).value for number in (75, 76)
    )
    assert (major, minor) == (8, 0)
    name = ctypes.create_string_buffer(64)
    cuda("cuDeviceGetName", name, 64, 0)
    assert name.value == b"kbuild stand-in for sm_90"
    with pytest.raises(CudaError, match="no device 2; there are 2") as caught:
        cuda.get("cuDeviceGet", 2, kind=ctypes.c_int)
    assert caught.value.code == DriverResult.CUDA_ERROR_INVALID_DEVICE
    for wrong in (["sm_91"], ["hopper"]):
        with pytest.raises(UsageError, match="no device of architecture"):
            FakeDriver(wrong)


def test_nothing_works_before_cuinit_and_without_a_context(driver: FakeDriver, libraries: Path) -> None:
    library = ctypes.CDLL(str(driver.path))
    assert library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == DriverResult.CUDA_ERROR_NOT_INITIALIZED
    cuda = Cuda(driver.path, None)
    with pytest.raises(CudaError, match="no context is current"):
        cuda.allocate(16)
    driver.close()
    assert library.cuInit(0) == DriverResult.CUDA_ERROR_DEINITIALIZED
    with FakeDriver([], folder=libraries) as none, pytest.raises(CudaError, match="no device"):
        Cuda(none.path)


def test_memory_is_the_device_s_and_every_byte_is_watched(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path, 1)
    x = cuda.allocate(16)
    assert cuda.get("cuPointerGetAttribute", 9, x, kind=ctypes.c_int).value == 1
    cuda("cuMemsetD32_v2", x, 7, ctypes.c_size_t(4))
    assert cuda.read(x, 4) == [7] * 4
    for size in (20, 1 << 20):
        with pytest.raises(CudaError, match="the allocation ends after 16"):
            cuda("cuMemsetD8_v2", x, 0, ctypes.c_size_t(size))
    cuda("cuMemFree_v2", x)
    for call in (lambda: cuda("cuMemFree_v2", x), lambda: cuda.read(x, 4)):
        with pytest.raises(CudaError, match="is not an address on a device"):
            call()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == total.value == 1 << 30
    with pytest.raises(CudaError) as caught:
        cuda.allocate((1 << 30) + 1)
    assert caught.value.code == DriverResult.CUDA_ERROR_OUT_OF_MEMORY


def test_memory_is_used_again_but_not_at_once(libraries: Path) -> None:
    with FakeDriver(folder=libraries, memory=40 << 10) as driver:
        places = set()
        for _ in range(40):
            made = driver.empty(1 << 10, "u1")
            places.add(made.pointer)
            made.free()
        assert 10 <= len(places) <= 13
        held = driver.empty(40 << 10, "u1")
        with pytest.raises(KbuildError, match=r"CUDA_ERROR_OUT_OF_MEMORY \(2\): 1 bytes are wanted, 0 of"):
            driver.empty(1, "u1")
        del held
        assert driver.empty(1, "u1").copy_to_host().tolist() == [255]


def test_an_access_out_of_bounds_is_reported_with_its_array(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    x = driver.array(numpy.arange(8, dtype=numpy.int32), name="x")
    with pytest.raises(
        CudaError, match=r"(?s)add_one: out-of-bounds.*after the end of x.*at PTX line 17: ld\.global"
    ) as caught:
        cuda.launch(cuda.kernel(), ctypes.c_uint64(x.pointer), ctypes.c_uint(9))
    assert caught.value.code == DriverResult.CUDA_ERROR_ILLEGAL_ADDRESS
    assert [finding.kind for finding in driver.findings] == ["out-of-bounds"]
    other = driver.array(numpy.arange(8, dtype=numpy.int32), 1)
    with pytest.raises(CudaError, match="out-of-bounds"):
        cuda.launch(cuda.kernel(), ctypes.c_uint64(other.pointer), ctypes.c_uint(8))
    cuda.launch(cuda.kernel(), ctypes.c_uint64(x.pointer), ctypes.c_uint(8))
    assert x.copy_to_host().tolist() == list(range(1, 9)), "a fault does not end the context"


def test_launches_that_a_device_cannot_do(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    function, x = cuda.kernel(), cuda.allocate(128)
    count = ctypes.c_uint(32)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(x), ctypes.addressof(count))

    def launch(grid: tuple[int, int, int], threads: int, shared: int) -> None:
        cuda("cuLaunchKernel", function, *grid, threads, 1, 1, shared, None, arguments, None)

    for wrong, text in (
        (((0, 1, 1), 32, 0), "a grid of"),
        (((1, 65536, 1), 32, 0), "a grid of"),
        (((1, 1, 1), 1025, 0), "a block of"),
        (((1, 1, 1), 32, 49153), "49153 bytes of dynamic shared memory; the kernel may have 49152"),
    ):
        with pytest.raises(CudaError, match=text):
            launch(*wrong)
    cuda("cuFuncSetAttribute", function, 8, 232448)
    launch((1, 1, 1), 32, 232448)
    with pytest.raises(CudaError, match="232449 bytes"):
        cuda("cuFuncSetAttribute", function, 8, 232449)
    cuda("cuCtxSetCurrent", cuda.get("cuDevicePrimaryCtxRetain", 1))
    with pytest.raises(CudaError, match="another context"):
        launch((1, 1, 1), 32, 0)


def test_refused_images_have_a_reason(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path, 1)
    elf = b"\x7fELF\x02\x01" + bytes(26) + (64).to_bytes(8, "little") + bytes(100)

    def error(image: bytes) -> tuple[int, str]:
        log = ctypes.create_string_buffer(2000)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        with pytest.raises(CudaError) as caught:
            cuda.get("cuModuleLoadDataEx", ctypes.c_char_p(image), 2, (ctypes.c_int * 2)(5, 6), values)
        return caught.value.code, log.value.decode()

    for image, code, text in (
        (elf, 209, "does not know that of the cubin with sha256"),
        (ADD_ONE.replace("sm_80", "sm_90").encode(), 218, "PTX for sm_90 does not run on sm_80"),
        (ADD_ONE.replace("sm_80", "sm_80a").replace("8", "9").encode(), 218, "does not run"),
        (ADD_ONE.replace("7.0", "9.9").encode(), 222, "PTX 9.9; the driver knows PTX up to 9.0"),
        (ADD_ONE.replace("add.u64", "plus.u64").encode(), 0, ""),
        (ADD_ONE.replace("{", "{{{").encode(), 218, "the function does not end"),
        (b"MZ", 200, "neither a cubin nor PTX"),
        (b"\x50\xed\x55\xba", 209, "fat binaries"),
    ):
        if code:
            found = error(image)
            assert (found[0], text in found[1]) == (code, True), found
        else:
            with pytest.raises(CudaError, match=r"plus\.u64"):
                cuda.kernel(image.decode())
    driver.register(elf, ADD_ONE)
    cuda.get("cuModuleLoadData", ctypes.c_char_p(elf))
    with pytest.raises(CudaError, match="no kernel nothing; the module has add_one"):
        cuda.kernel(name="nothing")


def encode(cuda: Cuda, rank: int, address: int, skew: int = 0, **changed: Any) -> bytes:
    """The bytes of a tensor map of fp16, 64 x 72 x 80 and so on, in boxes of 64 x 8 x 8."""
    room = ctypes.create_string_buffer(192)
    target = -(-ctypes.addressof(room) // 64) * 64 + skew
    fields: dict[str, Any] = {
        "element": 6,
        "sizes": [64, 72, 80, 88, 96],
        "strides": [128, 128 * 72, 128 * 72 * 80, 1 << 30],
        "box": [64, 8, 4, 2, 2],
        "steps": [1] * 5,
        "interleave": 0,
        "swizzle": 3,
        "promotion": 2,
        "fill": 0,
    } | changed
    words = [(ctypes.c_uint64 * 5)(*fields[name]) for name in ("sizes", "strides")]
    halves = [(ctypes.c_uint32 * 5)(*fields[name]) for name in ("box", "steps")]
    last = [fields[name] for name in ("interleave", "swizzle", "promotion", "fill")]
    arguments = (
        ctypes.c_void_p(target),
        fields["element"],
        rank,
        ctypes.c_void_p(address),
        *words,
        *halves,
        *last,
    )
    cuda("cuTensorMapEncodeTiled", *arguments)
    return ctypes.string_at(target, 128)


def test_tensor_maps(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    for rank in range(1, 6):
        made = TensorMap.decode(encode(cuda, rank, 1 << 40))
        assert (made.rank, made.element, made.sizes[0], made.box[0], made.swizzle) == (rank, "f16", 64, 64, 3)
    for changed, text in (
        ({"address": 8}, "is not a multiple of 16"),
        ({"skew": 8}, "not aligned to 16"),
        ({"element": 13}, "element type 13"),
        ({"sizes": [0, 1]}, "size 0 of dimension 0"),
        ({"sizes": [1, 2**32 + 1]}, "dimension 1"),
        ({"strides": [8]}, "stride 8"),
        ({"strides": [1 << 40]}, "stride"),
        ({"box": [64, 257]}, "box size 257"),
        ({"box": [65, 1]}, "not a multiple of 16"),
        ({"box": [128, 1]}, "the swizzle has rows of 128"),
        ({"steps": [1, 9]}, "element stride 9"),
        ({"swizzle": 4}, "swizzle"),
        ({"interleave": 1}, "interleave 1"),
        ({"promotion": 4}, "promotion 4"),
        ({"fill": 2}, "fill 2"),
        ({"fill": 1, "element": 1}, "NaN cannot fill"),
        ({"rank": 6}, "rank 6"),
        ({"rank": 0}, "rank 0"),
    ):
        with pytest.raises(CudaError, match=text) as caught:
            encode(cuda, **({"rank": 2, "address": 1 << 40} | changed))  # type: ignore[arg-type]
        assert caught.value.code == DriverResult.CUDA_ERROR_INVALID_VALUE


def test_functions_by_name_and_version(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    address, status = ctypes.c_void_p(), ctypes.c_int()

    def find(name: bytes, version: int) -> tuple[bool, int]:
        cuda(
            "cuGetProcAddress_v2",
            name,
            ctypes.byref(address),
            version,
            ctypes.c_uint64(0),
            ctypes.byref(status),
        )
        return address.value is not None, status.value

    assert find(b"cuMemAlloc", 12000) == (True, 0)
    newest = ctypes.cast(cuda.library.cuMemAlloc_v2, ctypes.c_void_p)
    assert address.value == newest.value
    assert find(b"cuTensorMapEncodeTiled", 11000) == (False, 2), "too new"
    assert find(b"cuNothing", 12000) == (False, 1)


def test_the_library_has_what_a_driver_of_its_version_has(libraries: Path) -> None:
    for version, has_maps in (("11.8", False), ("12.0", True)):
        library = ctypes.CDLL(str(FakeDriver(version=version, folder=libraries).path))
        assert hasattr(library, "cuTensorMapEncodeTiled") == has_maps
    lacking = ctypes.CDLL(str(FakeDriver(without=["cuModuleUnload"], folder=libraries).path))
    of_13_0 = {name for name, function in FUNCTIONS.items() if function.since <= 13000}
    assert {name for name in of_13_0 if not hasattr(lacking, name)} == {"cuModuleUnload"}
    with pytest.raises(UsageError, match="no function cuNothing"):
        _ = FakeDriver(without=["cuNothing"], folder=libraries).path
    with pytest.raises(UsageError, match="version is 'twelve'"):
        FakeDriver(version="twelve")


def test_a_library_that_cannot_be_built_says_why(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for settings, text in (
        ({"cc": ["no-such-compiler"]}, "no-such-compiler: No such file"),
        ({"cc": ["cc", "-no-such-flag"]}, "failed with exit code"),
        ({"folder": tmp_path / "file"}, "name another folder for the fake driver's library"),
    ):
        with pytest.raises(ToolError, match=text):
            _ = FakeDriver(**({"folder": libraries} | settings)).path  # type: ignore[arg-type]
    assert not [path for path in libraries.iterdir() if path.name.startswith(".")]


def test_injected_failures_come_once_and_in_any_form(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    driver.fail_next("cuModuleLoadDataEx", 209)
    driver.fail_next("cuMemAlloc", DriverResult.CUDA_ERROR_OUT_OF_MEMORY, times=2)
    for name, call in (("cuModuleLoadData", cuda.kernel), *[("cuMemAlloc_v2", lambda: cuda.allocate(4))] * 2):
        with pytest.raises(CudaError, match=f"{name} fails because a test requests it"):
            call()
    cuda.allocate(4)
    cuda.kernel()
    with pytest.raises(UsageError, match="the driver has no function cuMelt"):
        driver.fail_next("cuMelt", 1)
    with pytest.raises(UsageError, match="another fake driver is active"):
        FakeDriver(folder=driver.path.parents[1]).__enter__()


def test_a_kernel_that_is_for_clusters(driver: FakeDriver) -> None:
    """Its code has the shape, and a launch without attributes uses it; other shapes are refused, and so are
    incomplete clusters."""
    cuda, x = Cuda(driver.path), driver.array(numpy.zeros(4, numpy.int32))
    text = ADD_ONE.replace("sm_80", "sm_90").replace(".version 7.0", ".version 8.0")
    function = cuda.kernel(text.replace("n)\n{", "n)\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{"))
    buffer = ctypes.create_string_buffer(x.pointer.to_bytes(8, "little") + (4).to_bytes(4, "little"), 12)
    extra = (ctypes.c_void_p * 5)(
        1, ctypes.addressof(buffer), 2, ctypes.addressof(size := ctypes.c_size_t(12)), 0
    )
    cuda("cuLaunchKernel", function, 4, 1, 1, 32, 1, 1, 0, None, None, extra)
    assert (
        x.copy_to_host().tolist() == [4] * 4 and driver.launches[-1].cluster == (2, 1, 1) and size.value == 12
    )
    with pytest.raises(CudaError, match="a grid of"):
        cuda("cuLaunchKernel", function, 3, 1, 1, 32, 1, 1, 0, None, None, extra)
    attribute = (ctypes.c_uint * 18)(4, 0, 4, 1, 1)
    config = (ctypes.c_uint64 * 7)(
        4 | 1 << 32, 1 | 32 << 32, 1 | 1 << 32, 0, 0, ctypes.addressof(attribute), 1
    )
    with pytest.raises(CudaError, match=r"a cluster of \(4, 1, 1\); the kernel is for \(2, 1, 1\)"):
        cuda("cuLaunchKernelEx", config, function, None, extra)


def test_parameters_in_one_buffer_and_a_cluster_by_its_attribute(driver: FakeDriver) -> None:
    cuda = Cuda(driver.path)
    function, x = cuda.kernel(), driver.array(numpy.zeros(4, numpy.int32))
    buffer = ctypes.create_string_buffer(x.pointer.to_bytes(8, "little") + (4).to_bytes(4, "little"), 12)
    size = ctypes.c_size_t(12)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, extra)
    attribute = (ctypes.c_uint * 18)(4, 0, 2, 1, 1)
    config = (ctypes.c_uint64 * 7)(
        4 | 1 << 32, 1 | 32 << 32, 1 | 1 << 32, 0, 0, ctypes.addressof(attribute), 1
    )
    cuda("cuLaunchKernelEx", config, function, None, extra)
    assert x.copy_to_host().tolist() == [5] * 4, "once by one block, and once by each of four"
    assert (driver.launches[-1].cluster, driver.launches[-1].grid) == ((2, 1, 1), (4, 1, 1))
    size.value = 11
    with pytest.raises(CudaError, match="the parameters take 12 bytes, the buffer has 11"):
        cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, extra)


RACE = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry race()
{
    .shared .align 4 .b32 word;
    .reg .b32 %r<3>;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    st.shared.b32 [word], %r2;
    ret;
}
"""


@pytest.mark.parametrize("checks", ["", "lenient"])
def test_a_race_is_a_fault_where_that_is_asked_for(libraries: Path, checks: str) -> None:
    with FakeDriver(folder=libraries, checks=checks) as driver:
        cuda = Cuda(driver.path)
        function = cuda.kernel(RACE, "race")
        if not checks:
            cuda.launch(function, threads=64)
            return
        with pytest.raises(CudaError, match="race: race") as caught:
            cuda.launch(function, threads=64)
        assert caught.value.code == DriverResult.CUDA_ERROR_LAUNCH_FAILED


@pytest.mark.parametrize("setting", ["streams", "schedule", "timing", "checks"])
def test_unknown_settings_are_reported_at_once(setting: str) -> None:
    with pytest.raises(KbuildError, match="sometimes"):
        FakeDriver(**{setting: "sometimes"})  # type: ignore[arg-type]
