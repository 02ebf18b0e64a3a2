"""The fake CUDA driver: a real libcuda.so.1 whose kernels run on the CPU."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.timing import timing_named
from kbuild.emulator.driver import calls as calls  # It fills the table of functions.
from kbuild.emulator.driver import library
from kbuild.emulator.driver.arrays import Array
from kbuild.emulator.driver.codes import DriverResult
from kbuild.emulator.driver.core import Driver, DriverCall, LaunchCall, Settings, object_name
from kbuild.emulator.driver.modules import LoadedLibrary, LoadedModule, PtxTable
from kbuild.emulator.driver.streams import Event, Graph, Stream
from kbuild.emulator.driver.table import FUNCTIONS
from kbuild.emulator.engine.findings import Finding
from kbuild.emulator.engine.launch import checkers_named
from kbuild.emulator.engine.schedule import schedule_named
from kbuild.errors import KbuildError, UsageError

_active: FakeDriver | None = None
_connecting = threading.RLock()


def _answer(name: bytes, words: Any) -> int:
    """The result of a call, from the active fake driver."""
    answering = _active
    if answering is None:
        return int(DriverResult.CUDA_ERROR_DEINITIALIZED)
    try:
        return answering.answer(name.decode(), words)
    except KeyboardInterrupt:
        _thread.interrupt_main()
        return int(DriverResult.CUDA_ERROR_UNKNOWN)


_handler = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64))(_answer)
"""The callbacks of libraries, for the life of the process."""


class FakeDriver:
    """Devices that run PTX on the CPU, behind a library that a process loads in the place of the driver's.

        with FakeDriver(["sm_90", "sm_80"], builds=["build"]) as driver:
            monkeypatch.setenv("KBUILD_LIBCUDA", str(driver.path))
            out = driver.empty(1000, numpy.float32, device=1)
            package.vector_add(driver.array(x, 1), driver.array(y, 1), out, 1000)
            assert (out.copy_to_host() == x + y).all()

    One at a time may be active in a process.  What a package has opened stays with it: import the package
    after the fake driver is active, and use one for all tests of a process.
    """

    def __init__(
        self,
        devices: Sequence[str] = ("sm_90",),
        *,
        builds: Iterable[Path | str] = (),
        version: str = "13.0",
        without: Iterable[str] = (),
        streams: str = "early",
        schedule: str = "lockstep",
        timing: str = "late",
        checks: str = "",
        memory: int = 1 << 30,
        folder: Path | str | None = None,
        cc: Sequence[str] = ("cc",),
    ) -> None:
        """Describe the driver.

        `devices` are architectures, `builds` folders with cubins and their PTX, `version` is the CUDA version
        of the driver and `without` names functions that it lacks.  `streams` says when work is done: `early`,
        at once, or `late`, when a thread waits for it.  `schedule`, `timing` and `checks` are those of
        `kbuild.emulator.run`, `memory` is bytes of each device, `folder` where the library is kept, and `cc`
        the C compiler.  Raises UsageError for unknown names.
        """
        if streams not in ("early", "late"):
            raise UsageError(f"streams is {streams!r}, expected 'early' or 'late'")
        for parse, text in ((schedule_named, schedule), (timing_named, timing), (checkers_named, checks)):
            parse(text)  # A mistake is reported here, and not at a launch.
        self._description = {
            "devices": list(devices),
            "builds": [str(Path(build).resolve()) for build in builds],
            "version": version,
            "without": sorted(without),
            "streams": streams,
            "schedule": schedule,
            "timing": timing,
            "checks": checks,
            "memory": memory,
        }
        self._folder, self._cc = None if folder is None else Path(folder), tuple(cc)
        self._version = _version_number(version)
        table = PtxTable()
        for build in self._description["builds"]:
            table.add_folder(Path(build))
        settings = Settings(self._version, streams == "late", schedule, timing, checks)
        self._driver = Driver(tuple(devices), settings, table, memory)
        self._path: Path | None = None
        self._library: ctypes.CDLL | None = None

    # The library

    @property
    def path(self) -> Path:
        """The library, for KBUILD_LIBCUDA; its folder serves for LD_LIBRARY_PATH.  Built on first use."""
        if self._path is None:
            self._path = library.build(
                self._description, self._version, self._description["without"], self._folder, self._cc
            )
        return self._path

    def __enter__(self) -> FakeDriver:
        """Answer the library's calls from now on.  Raises UsageError while another one does."""
        self._connect(self.path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, path: Path) -> None:
        global _active
        with _connecting:
            if _active not in (None, self):
                raise UsageError("another fake driver is active", help="use one for all tests of a process")
            self._library = self._driver.library = ctypes.CDLL(str(path))
            self._library.kbuild_stand_in_connect(_handler)
            _active = self

    def end(self) -> None:
        """As `close`, with the process: what is destroyed after this is no mistake."""
        if self._library is not None:
            self._library.kbuild_stand_in_end()
        self.close()

    def close(self) -> None:
        """Answer no more calls: they fail with CUDA_ERROR_DEINITIALIZED."""
        global _active
        with _connecting:
            if self._library is not None:
                self._library.kbuild_stand_in_connect(None)
                self._library, _active = None, None

    def answer(self, name: str, words: Sequence[int]) -> int:
        """The result of a call, for the library."""
        return self._driver.answer(name, words[: len(FUNCTIONS[name].parameters)])

    def forget_threads(self) -> None:
        """In a forked child, where there are no others."""
        self._driver.forget_threads()

    # What has happened

    @property
    def calls(self) -> list[DriverCall]:
        """The calls of the driver so far, the latest 131,072 of them."""
        return list(self._driver.calls)

    @property
    def launches(self) -> list[LaunchCall]:
        """The launches that it took."""
        return list(self._driver.launches)

    @property
    def findings(self) -> list[Finding]:
        """What the emulator found wrong with kernels."""
        return self._driver.findings

    @property
    def printed(self) -> list[str]:
        """What kernels have printed."""
        return self._driver.printed

    @property
    def loads(self) -> Mapping[int, int]:
        """How many modules were loaded so far, by ordinal of the device."""
        return dict(self._driver.loads)

    @property
    def leftovers(self) -> list[str]:
        """The modules, libraries, streams, events and graphs that still exist, and the memory that is not freed."""
        things = self._driver.handles((LoadedModule, LoadedLibrary, Stream, Event, Graph))
        objects = [f"{object_name(type(thing)).capitalize()} {handle:#x}" for handle, thing in things]
        return objects + [
            f"{name} at {address:#x} on device {device.ordinal}"
            for device in self._driver.devices
            for address, name in device.heap.allocations.items()
        ]

    # What is to come

    def fail_next(self, name: str, result: int, times: int = 1) -> None:
        """Let the next calls of a function fail with a result, such as 209, in any of its forms (`Ex`,
        `_v2`).

        Raises UsageError for an unknown function.
        """
        self._driver.fail_next(name, result, times)

    def forget_failures(self) -> None:
        """Cancel the failures that have not happened yet."""
        self._driver.forget_failures()

    def register(self, cubin: bytes, ptx: str) -> None:
        """Accept a cubin from now on; its kernels run this PTX."""
        self._driver.table.register(cubin, ptx)

    # Arrays

    def array(self, values: Any, device: int = 0, *, name: str = "") -> Array:
        """A copy of an array on a device; reports of accesses outside of it call it by its name."""
        host = np.asarray(values, order="C")
        made = self.empty(host.shape, host.dtype, device, name=name)
        made.copy_from_host(host)
        return made

    def empty(self, shape: int | Sequence[int], dtype: Any, device: int = 0, *, name: str = "") -> Array:
        """An array on a device, of bytes 0xFF: NaN, or -1."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if not 0 <= device < len(self._driver.devices):
            raise UsageError(f"no device {device}; there are {len(self._driver.devices)}")
        return Array(self._driver, device, sizes, np.dtype(dtype), name)


def active() -> FakeDriver:
    """The fake driver that this process uses: the one that is active, or that KBUILD_LIBCUDA or LD_LIBRARY_PATH
    name.

    Raises UsageError where there is none.
    """
    with _connecting:
        if _active is not None:
            return _active
        path = _named_library()
        if path is None:
            raise UsageError(
                "no fake driver is active, and KBUILD_LIBCUDA names none",
                help="make one, or set KBUILD_LIBCUDA to what `kbuild stand-in` prints",
            )
        return _described(path)


def connect(path: str) -> None:
    """Called by the library when it is not connected: make the fake driver that is described beside it, or
    print why not."""
    with _connecting:
        if _active is not None:
            _active._connect(Path(path))
            return
        try:
            _described(Path(path))
        except KbuildError as error:
            print(f"libcuda.so.1 of kbuild: {error}", file=sys.stderr)


def _named_library() -> Path | None:
    """The fake driver's library that the environment names."""
    named = os.environ.get("KBUILD_LIBCUDA")
    folders = [entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    paths = [Path(named)] if named else [Path(folder, library.NAME) for folder in folders]
    return next(
        (path for path in paths if path.is_file() and path.with_name(library.DESCRIPTION).is_file()), None
    )


def _described(path: Path) -> FakeDriver:
    """The fake driver that is described beside its library, made active.  Raises UsageError where that
    cannot be read."""
    try:
        described = json.loads(path.with_name(library.DESCRIPTION).read_text())
        made = FakeDriver(described.pop("devices"), **described)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path.with_name(library.DESCRIPTION)}: {error}") from None
    made._path = path
    made._connect(path)
    return made


def _version_number(version: str) -> int:
    major, _, minor = version.partition(".")
    if not (major.isdigit() and minor.isdigit() and int(minor) < 100):
        raise UsageError(f"version is {version!r}, expected such as '12.4'")
    return 1000 * int(major) + 10 * int(minor)


def _after_fork_in_child() -> None:
    global _connecting
    _connecting = threading.RLock()
    if _active is not None:
        _active.forget_threads()


os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _close() -> None:
    """The library must not call Python after Python has ended."""
    if _active is not None:
        with contextlib.suppress(OSError):
            _active.end()
