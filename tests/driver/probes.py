"""What the driver answers: calls that it refuses, and some that it takes, to be asked of the stand-in and of a GPU's driver.

    python tests/driver/probes.py libcuda.so.1 add_80.cubin add_90.cubin        on a machine with a GPU of compute capability 9.0

prints the result of each probe as JSON; `probes.json` holds those of an H200.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from tests.driver.cuda import ADD_ONE, Cuda, Refusal  # noqa: E402

Images = dict[str, bytes]
"""Cubins of ADD_ONE by architecture."""
Probe = Callable[[Cuda, Images], Any]

PROBES: dict[str, Probe] = {}
FATAL: set[str] = set()
"""Probes after which the process can no longer use the device."""


def probe(function: Probe) -> Probe:
    PROBES[function.__name__] = function
    return function


def fatal(function: Probe) -> Probe:
    FATAL.add(function.__name__)
    return probe(function)


def ask(path: str, name: str, images: Images) -> Any:
    """What a probe gives: 0, the result of the call that fails, or what it looked up."""
    cuda = Cuda(Path(path))
    try:
        answer = PROBES[name](cuda, images)
    except Refusal as refusal:
        answer = refusal.code
    captured = getattr(cuda, "captured", None)
    if captured is not None:  # A probe that fails leaves its stream captured.
        cuda.library.cuStreamEndCapture(captured, ctypes.byref(ctypes.c_void_p()))
    return 0 if answer is None else answer


def begin(cuda: Cuda, mode: int = 0, flags: int = 0) -> ctypes.c_void_p:
    stream = cuda.stream(flags)
    cuda("cuStreamBeginCapture_v2", stream, mode)
    cuda.captured = stream  # type: ignore[attr-defined]
    return stream


def end(cuda: Cuda, stream: ctypes.c_void_p, is_try: bool = False) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    if not is_try:
        del cuda.captured  # type: ignore[attr-defined]
    cuda("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def launch(
    cuda: Cuda, function: ctypes.c_void_p, grid: tuple[int, ...] = (1, 1, 1), block: tuple[int, ...] = (32, 1, 1),
    shared: int = 0, stream: Any = None,
) -> None:  # fmt: skip
    values = ctypes.c_uint64(0), ctypes.c_uint(0)
    addresses = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    cuda("cuLaunchKernel", function, *grid, *block, shared, stream, addresses, None)


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
    return cuda.get("cuFuncGetAttribute", 0, cuda.kernel(ADD_ONE.replace(")\n{", ")\n.maxntid 64\n{")), kind=ctypes.c_int).value


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


# Tensor maps


def encode(cuda: Cuda, **changed: Any) -> None:
    """A map of 72 x 64 elements of fp16 in boxes of 8 x 64, but for what is changed."""
    room = ctypes.create_string_buffer(192)
    target = -(-ctypes.addressof(room) // 64) * 64 + changed.pop("skew", 0)
    fields: dict[str, Any] = {
        "element": 6, "rank": 2, "address": 1 << 40, "sizes": [64, 72, 8, 8, 8], "strides": [128, 16384, 1 << 20, 1 << 30],
        "box": [64, 8, 1, 1, 1], "steps": [1] * 5, "interleave": 0, "swizzle": 3, "promotion": 2, "fill": 0,
    } | changed  # fmt: skip
    words = [(ctypes.c_uint64 * 5)(*fields[name]) for name in ("sizes", "strides")]
    halves = [(ctypes.c_uint32 * 5)(*fields[name]) for name in ("box", "steps")]
    last = [fields[name] for name in ("interleave", "swizzle", "promotion", "fill")]
    cuda(
        "cuTensorMapEncodeTiled", ctypes.c_void_p(target), fields["element"], fields["rank"], ctypes.c_void_p(fields["address"]),
        *words, *halves, *last,
    )  # fmt: skip


MAPS: dict[str, dict[str, Any]] = {
    "a plain map": {},
    **{f"rank {rank}": {"rank": rank} for rank in (0, 1, 3, 4, 5, 6)},
    **{f"element {element}": {"element": element, "box": [16, 8, 1, 1, 1]} for element in range(16)},
    **{f"swizzle {swizzle} of {inner}": {"swizzle": swizzle, "box": [inner, 8, 1, 1, 1]}
       for swizzle in range(6) for inner in (8, 16, 32, 64, 128)},
    **{f"interleave {number}": {"interleave": number} for number in range(4)},
    **{f"promotion {number}": {"promotion": number} for number in (0, 1, 3, 4)},
    **{f"fill {number} of element {element}": {"fill": number, "element": element, "box": [16, 8, 1, 1, 1]}
       for number in (1, 2) for element in (0, 2, 6, 7, 8, 9)},
    "an address of 8": {"address": (1 << 40) + 8}, "no address": {"address": 0}, "a map at 16": {"skew": 16},
    "size 0": {"sizes": [64, 0, 1, 1, 1]}, "size 2^32": {"sizes": [64, 1 << 32, 1, 1, 1]},
    "size 2^32 + 1": {"sizes": [64, (1 << 32) + 1, 1, 1, 1]}, "inner size 0": {"sizes": [0, 8, 1, 1, 1]},
    "stride 8": {"strides": [8, 0, 0, 0]}, "stride 0": {"strides": [0, 0, 0, 0]}, "stride 16": {"strides": [16, 0, 0, 0]},
    "stride 2^40": {"strides": [1 << 40, 0, 0, 0]}, "stride below 2^40": {"strides": [(1 << 40) - 16, 0, 0, 0]},
    "box 0": {"box": [64, 0, 1, 1, 1]}, "box 256": {"box": [64, 256, 1, 1, 1]}, "box 257": {"box": [64, 257, 1, 1, 1]},
    "inner box of 12": {"box": [12, 8, 1, 1, 1]}, "inner box of 256 bytes, plain": {"box": [128, 8, 1, 1, 1], "swizzle": 0},
    "inner box of 512 bytes, plain": {"box": [256, 8, 1, 1, 1], "swizzle": 0},
    "box beyond the tensor": {"box": [64, 128, 1, 1, 1]}, "box of 64 kB": {"box": [64, 256, 2, 1, 1], "rank": 3},
    **{f"box of {size} kB": {"box": [64, 8, size, 1, 1], "rank": 3} for size in (128, 160, 192, 224, 226, 227, 228, 229, 256)},
    "box of 256 kB of 4 bytes": {"box": [32, 8, 256, 1, 1], "rank": 3, "element": 7},
    "box of 128 k bytes": {"box": [128, 8, 128, 1, 1], "rank": 3, "element": 0},
    "box of 256 k bytes": {"box": [128, 8, 256, 1, 1], "rank": 3, "element": 0},
    "step 0": {"steps": [1, 0, 1, 1, 1]}, "step 8": {"steps": [1, 8, 1, 1, 1]}, "step 9": {"steps": [1, 9, 1, 1, 1]},
    "inner step 2": {"steps": [2, 1, 1, 1, 1]}, "inner step 0": {"steps": [0, 1, 1, 1, 1]},
    "inner step 9": {"steps": [9, 1, 1, 1, 1]},
}  # fmt: skip


def map_probe(name: str, changed: dict[str, Any]) -> None:
    PROBES[f"map: {name}"] = lambda cuda, images: encode(cuda, **changed)


for one, what in MAPS.items():
    map_probe(one, what)


# Captures


CAPTURED: dict[str, Callable[[Cuda, ctypes.c_void_p, ctypes.c_uint64, Any, Images], Any]] = {
    "a launch": lambda cuda, stream, x, f, images: launch(cuda, f, stream=stream),
    "an allocation": lambda cuda, stream, x, f, images: cuda.allocate(64),
    "a free": lambda cuda, stream, x, f, images: cuda("cuMemFree_v2", x),
    "loading PTX": lambda cuda, stream, x, f, images: cuda.get("cuModuleLoadData", ctypes.c_char_p(ADD_ONE.encode())),
    "loading a cubin": lambda cuda, stream, x, f, images: cuda.get("cuModuleLoadData", ctypes.c_char_p(images["sm_90"])),
    "an attribute of a kernel": lambda cuda, stream, x, f, images: cuda("cuFuncSetAttribute", f, 8, 65536),
    "waiting for the device": lambda cuda, stream, x, f, images: cuda("cuCtxSynchronize"),
    "waiting for it": lambda cuda, stream, x, f, images: cuda("cuStreamSynchronize", stream),
    "asking it": lambda cuda, stream, x, f, images: cuda("cuStreamQuery", stream),
    "waiting for the default stream": lambda cuda, stream, x, f, images: cuda("cuStreamSynchronize", None),
    "asking whether the default stream is captured": lambda cuda, stream, x, f, images: is_capturing(cuda, None),
    "asking whether it is captured": lambda cuda, stream, x, f, images: is_capturing(cuda, stream),
    "asking whether another is captured": lambda cuda, stream, x, f, images: is_capturing(cuda, cuda.stream()),
    "a launch on the default stream": lambda cuda, stream, x, f, images: launch(cuda, f),
    "a launch on another stream": lambda cuda, stream, x, f, images: launch(cuda, f, stream=cuda.stream()),
    "waiting for another stream": lambda cuda, stream, x, f, images: cuda("cuStreamSynchronize", cuda.stream()),
    "a copy": lambda cuda, stream, x, f, images: cuda.write(x, [1]),
    "a fill": lambda cuda, stream, x, f, images: cuda("cuMemsetD32_v2", x, 1, ctypes.c_size_t(1)),
    "an event from outside": lambda cuda, stream, x, f, images: cuda("cuStreamWaitEvent", stream, recorded(cuda), 0),
    "a copy on its own stream": lambda cuda, stream, x, f, images: cuda(
        "cuMemcpyDtoDAsync_v2", x, x, ctypes.c_size_t(4), stream),
    "a copy on another stream": lambda cuda, stream, x, f, images: cuda(
        "cuMemcpyDtoDAsync_v2", x, x, ctypes.c_size_t(4), cuda.stream(1)),
    "unloading": lambda cuda, stream, x, f, images: cuda("cuModuleUnload", cuda.stale),
    "loading and launching": lambda cuda, stream, x, f, images: launch(cuda, cuda.kernel(), stream=stream),
    "a new stream": lambda cuda, stream, x, f, images: cuda("cuStreamDestroy_v2", cuda.stream(1)),
    "a new event": lambda cuda, stream, x, f, images: cuda("cuEventDestroy_v2", cuda.event()),
    "where an address lies": lambda cuda, stream, x, f, images: cuda.get("cuPointerGetAttribute", 9, x, kind=ctypes.c_int).value,
    "how much memory there is": lambda cuda, stream, x, f, images: cuda(
        "cuMemGetInfo_v2", ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())),
    "retaining the context": lambda cuda, stream, x, f, images: cuda(
        "cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0),
    "asking another stream": lambda cuda, stream, x, f, images: cuda("cuStreamQuery", cuda.stream()),
    "waiting for an earlier event": lambda cuda, stream, x, f, images: cuda("cuEventSynchronize", cuda.early),
    "asking an earlier event": lambda cuda, stream, x, f, images: cuda("cuEventQuery", cuda.early),
    "waiting for its own event": lambda cuda, stream, x, f, images: cuda("cuEventSynchronize", own_event(cuda, stream)),
    "asking its own event": lambda cuda, stream, x, f, images: cuda("cuEventQuery", own_event(cuda, stream)),
    "its own event": lambda cuda, stream, x, f, images: cuda("cuStreamWaitEvent", stream, own_event(cuda, stream), 0),
    "destroying it": lambda cuda, stream, x, f, images: cuda("cuStreamDestroy_v2", stream),
    "ending it in another thread": lambda cuda, stream, x, f, images: in_thread(cuda, lambda: end(cuda, stream, True)),
    "an allocation in another thread": lambda cuda, stream, x, f, images: in_thread(cuda, lambda: cuda.allocate(64)),
    "a second capture": lambda cuda, stream, x, f, images: cuda("cuStreamBeginCapture_v2", stream, 0),
    "an unknown image": lambda cuda, stream, x, f, images: cuda.get("cuModuleLoadData", ctypes.c_char_p(b"no image")),
}


def is_capturing(cuda: Cuda, stream: Any) -> int:
    status = ctypes.c_int(-1)
    cuda("cuStreamIsCapturing", stream, ctypes.byref(status))
    return -status.value


def own_event(cuda: Cuda, stream: ctypes.c_void_p) -> ctypes.c_void_p:
    """An event recorded in the stream itself."""
    event = cuda.event()
    cuda("cuEventRecord", event, stream)
    return event


def in_thread(cuda: Cuda, call: Callable[[], Any]) -> int:
    """The result of a call in another thread, with the same context."""
    context, answers = cuda.get("cuCtxGetCurrent"), [0]

    def run() -> None:
        cuda("cuCtxSetCurrent", context)
        try:
            call()
        except Refusal as refusal:
            answers[0] = refusal.code

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


def recorded(cuda: Cuda) -> ctypes.c_void_p:
    """An event of another stream, recorded now."""
    event = cuda.event()
    cuda("cuEventRecord", event, cuda.stream(1))
    return event


def capture_probe(name: str, mode: int, flags: int, call: Callable[..., Any]) -> None:
    def run(cuda: Cuda, images: Images) -> list[int]:
        """Results of the call, and of the end of the capture."""
        x, function = cuda.allocate(64), cuda.kernel()
        launch(cuda, function)
        cuda.early, cuda.stale = own_event(cuda, cuda.stream(1)), cuda.get("cuModuleLoadData", ctypes.c_char_p(images["sm_90"]))
        cuda("cuCtxSynchronize")
        stream, answers = begin(cuda, mode, flags), [0, 0]
        for index, step in enumerate((lambda: call(cuda, stream, x, function, images), lambda: end(cuda, stream))):
            try:
                answer = step()
                answers[index] = answer if isinstance(answer, int) else 0
            except Refusal as refusal:
                answers[index] = refusal.code
        return answers

    kinds = {0: "global", 1: "thread", 2: "relaxed"}
    PROBES[f"capture {kinds[mode]}{' of a non-blocking stream' * flags}: {name}"] = run


for one, action in CAPTURED.items():
    for mode, flags in ((0, 0), (0, 1), (1, 0), (2, 0)):
        capture_probe(one, mode, flags, action)


@probe
def capturing_the_default_stream(cuda: Cuda, images: Images) -> None:
    cuda("cuStreamBeginCapture_v2", None, 0)


@probe
def ending_what_never_began(cuda: Cuda, images: Images) -> None:
    cuda("cuStreamEndCapture", cuda.stream(), ctypes.byref(ctypes.c_void_p()))


@probe
def leaving_a_side_stream_unjoined(cuda: Cuda, images: Images) -> None:
    function, side, event = cuda.kernel(), cuda.stream(), cuda.event()
    stream = begin(cuda)
    cuda("cuEventRecord", event, stream)
    cuda("cuStreamWaitEvent", side, event, 0)
    launch(cuda, function, stream=side)
    end(cuda, stream)


# Contexts, and what is no handle


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
    """Whether it has the same handle, and whether memory can be had then."""
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
    return {str(number): cuda.get("cuDeviceGetAttribute", number, 0, kind=ctypes.c_int).value for number in ATTRIBUTES}


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
