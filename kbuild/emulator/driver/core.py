"""The state of the fake driver, and how a call is answered: one at a time, logged, and refused where a test
requests it."""

from __future__ import annotations

import ctypes
import os
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import CaptureMode, DriverResult, Refused
from kbuild.emulator.driver.devices import Device, DriverContext, MemoryPool
from kbuild.emulator.driver.modules import PtxTable
from kbuild.emulator.driver.streams import Capture, Stream
from kbuild.emulator.driver.table import FUNCTIONS, DriverFunction, family_of
from kbuild.emulator.engine.findings import Finding
from kbuild.errors import KbuildError, UsageError

_LOG = 1 << 17
"""Calls, and launches, that are remembered."""

_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2
"""CU_STREAM_LEGACY and CU_STREAM_PER_THREAD."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class DriverCall:
    """A call of the driver."""

    name: str
    result: int
    thread: int

    def __str__(self) -> str:
        return f"{self.name} -> {result_name(self.result)}"


@dataclass(frozen=True)
class LaunchCall:
    """A launch that the driver took."""

    entry: str
    """The kernel's symbol."""
    device: int
    """Ordinal of the device."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    """Bytes of dynamic shared memory."""
    stream: int
    """The stream's handle, as it was given."""
    arguments: tuple[bytes, ...]
    """The bytes of each parameter."""
    digest: str
    """sha256 of the image that the kernel is from."""
    cluster: tuple[int, int, int] = (1, 1, 1)
    may_begin_early: bool = False
    """Whether the launch before it need not have ended (programmatic stream serialization)."""


@dataclass(frozen=True)
class Settings:
    """How work is done."""

    version: int = 13000
    """The driver's: 1000 * major + 10 * minor."""
    is_late: bool = False
    """Whether work is done only when a thread waits for it."""
    schedule: str = "lockstep"
    """Order of warps."""
    timing: str = "late"
    """When asynchronous copies land."""
    checks: str = ""
    """Which rules of the race detector are checked: `strict`, `lenient`, or none."""


