"""Kernels that are launched from Python: `kbuild.load(artifact)[grid](*arguments)`."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kbuild.compiler.driver import Artifact
from kbuild.errors import UsageError
from kbuild.gpu.arguments import HOST, Arguments, ArrayView, BoundArgument, shown, values_of, view_of
from kbuild.gpu.cuda import asked, asking, core, driver, open_driver
from kbuild.gpu.device import DeviceKernel, LaunchFacts
from kbuild.gpu.environment import library_named
from kbuild.targets import devices_of

_LIMITS = (2**31 - 1, 65535, 65535)
"""Programs along each axis of a grid."""


class LoadedKernel:
    """A compiled kernel that can be launched; it is loaded on each device when it is first launched there."""

    def __init__(self, artifact: Artifact, device: int | None = None) -> None:
        """Raises `UsageError` for an artifact that has no code, or does not say its arguments."""
        if not isinstance(artifact, Artifact):
            raise UsageError(
                f"{shown(artifact)} is no compiled kernel", help="load what kbuild.compile returns"
            )
        if device is not None and not isinstance(device, int):
            raise UsageError(f"device is {shown(device)}, and not the number of one")
        self.metadata = metadata = artifact.metadata
        code = artifact.asm.get("cubin") or artifact.asm.get("ptx")
        if code is None:
            raise UsageError(
                f"{metadata.name} was compiled to {[*artifact.asm][-1]}, which does not run",
                help='compile it to "ptx" or "cubin"',
            )
        if metadata.signature is None:
            raise UsageError(
                f"{metadata.name} was compiled from the text of a late stage, which does not say its arguments",
                help="compile it from Python, or from ttir or ttgir",
            )
        self._image = code if isinstance(code, bytes) else code.encode()
        self._devices = devices_of(metadata.arch, is_ptx="cubin" not in artifact.asm)
        self._facts = LaunchFacts.of_metadata(metadata)
        self._arguments = Arguments(metadata.name, metadata.signature)
        self._device = device
        self._loaded: dict[int, DeviceKernel] = {}

    def __getitem__(self, grid: int | Sequence[int]) -> Launch:
        """The kernel with a grid: one to three numbers of programs."""
        return Launch(self, self._checked_grid(grid))

    def _checked_grid(self, grid: Any) -> tuple[int, ...]:
        name, cluster = self.metadata.name, self.metadata.options.cluster_size
        try:
            sizes = [operator.index(size) for size in (grid if isinstance(grid, tuple | list) else (grid,))]
        except TypeError:
            sizes = []
        if not 1 <= len(sizes) <= 3:
            raise UsageError(f"{name}[{shown(grid)}]: a grid is one to three whole numbers")
        for axis, (size, limit) in enumerate(zip(sizes, _LIMITS)):
            if not 0 <= size <= limit:
                raise UsageError(f"{name}[{grid}]: axis {axis} has from 0 to {limit} programs")
        if sizes[0] % cluster:
            raise UsageError(
                f"{name}[{grid}]: axis 0 is not a multiple of the cluster size {cluster}",
                help="programs of a cluster lie next to each other along axis 0",
            )
        return tuple(sizes)

    def launch(
        self, grid: Sequence[int], args: Sequence[Any], named: Mapping[str, Any], stream: Any = None
    ) -> None:
        """Check the arguments, and launch; see `Launch`."""
        open_driver(library_named())
        bound = self._arguments.bind(args, named)
        arrays = self._arrays(bound)
        ordinal = self._ordinal(arrays)
        with _current(ordinal) as device:
            kernel = self._on(device)
            used = _stream(device, stream, bound, arrays)
            _wait_for_producers(device, used, arrays)
            values = values_of(self.metadata.name, bound, arrays)
            if all(grid):
                kernel.launch(used, grid, kernel.arguments(values))

    def _arrays(self, bound: Sequence[BoundArgument]) -> dict[str, ArrayView]:
        views = ((one.name, view_of(one.value)) for one in bound if one.type.dtype.is_ptr())
        return {name: view for name, view in views if view is not None}

    def _ordinal(self, arrays: Mapping[str, ArrayView]) -> int:
        """The device of a launch."""
        places = {name: view.device for name, view in arrays.items() if view.device is not None}
        for name, place in places.items():
            if place == HOST:
                raise UsageError(
                    f"{self.metadata.name}: argument {name} is in the host's memory",
                    help="copy it to the device",
                )
        chosen = next(iter(places.values()), None) if self._device is None else self._device
        for name, place in places.items():
            if place != chosen:
                other = next((one for one, where in places.items() if where == chosen), "")
                raise UsageError(
                    f"{self.metadata.name}: argument {name} is on device {place}, and "
                    + (
                        f"{other} on device {chosen}"
                        if other
                        else f"the kernel is loaded for device {chosen}"
                    )
                )
        if chosen is not None:
            return chosen
        code, current = driver.cuCtxGetDevice()
        return int(current) if code == driver.CUresult.CUDA_SUCCESS else 0

    def _on(self, device: Any) -> DeviceKernel:
        """The kernel on a device, which is current.  Raises `UsageError` where that does not run its code."""
        ordinal = device.device_id
        if ordinal not in self._loaded:
            major, minor = device.compute_capability
            if not self._devices.have(10 * major + minor):
                raise UsageError(
                    f"{self.metadata.name} is compiled for {self.metadata.arch}; device {ordinal} "
                    f"({device.name}) has capability {major}.{minor} and does not run that",
                    help=f'compile it with target="sm_{major}{minor}"',
                )
            self._loaded[ordinal] = DeviceKernel(device, self._image, self._facts)
        return self._loaded[ordinal]


class Launch:
    """A kernel with its grid, on the way to being launched."""

    def __init__(self, kernel: LoadedKernel, grid: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._grid = grid

    def __call__(self, *args: Any, stream: Any = None, **named: Any) -> None:
        """Launch the kernel, and return at once.

        Arguments are those of the signature, in its order or by name: for a pointer a tensor of torch, an array of CuPy or
        of another library with `__cuda_array_interface__` or DLPack, a buffer of cuda.core, or an address; for a tensor
        descriptor an array; numbers for all others; None is a null pointer.  `stream` is one of cuda.core, torch or CuPy,
        anything with `__cuda_stream__`, or a handle; by default it is the current one of torch where a tensor of torch is
        passed, and otherwise that of the first array, or the default stream.

        Raises `UsageError` where an argument is not as was assumed when the kernel was compiled, or the device does not run
        its code, and `ToolError` where the driver refuses the launch.
        """
        self._kernel.launch(self._grid, args, named, stream)


@contextmanager
def _current(ordinal: int) -> Iterator[Any]:
    """A device, whose primary context is the thread's within this."""
    count = asked(driver.cuDeviceGetCount)
    if not 0 <= ordinal < count:
        raise UsageError(f"no CUDA device {ordinal}; the driver shows {count}")
    before = asked(driver.cuCtxGetCurrent)
    with asking(f"opening device {ordinal}"):
        device = core.Device(ordinal)
        device.set_current()
    try:
        yield device
    finally:
        if int(before):
            asked(driver.cuCtxSetCurrent, before)


