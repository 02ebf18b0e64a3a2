"""cuda.bindings and cuda.core run on the fake driver, whose numbers are those of cuda.bindings and of CUDA's headers."""

from __future__ import annotations

import gc
import importlib.util
import re
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.emulator.driver import FakeDriver, codes, host
from kbuild.emulator.driver.table import FUNCTIONS, form_of
from tests.emulator.driver.conftest import ROOT
from tests.emulator.driver.cuda import ADD_ONE
from tests.emulator.fake_gpu import on_fake_gpu

ENUMS = {
    codes.DriverResult: ("CUresult", ""),
    codes.DeviceAttribute: ("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_"),
    codes.FunctionAttribute: ("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_"),
    codes.PointerAttribute: ("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_"),
    codes.PoolAttribute: ("CUmemPool_attribute", "CU_MEMPOOL_ATTR_"),
    codes.LaunchAttribute: ("CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_"),
    codes.JitOption: ("CUjit_option", "CU_JIT_"),
    codes.CaptureMode: ("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_"),
}
"""The enumerations here, and those of cuda.bindings, with what all of their names begin with."""

TWO_POINTERS = """\
.version 7.8
.target sm_90
.address_size 64
.visible .entry two(.param .u64 .ptr .global .align 16 x, .param .u32 n, .param .u64 .ptr .global .align 16 y)
{
    ret;
}
"""


def toolkit() -> Path:
    """The folder of what NVIDIA's wheels install."""
    found = importlib.util.find_spec("nvidia.cu13")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


@pytest.fixture(scope="module")
def bindings() -> Any:
    """The module cuda.bindings.driver."""
    return pytest.importorskip("cuda.bindings.driver")


@pytest.fixture(scope="module")
def prototypes() -> dict[str, list[tuple[int, list[int]]]]:
    """The forms of the driver's functions in cudaTypedefs.h, by name: version, and bytes of each parameter."""
    # kbuild depends on nvidia-cuda-nvcc, and that on the headers.
    text = (toolkit() / "include/cudaTypedefs.h").read_text()
    forms: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for name, version, ending, parameters in re.findall(
        r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)\((.*?)\);", text
    ):
        forms[name + ending].add((int(version), parameters))
    return {
        name: [(version, _sizes(text)) for version, text in sorted(known)] for name, known in forms.items()
    }


ENUM = r"CUresult|CUlimit|CUfunc_cache|CUstreamCaptureMode|CU\w+_attribute|CUdevice_attrib\w*|CUtensorMap\w+|CUmemAllocationType"
SIZES = {
    r"(const )?\w+ .*\*.*|.*\*\*?.*": 8,
    r"unsigned char \w+": 1,
    r"unsigned short \w+": 2,
    rf"(unsigned int|unsigned|int|cuuint32_t|CUdevice(_v1)?|{ENUM}) \w+": 4,
}
"""Bytes of parameters as the header declares them; all others are addresses, handles and sizes."""


def _sizes(parameters: str) -> list[int]:
    """The bytes of each parameter of a list."""
    texts = [text.strip() for text in parameters.split(",") if text.strip() != "void"]
    return [
        next((size for pattern, size in SIZES.items() if re.fullmatch(pattern, text)), 8) for text in texts
    ]


def test_every_function_has_the_versions_and_parameters_of_the_header(
    prototypes: dict[str, list[tuple[int, list[int]]]],
) -> None:
    bytes_of = {"Int": 4, "Unsigned": 4, "Byte": 1, "Short": 2}
    complaints = []
    for name, function in FUNCTIONS.items():
        number, ending = re.fullmatch(r"\w+?(?:_v(\d))?(_ptsz|_ptds)?", name).groups()  # type: ignore[union-attr]
        forms = prototypes[function.base + (ending or "")]
        # The header has no old forms of what has an ending.
        index = int(number or 1) - 1 if len(forms) > 1 or not ending else 0
        sizes = [bytes_of.get(kind, 8) for _, kind in function.parameters]
        if index >= len(forms) or (function.since, sizes) != forms[index]:
            complaints.append(f"{name} since {function.since} takes {sizes}, in the header {forms}")
    assert not complaints, "\n".join(complaints)


