"""Probes of captures: which calls the driver takes while a stream is captured, and which of them end the
capture."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tests.emulator.driver.cuda import ADD_ONE, Cuda, CudaError
from tests.emulator.driver.probes.table import PROBES, Images, begin, end, launch, probe

CAPTURED: dict[str, Callable[[Cuda, ctypes.c_void_p, ctypes.c_uint64, Any, Images], Any]] = {
    "a launch": lambda cuda, stream, x, f, images: launch(cuda, f, stream=stream),
    "an allocation": lambda cuda, stream, x, f, images: cuda.allocate(64),
    "a free": lambda cuda, stream, x, f, images: cuda("cuMemFree_v2", x),
    "loading PTX": lambda cuda, stream, x, f, images: cuda.get(
        "cuModuleLoadData", ctypes.c_char_p(ADD_ONE.encode())
    ),
    "loading a cubin": lambda cuda, stream, x, f, images: cuda.get(
        "cuModuleLoadData", ctypes.c_char_p(images["sm_90"])
    ),
    "an attribute of a kernel": lambda cuda, stream, x, f, images: cuda("cuFuncSetAttribute", f, 8, 65536),
    "waiting for the device": lambda cuda, stream, x, f, images: cuda("cuCtxSynchronize"),
    "waiting for it": lambda cuda, stream, x, f, images: cuda("cuStreamSynchronize", stream),
    "asking it": lambda cuda, stream, x, f, images: cuda("cuStreamQuery", stream),
    "waiting for the default stream": lambda cuda, stream, x, f, images: cuda("cuStreamSynchronize", None),
    "asking whether the default stream is captured": lambda cuda, stream, x, f, images: is_capturing(
        cuda, None
    ),
    "asking whether it is captured": lambda cuda, stream, x, f, images: is_capturing(cuda, stream),
    "asking whether another is captured": lambda cuda, stream, x, f, images: is_capturing(
        cuda, cuda.stream()
    ),
    "a launch on the default stream": lambda cuda, stream, x, f, images: launch(cuda, f),
    "a launch on another stream": lambda cuda, stream, x, f, images: launch(cuda, f, stream=cuda.stream()),
    "waiting for another stream": lambda cuda, stream, x, f, images: cuda(
        "cuStreamSynchronize", cuda.stream()
    ),
    "a copy": lambda cuda, stream, x, f, images: cuda.write(x, [1]),
    "a fill": lambda cuda, stream, x, f, images: cuda("cuMemsetD32_v2", x, 1, ctypes.c_size_t(1)),
    "an event from outside": lambda cuda, stream, x, f, images: cuda(
        "cuStreamWaitEvent", stream, recorded(cuda), 0
    ),
    "a copy on its own stream": lambda cuda, stream, x, f, images: cuda(
        "cuMemcpyDtoDAsync_v2", x, x, ctypes.c_size_t(4), stream
    ),
    "a copy on another stream": lambda cuda, stream, x, f, images: cuda(
        "cuMemcpyDtoDAsync_v2", x, x, ctypes.c_size_t(4), cuda.stream(1)
    ),
    "unloading": lambda cuda, stream, x, f, images: cuda("cuModuleUnload", cuda.stale),
    "loading and launching": lambda cuda, stream, x, f, images: launch(cuda, cuda.kernel(), stream=stream),
    "a new stream": lambda cuda, stream, x, f, images: cuda("cuStreamDestroy_v2", cuda.stream(1)),
    "a new event": lambda cuda, stream, x, f, images: cuda("cuEventDestroy_v2", cuda.event()),
    "where an address lies": lambda cuda, stream, x, f, images: (
        cuda.get("cuPointerGetAttribute", 9, x, kind=ctypes.c_int).value
    ),
    "how much memory there is": lambda cuda, stream, x, f, images: cuda(
        "cuMemGetInfo_v2", ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())
    ),
    "retaining the context": lambda cuda, stream, x, f, images: cuda(
        "cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0
    ),
    "asking another stream": lambda cuda, stream, x, f, images: cuda("cuStreamQuery", cuda.stream()),
    "waiting for an earlier event": lambda cuda, stream, x, f, images: cuda("cuEventSynchronize", cuda.early),
    "asking an earlier event": lambda cuda, stream, x, f, images: cuda("cuEventQuery", cuda.early),
    "waiting for its own event": lambda cuda, stream, x, f, images: cuda(
        "cuEventSynchronize", own_event(cuda, stream)
    ),
    "asking its own event": lambda cuda, stream, x, f, images: cuda("cuEventQuery", own_event(cuda, stream)),
    "its own event": lambda cuda, stream, x, f, images: cuda(
        "cuStreamWaitEvent", stream, own_event(cuda, stream), 0
    ),
    "destroying it": lambda cuda, stream, x, f, images: cuda("cuStreamDestroy_v2", stream),
    "ending it in another thread": lambda cuda, stream, x, f, images: in_thread(
        cuda, lambda: end(cuda, stream, True)
    ),
    "an allocation in another thread": lambda cuda, stream, x, f, images: in_thread(
        cuda, lambda: cuda.allocate(64)
    ),
    "a second capture": lambda cuda, stream, x, f, images: cuda("cuStreamBeginCapture_v2", stream, 0),
    "an unknown image": lambda cuda, stream, x, f, images: cuda.get(
        "cuModuleLoadData", ctypes.c_char_p(b"no image")
    ),
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
        except CudaError as error:
            answers[0] = error.code

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
        cuda.early, cuda.stale = (
            own_event(cuda, cuda.stream(1)),
            cuda.get("cuModuleLoadData", ctypes.c_char_p(images["sm_90"])),
        )
        cuda("cuCtxSynchronize")
        stream, answers = begin(cuda, mode, flags), [0, 0]
        for index, step in enumerate(
            (lambda: call(cuda, stream, x, function, images), lambda: end(cuda, stream))
        ):
            try:
                answer = step()
                answers[index] = answer if isinstance(answer, int) else 0
            except CudaError as error:
                answers[index] = error.code
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
