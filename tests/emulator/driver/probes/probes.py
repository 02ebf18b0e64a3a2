"""Results of the driver: calls that it refuses, and some that it takes, for the fake driver and for a GPU's
driver.

    python tests/emulator/driver/probes/probes.py libcuda.so.1 add_80.cubin add_90.cubin     on a GPU of capability 9.0

prints the result of each probe as JSON; `probes.json` holds those of an H200.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[3]))

from tests.emulator.driver.cuda import ADD_ONE, Cuda, CudaError  # noqa: E402
from tests.emulator.driver.probes import captures, maps  # noqa: E402
from tests.emulator.driver.probes.table import FATAL, PROBES, Images, fatal, launch, probe  # noqa: E402

OTHERS = (captures, maps)
"""The modules that fill the table, besides this one."""


def ask(path: str, name: str, images: Images) -> Any:
    """The result of a probe: 0, the result of the call that fails, or the value it looked up."""
    cuda = Cuda(Path(path))
    try:
        answer = PROBES[name](cuda, images)
    except CudaError as error:
        answer = error.code
    captured = getattr(cuda, "captured", None)
    if captured is not None:  # A probe that fails leaves its stream captured.
        cuda.library.cuStreamEndCapture(captured, ctypes.byref(ctypes.c_void_p()))
    return 0 if answer is None else answer


# Launches


@probe
def an_empty_grid(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(), grid=(0, 1, 1))


@probe
def a_grid_too_high(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(), grid=(1, 65536, 1))


@probe
def a_grid_too_deep(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(), grid=(1, 1, 65536))


@probe
def a_block_too_large(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(), block=(1025, 1, 1))


@probe
def a_block_too_deep(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(), block=(1, 1, 65))


@probe
def a_block_over_maxntid(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(ADD_ONE.replace(")\n{", ")\n.maxntid 64\n{")), block=(96, 1, 1))


@probe
def a_block_other_than_reqntid(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(ADD_ONE.replace(")\n{", ")\n.reqntid 64\n{")), block=(32, 1, 1))


@probe
def shared_memory_without_leave(cuda: Cuda, images: Images) -> None:
    launch(cuda, cuda.kernel(), shared=49153)


@probe
def shared_memory_to_the_limit(cuda: Cuda, images: Images) -> None:
    function = cuda.kernel()
    cuda("cuFuncSetAttribute", function, 8, 232448)
    launch(cuda, function, shared=232448)
    cuda("cuCtxSynchronize")


@probe
def leave_for_more_shared_memory_than_there_is(cuda: Cuda, images: Images) -> None:
    cuda("cuFuncSetAttribute", cuda.kernel(), 8, 232449)


@probe
def most_threads_of_a_kernel(cuda: Cuda, images: Images) -> int:
    return cuda.get(
        "cuFuncGetAttribute", 0, cuda.kernel(ADD_ONE.replace(")\n{", ")\n.maxntid 64\n{")), kind=ctypes.c_int
    ).value


@probe
def a_kernel_in_another_context(cuda: Cuda, images: Images) -> None:
    function, context = cuda.kernel(), ctypes.c_void_p()
    cuda("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    try:
        launch(cuda, function)
    finally:
        cuda("cuCtxDestroy_v2", context)


@fatal
def out_of_bounds(cuda: Cuda, images: Images) -> None:
    cuda.launch(cuda.kernel(), ctypes.c_uint64(1 << 46), ctypes.c_uint(1))
    cuda("cuCtxSynchronize")


@fatal
def misaligned(cuda: Cuda, images: Images) -> None:
    cuda.launch(cuda.kernel(), ctypes.c_uint64((cuda.allocate(64).value or 0) + 2), ctypes.c_uint(1))
    cuda("cuCtxSynchronize")


# Modules


@probe
def a_cubin_of_this_device(cuda: Cuda, images: Images) -> None:
    cuda.get("cuModuleLoadData", ctypes.c_char_p(images["sm_90"]))


@probe
def a_cubin_of_another_device(cuda: Cuda, images: Images) -> None:
    cuda.get("cuModuleLoadData", ctypes.c_char_p(images["sm_80"]))


@probe
def ptx_of_a_newer_device(cuda: Cuda, images: Images) -> None:
    cuda.kernel(ADD_ONE.replace("7.0", "8.6").replace("sm_80", "sm_100"))


@probe
def ptx_of_the_future(cuda: Cuda, images: Images) -> None:
    cuda.kernel(ADD_ONE.replace("7.0", "99.0"))


@probe
def ptx_with_an_unknown_instruction(cuda: Cuda, images: Images) -> None:
    cuda.kernel(ADD_ONE.replace("add.u64", "plus.u64"))


@probe
def no_image_at_all(cuda: Cuda, images: Images) -> None:
    cuda.get("cuModuleLoadData", ctypes.c_char_p(b"this is no image"))


@probe
def an_unknown_kernel(cuda: Cuda, images: Images) -> None:
    cuda.kernel(name="nothing")


# Memory


@probe
def no_memory_at_all(cuda: Cuda, images: Images) -> None:
    cuda.allocate(0)


@probe
def too_much_memory(cuda: Cuda, images: Images) -> None:
    cuda.allocate(1 << 50)


@probe
def freeing_nothing(cuda: Cuda, images: Images) -> None:
    cuda("cuMemFree_v2", ctypes.c_uint64(0))


@probe
def freeing_twice(cuda: Cuda, images: Images) -> None:
    x = cuda.allocate(64)
    cuda("cuMemFree_v2", x)
    cuda("cuMemFree_v2", x)


@probe
def freeing_within(cuda: Cuda, images: Images) -> None:
    cuda("cuMemFree_v2", ctypes.c_uint64((cuda.allocate(64).value or 0) + 16))


@probe
def an_attribute_of_a_host_address(cuda: Cuda, images: Images) -> None:
    cuda.get("cuPointerGetAttribute", 9, ctypes.c_uint64(0x1234_5678), kind=ctypes.c_int)


@probe
def the_device_of_an_address_within(cuda: Cuda, images: Images) -> int:
    within = ctypes.c_uint64((cuda.allocate(64).value or 0) + 60)
    return cuda.get("cuPointerGetAttribute", 9, within, kind=ctypes.c_int).value


@probe
def filling_words_at_an_odd_address(cuda: Cuda, images: Images) -> None:
    cuda("cuMemsetD32_v2", ctypes.c_uint64((cuda.allocate(64).value or 0) + 2), 1, ctypes.c_size_t(1))


# Contexts, and invalid handles


@probe
def a_context_that_is_none(cuda: Cuda, images: Images) -> None:
    cuda("cuCtxSetCurrent", None)
    cuda.allocate(64)


@probe
def popping_more_than_was_pushed(cuda: Cuda, images: Images) -> None:
    cuda("cuCtxSetCurrent", None)
    popped = ctypes.c_void_p()
    cuda("cuCtxPopCurrent_v2", ctypes.byref(popped))
    cuda("cuCtxPopCurrent_v2", ctypes.byref(popped))


@probe
def the_text_of_an_unknown_result(cuda: Cuda, images: Images) -> None:
    cuda("cuGetErrorName", 12345, ctypes.byref(ctypes.c_char_p()))


@probe
def an_unknown_device(cuda: Cuda, images: Images) -> None:
    cuda.get("cuDeviceGet", 99, kind=ctypes.c_int)


@fatal
def a_launch_after_the_device_was_reset(cuda: Cuda, images: Images) -> None:
    function = cuda.kernel()
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    launch(cuda, function)


@fatal
def pushing_a_context_after_the_reset(cuda: Cuda, images: Images) -> None:
    context = cuda.get("cuCtxGetCurrent")
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    cuda("cuCtxPushCurrent_v2", context)


@fatal
def allocating_after_the_reset(cuda: Cuda, images: Images) -> None:
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    cuda.allocate(64)


@fatal
def a_new_context_after_the_reset(cuda: Cuda, images: Images) -> list[bool]:
    """Whether it has the same handle, and whether memory can be allocated then."""
    old = cuda.get("cuCtxGetCurrent").value
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    context = cuda.get("cuDevicePrimaryCtxRetain", 0)
    cuda("cuCtxSetCurrent", context)
    cuda.allocate(64)
    return [context.value == old]


@fatal
def an_old_kernel_after_a_new_start(cuda: Cuda, images: Images) -> None:
    function = cuda.kernel()
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    cuda("cuCtxSetCurrent", cuda.get("cuDevicePrimaryCtxRetain", 0))
    launch(cuda, function)


@fatal
def freeing_old_memory_after_a_new_start(cuda: Cuda, images: Images) -> None:
    x = cuda.allocate(64)
    cuda("cuDevicePrimaryCtxReset_v2", 0)
    cuda("cuCtxSetCurrent", cuda.get("cuDevicePrimaryCtxRetain", 0))
    cuda("cuMemFree_v2", x)


@fatal
def a_forked_child(cuda: Cuda, images: Images) -> int:
    child = os.fork()
    if not child:
        os._exit(cuda.library.cuInit(0) & 0xFF)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


ATTRIBUTES = [*range(1, 11), 12, 16, 31, 39, 41, 75, 76, 78, 81, 82, 97, 111, 120, 127]


@probe
def attributes_of_the_device(cuda: Cuda, images: Images) -> dict[str, int]:
    return {
        str(number): cuda.get("cuDeviceGetAttribute", number, 0, kind=ctypes.c_int).value
        for number in ATTRIBUTES
    }


def work(path: str, images: Images, first: int) -> None:
    """Print the results of the probes from one on, a line each, up to the first one that is fatal."""
    for name in list(PROBES)[first:]:
        print(json.dumps(ask(path, name, images)), flush=True)
        if name in FATAL:
            break


def main(path: str, cubin_80: str, cubin_90: str, first: str = "") -> None:
    images = {"sm_80": Path(cubin_80).read_bytes(), "sm_90": Path(cubin_90).read_bytes()}
    if first:
        work(path, images, int(first))
        return
    answers: list[Any] = []
    while len(answers) < len(PROBES):
        command = [sys.executable, __file__, path, cubin_80, cubin_90, str(len(answers))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        answers += [json.loads(line) for line in lines]
        if done.returncode:
            answers.append(f"exit code {done.returncode}")
    print(json.dumps(dict(zip(PROBES, answers)), indent=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