def test_a_version_never_gets_the_form_of_another(
    prototypes: dict[str, list[tuple[int, list[int]]]],
) -> None:
    """A program that asks for cuCtxCreate of CUDA 12.5 calls it with other arguments than that of 3.2."""
    for base in {function.base for function in FUNCTIONS.values()}:
        for version, _ in prototypes[base]:
            form = form_of(base, version)
            assert form is None or form.since == version, f"{base} of {version} is {form}"


@pytest.mark.parametrize("ours", ENUMS, ids=lambda ours: ours.__name__)
def test_numbers_are_those_of_cuda(bindings: Any, ours: Any) -> None:
    name, prefix = ENUMS[ours]
    theirs = getattr(bindings, name).__members__
    # An older cuda.bindings lacks the newest.
    known = {one.name: int(theirs[prefix + one.name]) for one in ours if prefix + one.name in theirs}
    assert known == {one.name: int(one) for one in ours if one.name in known}
    assert len(known) > 0.9 * len(ours)


@pytest.mark.parametrize("name", codes.STRUCTURES)
def test_structures_have_the_size_of_those_of_cuda(bindings: Any, name: str) -> None:
    assert struct.calcsize(codes.STRUCTURES[name]) == bindings.sizeof(getattr(bindings, name))


def test_fields_lie_where_cuda_has_them(bindings: Any) -> None:
    config = bindings.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, 2, 3
    config.blockDimX, config.blockDimY, config.blockDimZ = 4, 5, 6
    config.sharedMemBytes, config.hStream = 7, bindings.CUstream(8)
    attribute = bindings.CUlaunchAttribute()
    attribute.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = 2, 3, 4
    config.attrs, config.numAttrs = [attribute], 1
    *numbers, attributes, count = host.unpack(config.getPtr(), codes.STRUCTURES["CUlaunchConfig"])
    assert (numbers, count) == ([1, 2, 3, 4, 5, 6, 7, 8], 1)
    number, value = host.unpack(attributes, codes.STRUCTURES["CUlaunchAttribute"])
    assert (number, struct.unpack_from("3I", value)) == (codes.LaunchAttribute.CLUSTER_DIMENSION, (2, 3, 4))
    properties = bindings.CUmemPoolProps()
    properties.allocType = bindings.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 5
    assert host.unpack(properties.getPtr(), codes.STRUCTURES["CUmemPoolProps"])[:4] == (1, 0, 1, 5)


@on_fake_gpu("sm_90", "sm_80")
def test_cuda_core_launches_kernels(driver: FakeDriver) -> None:
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    second = Device(1)
    assert (second.arch, second.properties.multiprocessor_count) == ("80", 108)
    device = Device(0)
    device.set_current()
    kernel = ObjectCode.from_ptx(ADD_ONE.encode()).get_kernel("add_one")
    assert (kernel.num_arguments, kernel.occupancy.max_active_blocks_per_multiprocessor(256, 0)) == (2, 8)
    stream = device.create_stream()
    x = driver.array(np.arange(8, dtype=np.int32))
    launch(stream, LaunchConfig(grid=1, block=32), kernel, x.pointer, np.uint32(8))
    stream.sync()
    assert x.copy_to_host().tolist() == list(range(1, 9))
    assert driver.launches[-1].stream == int(stream.handle)
    early = LaunchConfig(grid=2, cluster=2, block=32, programmatic_stream_serialization=True)
    launch(stream, early, kernel, x.pointer, np.uint32(0))
    launched = driver.launches[-1]
    assert (launched.grid, launched.cluster, launched.may_begin_early) == ((4, 1, 1), (2, 1, 1), True)
    second.set_current()  # The kernel is loaded there when it is needed.
    y = driver.array(np.zeros(8, np.int32), device=1)
    launch(second.create_stream(), LaunchConfig(grid=1, block=32), kernel, y.pointer, np.uint32(8))
    assert y.copy_to_host().tolist() == [1] * 8 and driver.launches[-1].device == 1