def _stream(device: Any, given: Any, bound: Sequence[BoundArgument], arrays: Mapping[str, ArrayView]) -> Any:
    """The stream of a launch, as one of cuda.core.  Raises `UsageError` for what is none."""
    if given is None:
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(one.value, torch.Tensor) for one in bound):
            given = torch.cuda.current_stream(device.device_id).cuda_stream
        else:
            given = next((view.stream for view in arrays.values() if view.stream is not None), 0)
    if isinstance(given, core.Stream):
        return given
    for name in ("cuda_stream", "ptr"):  # Of streams of torch and CuPy.
        given = getattr(given, name, given)
    try:
        if hasattr(given, "__cuda_stream__"):
            return device.create_stream(given)
        handle = int(given)
        if handle < 0:
            raise ValueError
    except (TypeError, ValueError):
        raise UsageError(f"stream is {shown(given)}, which is no stream") from None
    return _stream_by_handle(device, handle)


def _stream_by_handle(device: Any, handle: int) -> Any:
    """A stream of cuda.core; 0 means the default stream, 1 the legacy one, 2 that of the thread, as in cuda.h."""
    defaults = (device.default_stream, core.LEGACY_DEFAULT_STREAM, core.PER_THREAD_DEFAULT_STREAM)
    return defaults[handle] if handle < len(defaults) else core.Stream.from_handle(handle)


def _wait_for_producers(device: Any, stream: Any, arrays: Mapping[str, ArrayView]) -> None:
    """Let a launch wait for the streams of arrays that say which stream writes them."""
    handles = {view.stream for view in arrays.values() if view.stream is not None}
    for handle in sorted(handles - {int(stream.handle)}):
        with asking("waiting for the stream of an array"):
            stream.wait(_stream_by_handle(device, handle))
