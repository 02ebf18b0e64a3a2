"""The table of probes, and what they share: each is a function that calls the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tests.emulator.driver.cuda import Cuda

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
    cuda: Cuda,
    function: ctypes.c_void_p,
    grid: tuple[int, ...] = (1, 1, 1),
    block: tuple[int, ...] = (32, 1, 1),
    shared: int = 0,
    stream: Any = None,
) -> None:
    values = ctypes.c_uint64(0), ctypes.c_uint(0)
    addresses = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    cuda("cuLaunchKernel", function, *grid, *block, shared, stream, addresses, None)