@on_fake_gpu(streams="late")
def test_cuda_core_orders_work_by_streams_and_events(driver: FakeDriver) -> None:
    from cuda.core import Device, EventOptions, LaunchConfig, LegacyPinnedMemoryResource, ObjectCode, launch

    device = Device()
    device.set_current()
    kernel = ObjectCode.from_ptx(ADD_ONE.encode()).get_kernel("add_one")
    first, second = device.create_stream(), device.create_stream()
    timed = EventOptions(timing_enabled=True)
    buffer = device.allocate(32, stream=first)
    page = LegacyPinnedMemoryResource().allocate(32)
    values = np.from_dlpack(page).view(np.int32)
    values[:] = 5
    page.copy_to(buffer, stream=first)
    begin = first.record(options=timed)
    launch(first, LaunchConfig(grid=1, block=32), kernel, buffer, np.uint32(8))
    end = first.record(options=timed)
    second.wait(end)
    buffer.copy_to(page, stream=second)
    assert not end.is_done and values.tolist() == [5] * 8, "nothing is done before a thread waits for it"
    second.sync()
    assert end.is_done and values.tolist() == [6] * 8
    assert end - begin > 0
    builder = first.create_graph_builder().begin_building()
    launch(builder, LaunchConfig(grid=1, block=32), kernel, buffer, np.uint32(8))
    graph = builder.end_building().complete()
    for _ in range(3):
        graph.launch(first)
    buffer.copy_to(page, stream=first)
    first.sync()
    assert values.tolist() == [9] * 8
    assert int(buffer.handle) in [int(text.split()[2], 16) for text in driver.leftovers if "memory" in text]
    buffer.close(first)
    first.sync()
    assert not any("memory" in text for text in driver.leftovers)