class Driver:
    """The driver that the library stands for."""

    def __init__(self, archs: Sequence[str], settings: Settings, table: PtxTable, memory: int) -> None:
        self.settings = settings
        self.table = table
        self.devices = [Device(ordinal, arch, memory) for ordinal, arch in enumerate(archs)]
        self.calls: deque[DriverCall] = deque(maxlen=_LOG)
        self.launches: deque[LaunchCall] = deque(maxlen=_LOG)
        self.findings: list[Finding] = []
        self.printed: list[str] = []
        self.library: ctypes.CDLL | None = None
        self.loads: Counter[int] = Counter()
        """Modules loaded so far, by ordinal of the device."""
        self.host_memory: dict[int, host.Page] = {}
        """Memory of the process that was given out, by address."""
        self._lock = threading.RLock()
        self._process: int | None = None
        self._handles: dict[int, object] = {}
        self._next_handle = 0x5700_0000_0000
        self._stacks: dict[int, list[DriverContext]] = {}
        self._injected: dict[str, deque[int]] = {}
        self._whys: dict[int, tuple[int, str]] = {}
        self._released: deque[int] = deque()
        self._is_per_thread = False
        """Whether stream 0 is the thread's default stream, for the call at hand."""
        self._texts: dict[int | str, ctypes.Array[ctypes.c_char]] = {}

    def forget_threads(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.RLock()

    # Calls

    def answer(self, name: str, words: Sequence[int]) -> int:
        """The result of a call."""
        thread = threading.get_ident()
        with self._lock:
            try:
                self._collect()
                self._run(FUNCTIONS[name], words)
                result = 0
            except Refused as refused:
                result = refused.result
                self._whys[thread] = result, refused.why
            except KbuildError as error:
                result = int(DriverResult.CUDA_ERROR_LAUNCH_FAILED)
                self._whys[thread] = result, str(error)
            except MemoryError:
                result = int(DriverResult.CUDA_ERROR_OUT_OF_MEMORY)
            except Exception:
                result = int(DriverResult.CUDA_ERROR_UNKNOWN)
                self._whys[thread] = result, traceback.format_exc()
            self.calls.append(DriverCall(name, result, thread))
        return result

    def _run(self, function: DriverFunction, words: Sequence[int]) -> None:
        if self._process not in (None, os.getpid()):
            raise Refused(DriverResult.CUDA_ERROR_NOT_INITIALIZED, "the process was forked after cuInit")
        waiting = self._injected.get(function.family)
        if waiting:
            raise Refused(waiting.popleft(), f"{function.name} fails because a test requests it")
        if self._process is None and not function.before_init:
            raise Refused(DriverResult.CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called")
        if function.unsafe_in_capture:
            self.refuse_in_capture(function.name)
        self._is_per_thread = function.is_per_thread
        function.function(self, *words[: len(function.parameters)])

    def refuse_in_capture(self, name: str) -> None:
        """Raise Refused, and end the capture, where a call that may wait or allocate is made during one that
        is not relaxed."""
        thread = threading.get_ident()
        for capture in self.captures():
            if capture.mode == CaptureMode.GLOBAL or (
                capture.mode == CaptureMode.THREAD_LOCAL and capture.thread == thread
            ):
                capture.is_valid = False
                raise Refused(
                    DriverResult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    f"{name} is not allowed while a stream is captured",
                )

    def fail_next(self, name: str, result: int, times: int = 1) -> None:
        """Let the next calls of a function, in any of its forms, fail.  Raises UsageError for an unknown
        name."""
        family = family_of(name)
        if family not in {function.family for function in FUNCTIONS.values()}:
            raise UsageError(f"the driver has no function {name}")
        with self._lock:
            self._injected.setdefault(family, deque()).extend([int(result)] * times)

    def forget_failures(self) -> None:
        """Cancel the failures that have not happened yet."""
        with self._lock:
            self._injected.clear()

    def init(self) -> None:
        """cuInit.  Raises Refused if there are no devices."""
        if not self.devices:
            raise Refused(DriverResult.CUDA_ERROR_NO_DEVICE)
        self._process = os.getpid()

    @property
    def is_initialized(self) -> bool:
        """Whether cuInit was called."""
        return self._process is not None

    # Memory, for Python

    def allocate(self, ordinal: int, size: int, name: str, element: int) -> int:
        """The address of fresh bytes on a device, an array of elements of `element` bytes where that is not 0.

        Raises Refused where not enough are free.
        """
        with self._lock:
            self._collect()
            heap = self.devices[ordinal].heap
            address = heap.allocate(size, name)
            if element:
                heap.is_array(address, name, element)
            return address

    def release(self, address: int) -> None:
        """Free memory, at the next call: a kernel may be running."""
        self._released.append(address)

    def _collect(self) -> None:
        """Free the memory that was released."""
        while self._released:
            device = self.locate(self._released[0])
            self._finish(device)
            device.heap.free(self._released.popleft())

    def _finish(self, device: Device) -> None:
        for context in self.contexts():
            if context.device is device:
                context.finish()

    def copy_out(self, ordinal: int, address: int, size: int) -> np.ndarray:
        """Bytes on a device, when all work there is done.  Raises Refused where that fails."""
        with self._lock:
            self._finish(self.devices[ordinal])
            return self.devices[ordinal].heap.bytes(address, size).copy()

    def copy_in(self, ordinal: int, address: int, data: np.ndarray) -> None:
        """Overwrite bytes on a device, when all work there is done.  Raises Refused where that fails."""
        with self._lock:
            self._finish(self.devices[ordinal])
            self.devices[ordinal].heap.bytes(address, data.nbytes)[:] = data

    # Descriptions of results

    def result_text(self, result: int, is_name: bool) -> int | None:
        """The address of a result's name, or of what it means; None for a number that is not a result.

        The description has the emulator's findings too, for the result of the thread's last failed call.
        """
        if result not in DriverResult.__members__.values():
            return None
        known, thread = DriverResult(result), threading.get_ident()
        last, why = self._whys.get(thread, (-1, ""))
        if is_name:
            return self.text(known.name)
        if last != result or not why:
            return self.text(known.words)
        self._texts[thread] = ctypes.create_string_buffer(why.encode())
        return ctypes.addressof(self._texts[thread])

    def text(self, words: str) -> int:
        """The address of a text that stays where it is."""
        if words not in self._texts:
            self._texts[words] = ctypes.create_string_buffer(words.encode())
        return ctypes.addressof(self._texts[words])

    # Objects and their handles

    def keep(self, thing: object) -> int:
        """A new handle for an object."""
        self._next_handle += 0x100
        self._handles[self._next_handle] = thing
        return self._next_handle

    def find(self, kind: type[_T], handle: int) -> _T:
        """The object of a handle.  Raises Refused where there is none of that kind."""
        thing = self._handles.get(handle)
        if not isinstance(thing, kind):
            result = (
                DriverResult.CUDA_ERROR_INVALID_CONTEXT
                if kind is DriverContext
                else DriverResult.CUDA_ERROR_INVALID_HANDLE
            )
            raise Refused(result, f"{handle:#x} is not a known {object_name(kind)}")
        return thing

    def find_any(self, kind: type[_T], handle: int) -> _T | None:
        """The object of a handle; None where there is none of that kind."""
        thing = self._handles.get(handle)
        return thing if isinstance(thing, kind) else None

    def handle_of(self, thing: object) -> int:
        """The handle of an object, a new one where it has none."""
        found = (handle for handle, known in self._handles.items() if known is thing)
        return next(found, 0) or self.keep(thing)

    def drop(self, handle: int) -> None:
        """Forget a handle."""
        del self._handles[handle]

    def handles(self, kind: type[_T] | tuple[type[_T], ...]) -> list[tuple[int, _T]]:
        """All existing objects of a kind, or of several, with their handles."""
        return [(handle, thing) for handle, thing in self._handles.items() if isinstance(thing, kind)]

    def contexts(self) -> list[DriverContext]:
        """All contexts."""
        return [context for _, context in self.handles(DriverContext)]

    # Devices, contexts and streams

    def device(self, ordinal: int) -> Device:
        """A device by its ordinal, which is its CUdevice too.  Raises Refused where there is none."""
        if not 0 <= ordinal < len(self.devices):
            raise Refused(
                DriverResult.CUDA_ERROR_INVALID_DEVICE,
                f"no device {ordinal}; there are {len(self.devices)}",
            )
        return self.devices[ordinal]

    @property
    def stack(self) -> list[DriverContext]:
        """The calling thread's stack of contexts, the current one last."""
        return self._stacks.setdefault(threading.get_ident(), [])

    @property
    def context(self) -> DriverContext:
        """The current context.  Raises Refused where there is none."""
        if not self.stack:
            raise Refused(DriverResult.CUDA_ERROR_INVALID_CONTEXT, "no context is current")
        if not self.stack[-1].is_alive:
            raise Refused(DriverResult.CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was destroyed")
        return self.stack[-1]

    def stream(self, handle: int) -> Stream:
        """A stream of any context; 1 means the default stream of the current one, 2 that of the thread, and 0 one of
        them, by the form of the function that is called."""
        if handle in (0, _LEGACY_STREAM, _PER_THREAD_STREAM):
            context = self.context
            if handle == _LEGACY_STREAM or (handle == 0 and not self._is_per_thread):
                return context.default
            thread = threading.get_ident()
            if -thread not in context.streams:
                context.streams[-thread] = Stream(context.default, _PER_THREAD_STREAM)
            return context.streams[-thread]
        return self.context_of(handle).streams[handle]

    def context_of(self, stream: int) -> DriverContext:
        """The context of a stream, the current one for those without a context of their own.  Raises Refused where
        there is no such stream."""
        if stream in (0, _LEGACY_STREAM, _PER_THREAD_STREAM):
            return self.context
        for context in self.contexts():
            if stream in context.streams:
                return context
        raise Refused(DriverResult.CUDA_ERROR_INVALID_HANDLE, f"{stream:#x} is not a stream")

    def pools(self) -> list[MemoryPool]:
        """All memory pools."""
        made = [pool for _, pool in self.handles(MemoryPool)]
        return list(dict.fromkeys([*made, *(device.default_pool for device in self.devices)]))

    def captures(self) -> Iterable[Capture]:
        """The captures that are under way."""
        found = {stream.capture for context in self.contexts() for stream in context.streams.values()}
        return [capture for capture in found if capture is not None]

    def submit(self, stream: Stream, work: Callable[[], None]) -> None:
        """Hand work over to a stream."""
        stream.submit(work, self.settings.is_late)

    def do(self, work: Callable[[], None]) -> None:
        """Do work on the default stream, and wait for it."""
        stream = self.stream(0)
        stream.submit(work, True)
        stream.finish()

    def locate(self, address: int) -> Device:
        """The device that an address lies on.  Raises Refused where it is not allocated."""
        for device in self.devices:
            if device.heap.covers(address) and device.heap.allocation(address) is not None:
                return device
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"{address:#x} is not an address on a device")

    def is_on_device(self, address: int) -> bool:
        """Whether an address is one of a device, allocated or not, and not one of the process."""
        return any(device.heap.covers(address) for device in self.devices)


def object_name(kind: type) -> str:
    """What the driver's API calls objects of a class: `module`, `context`, `stream`."""
    return kind.__name__.removeprefix("Loaded").removeprefix("Driver").lower()


def result_name(result: int) -> str:
    """A result as cuda.h names it."""
    return DriverResult(result).name if result in DriverResult.__members__.values() else str(result)
