"""Kernels that are launched from Python: `kbuild.load(artifact)[grid](*arguments)`."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.compiler.driver import Artifact
from kbuild.errors import UsageError
from kbuild.gpu.arguments import Arguments, Taken, shown
from kbuild.gpu.cuda import asked, asking, core, driver, open_driver
from kbuild.gpu.device import DeviceKernel, LaunchFacts, open_device
from kbuild.gpu.environment import library_named
from kbuild.gpu.views import ArrayView
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
        self._places: dict[int, _Place] = {}
        """The devices where it is loaded, by their ordinals."""

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
        if not self._places:
            open_driver(library_named())
        taken = self._arguments.take(args, named)
        ordinal = self._ordinal(taken.arrays)
        before = int(asked(driver.cuCtxGetCurrent))
        place = self._places.get(ordinal)
        is_there = place is not None and place.context == before
        try:
            if place is None:
                place = self._places.setdefault(ordinal, self._place(ordinal))
            elif not is_there:
                asked(driver.cuCtxSetCurrent, place.context)
            handle = place.stream(stream, taken)
            if all(grid):
                place.kernel.launch_once(handle, grid, taken.values)
        finally:
            if before and not is_there:
                asked(driver.cuCtxSetCurrent, before)

    def _ordinal(self, arrays: Mapping[str, ArrayView]) -> int:
        """The device of a launch."""
        chosen = self._device
        for name, view in arrays.items():
            if view.device is None or view.device == chosen:
                continue
            if chosen is not None:
                raise self._elsewhere(name, view.device, chosen, arrays)
            chosen = view.device
        if chosen is not None:
            return chosen
        code, current = driver.cuCtxGetDevice()
        return int(current) if code == driver.CUresult.CUDA_SUCCESS else 0

    def _elsewhere(self, name: str, device: int, chosen: int, arrays: Mapping[str, ArrayView]) -> UsageError:
        other = next((one for one, view in arrays.items() if view.device == chosen), "")
        return UsageError(
            f"{self.metadata.name}: argument {name} is on device {device}, and "
            + (f"{other} on device {chosen}" if other else f"the kernel is loaded for device {chosen}")
        )

    def _place(self, ordinal: int) -> _Place:
        """A device, with the kernel, whose primary context is then the thread's.  Raises `UsageError` where it does not run
        the kernel's code."""
        device = open_device(ordinal)
        major, minor = device.compute_capability
        if not self._devices.have(10 * major + minor):
            raise UsageError(
                f"{self.metadata.name} is compiled for {self.metadata.arch}; device {ordinal} "
                f"({device.name}) has capability {major}.{minor} and does not run that",
                help=f'compile it with target="sm_{major}{minor}"',
            )
        return _Place(device, DeviceKernel(device, self._image, self._facts))


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


class _Place:
    """A device, which is current, with a kernel that is loaded on it."""

    def __init__(self, device: Any, kernel: DeviceKernel) -> None:
        self.kernel = kernel
        self.context = int(asked(driver.cuCtxGetCurrent))
        """The primary context, which is not another one as long as the process has cuda.core's device."""
        self._device = device
        self._defaults = tuple(
            int(one.handle)
            for one in (device.default_stream, core.LEGACY_DEFAULT_STREAM, core.PER_THREAD_DEFAULT_STREAM)
        )
        """By their handles; 0 means the default stream, 1 the legacy one, 2 that of the thread, as in cuda.h."""

    def stream(self, given: Any, taken: Taken) -> int:
        """The handle of the stream of a launch, which waits for the streams that write arrays.  Raises `UsageError` for what
        is no stream."""
        written = [view.stream for view in taken.arrays.values() if view.stream is not None]
        if given is None:
            given = self._default(written, taken.objects)
        handle = self._handle(given)
        if written:
            self._wait(handle, set(written))
        return handle

    def _default(self, written: Sequence[int], objects: Sequence[Any]) -> int:
        """The stream of a launch that names none."""
        torch = sys.modules.get("torch")
        if torch is not None:
            for one in objects:
                if isinstance(one, torch.Tensor):
                    # What torch.cuda.current_stream asks, without an object for the answer.
                    return torch._C._cuda_getCurrentRawStream(self._device.device_id)
        return written[0] if written else 0

    def _handle(self, given: Any) -> int:
        if type(given) is not int:
            given = self._handle_of(given)
        if given < 0:
            raise _no_stream(given)
        return self._defaults[given] if given < len(self._defaults) else given

    def _handle_of(self, given: Any) -> int:
        if isinstance(given, core.Stream):
            return int(given.handle)
        for name in ("cuda_stream", "ptr"):  # Of streams of torch and CuPy.
            given = getattr(given, name, given)
        try:
            if hasattr(given, "__cuda_stream__"):
                return int(self._device.create_stream(given).handle)
            return int(given)
        except (TypeError, ValueError):
            raise _no_stream(given) from None

    def _wait(self, handle: int, written: set[int]) -> None:
        """Let a launch wait for the streams that write its arrays."""
        for other in sorted({self._handle(one) for one in written} - {handle}):
            with asking("waiting for the stream of an array"):
                core.Stream.from_handle(handle).wait(core.Stream.from_handle(other))


def _no_stream(given: Any) -> UsageError:
    return UsageError(f"stream is {shown(given)}, which is no stream")