@on_fake_gpu()
def test_cuda_core_gets_the_refusals_of_the_driver(driver: FakeDriver) -> None:
    from cuda.bindings import driver as cuda
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device()
    device.set_current()
    kernel = ObjectCode.from_ptx(ADD_ONE.encode()).get_kernel("add_one")
    x = driver.array(np.zeros(4, np.int32), name="x")
    with pytest.raises(Exception, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        launch(device.create_stream(), LaunchConfig(grid=1, block=32), kernel, x.pointer, np.uint32(8))
    _, why = cuda.cuGetErrorString(cuda.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    assert b"x" in why
    with pytest.raises(Exception, match="CUDA_ERROR_NOT_FOUND"):
        ObjectCode.from_ptx(ADD_ONE.encode()).get_kernel("add_two")
    newer = ObjectCode.from_ptx(ADD_ONE.replace("sm_80", "sm_100").encode()).get_kernel("add_one")
    with pytest.raises(Exception, match="CUDA_ERROR_INVALID_PTX"):  # It is loaded when it is needed.
        launch(device.default_stream, LaunchConfig(grid=1, block=32), newer, x.pointer, np.uint32(4))
    driver.fail_next("cuMemAllocFromPoolAsync", 2)
    with pytest.raises(Exception, match="CUDA_ERROR_OUT_OF_MEMORY"):
        device.allocate(64, stream=device.default_stream)


@on_fake_gpu()
def test_cuda_bindings_call_what_has_no_place_in_core(driver: FakeDriver) -> None:
    from cuda.bindings import driver as cuda

    def ask(function: Any, *arguments: Any) -> Any:
        code, *answer = function(*arguments)
        assert code == cuda.CUresult.CUDA_SUCCESS, (function, code)
        return answer[0] if len(answer) == 1 else answer

    ask(cuda.cuInit, 0)
    assert ask(cuda.cuDriverGetVersion) == 13000
    context = ask(cuda.cuDevicePrimaryCtxRetain, 0)
    ask(cuda.cuCtxSetCurrent, context)
    assert int(ask(cuda.cuCtxGetDevice)) == 0 and ask(cuda.cuDeviceGetPCIBusId, 32, 0).startswith(b"0000:01")
    library = ask(cuda.cuLibraryLoadData, TWO_POINTERS.encode(), [], [], 0, [], [], 0)
    kernel = ask(cuda.cuLibraryGetKernel, library, b"two")
    # The alignment in `.ptr .align 16` is not that of the parameter.
    assert [ask(cuda.cuKernelGetParamInfo, kernel, index) for index in range(3)] == [[0, 8], [8, 4], [16, 8]]
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ask(cuda.cuKernelSetAttribute, attribute, 100_000, kernel, 0)
    assert ask(cuda.cuFuncGetAttribute, attribute, ask(cuda.cuKernelGetFunction, kernel)) == 100_000
    assert cuda.cuKernelSetAttribute(attribute, 1 << 20, kernel, 0)[0].name == "CUDA_ERROR_INVALID_VALUE"
    pool = ask(cuda.cuDeviceGetDefaultMemPool, 0)
    address = ask(cuda.cuMemAllocAsync, 1000, 0)
    used = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    assert int(ask(cuda.cuMemPoolGetAttribute, pool, used)) == 1000
    values = np.arange(1000, dtype=np.uint8)
    ask(cuda.cuMemcpyAsync, address, values.__array_interface__["data"][0], 1000, 0)
    found = np.zeros_like(values)
    ask(cuda.cuMemcpy, found.__array_interface__["data"][0], address, 1000)
    assert (found == values).all()
    ask(cuda.cuMemFreeAsync, address, 0)
    assert int(ask(cuda.cuMemPoolGetAttribute, pool, used)) == 0
    ask(cuda.cuLibraryUnload, library)
    assert not [text for text in driver.leftovers if "Library" in text or "Module" in text]


@on_fake_gpu(streams="late", environment={"CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM": "1"})
def test_the_default_stream_may_be_that_of_the_thread(driver: FakeDriver) -> None:
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device()
    device.set_current()
    kernel = ObjectCode.from_ptx(ADD_ONE.encode()).get_kernel("add_one")
    x = driver.array(np.zeros(4, np.int32))
    launch(device.default_stream, LaunchConfig(grid=1, block=32), kernel, x.pointer, np.uint32(4))
    assert driver.launches[-1].stream == 2 and "cuLaunchKernelEx_ptsz" in {call.name for call in driver.calls}
    device.default_stream.sync()
    assert x.copy_to_host().tolist() == [1] * 4


@on_fake_gpu(version="13.5")
def test_nvrtc_compiles_for_the_fake_driver(driver: FakeDriver) -> None:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    if not (toolkit() / "lib/libnvrtc.so.13").exists():
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    device = Device()
    device.set_current()
    source = 'extern "C" __global__ void twice(int *x) { x[threadIdx.x] *= 2; }'
    program = Program(source, "c++", ProgramOptions(arch="sm_90"))
    x = driver.array(np.arange(32, dtype=np.int32))
    launch(
        device.default_stream,
        LaunchConfig(grid=1, block=32),
        program.compile("ptx").get_kernel("twice"),
        x.pointer,
    )
    assert x.copy_to_host().tolist() == [2 * index for index in range(32)]


LEFT = """
from cuda.core import Device
device = Device()
device.set_current()
stream = device.create_stream()
buffer, event = device.allocate(64, stream=stream), stream.record()
"""


def test_what_a_program_leaves_is_no_mistake(libraries: Path) -> None:
    """Objects of modules are destroyed after Python has ended, and the driver with it."""
    pytest.importorskip("cuda.core")
    folder = FakeDriver(["sm_90"], folder=libraries).path.parent
    environment = {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", LEFT], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@on_fake_gpu(streams="late")
def test_graphs_keep_what_programs_give_them(driver: FakeDriver) -> None:
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device()
    device.set_current()
    kernel = ObjectCode.from_ptx(ADD_ONE.encode()).get_kernel("add_one")
    builder = device.create_graph_builder().begin_building()
    launch(builder, LaunchConfig(grid=1, block=32), kernel, 0, np.uint32(0))
    graph = builder.end_building().complete()
    del builder, graph
    gc.collect()
    assert not [text for text in driver.leftovers if "Graph" in text]
