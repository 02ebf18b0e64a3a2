"""One GPU: its memory, and kernels that are loaded on it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.compiler.driver import Metadata
from kbuild.errors import UsageError
from kbuild.gpu.cuda import answer, asked, asking, core, driver, open_driver
from kbuild.gpu.parameters import ParameterLayout
from kbuild.gpu.tensor_maps import MAP_ALIGNMENT, MAP_BYTES, put_tensor_map

_ALIGNMENT = 256
"""Bytes of the smallest allocation."""
_SHARED_WITHOUT_OPTIN = 48 * 1024


@dataclass(frozen=True)
class LaunchFacts:
    """How a kernel is launched."""

    entry: str
    """Its symbol."""
    params: tuple[tuple[str, str], ...]
    """As `Metadata.params`."""
    shared: int
    """Bytes of dynamic shared memory."""
    block: tuple[int, ...]
    """Threads along each axis."""
    launch_pdl: bool = False
    """Whether it may begin before the launch before it has ended."""

    @staticmethod
    def of_metadata(metadata: Metadata) -> LaunchFacts:
        """Those of a compilation."""
        return LaunchFacts(
            metadata.name, metadata.params, metadata.shared, metadata.block, metadata.options.launch_pdl
        )

    @staticmethod
    def of(facts: Mapping[str, Any]) -> LaunchFacts:
        """Those among the facts that a build keeps, for launches that come one after the other."""
        params = tuple((name, type_) for name, type_ in facts["params"])
        return LaunchFacts(facts["entry"], params, facts["shared"], tuple(facts["block"]))


def open_device(ordinal: int) -> Any:
    """A device of cuda.core, whose primary context is then the thread's.  Raises `UsageError` without that device."""
    count = asked(driver.cuDeviceGetCount)
    if not 0 <= ordinal < count:
        raise UsageError(f"no CUDA device {ordinal}; the driver shows {count}")
    with asking(f"opening device {ordinal}"):
        device = core.Device(ordinal)
        device.set_current()
    return device


class Gpu:
    """A device and its memory; what it is asked is done in order, in the default stream of its context."""

    def __init__(self, ordinal: int = 0, library: str | None = None) -> None:
        """Open a device, and make its primary context the thread's.

        `library` is the path of the driver's library, where it is not the machine's.  Raises `ToolError` without a driver,
        `UsageError` without that device.
        """
        open_driver(library)
        self._device = open_device(ordinal)
        self.stream = self._device.default_stream
        self.ordinal = ordinal

    @property
    def name(self) -> str:
        return self._device.name

    @property
    def capability(self) -> int:
        """10 * major + minor."""
        major, minor = self._device.compute_capability
        return 10 * major + minor

    @property
    def shared_bytes(self) -> int:
        """Shared memory that a program may have."""
        return self._device.properties.max_shared_memory_per_block_optin

    @property
    def num_sms(self) -> int:
        """Multiprocessors."""
        return self._device.properties.multiprocessor_count

    def allocate(self, size: int) -> Any:
        """A buffer of so many bytes, and at least a few; `close` frees it."""
        with asking(f"allocating {size} bytes"):
            return self._device.allocate(max(size, _ALIGNMENT), stream=self.stream)

    def placed(self, array: np.ndarray) -> Any:
        """A buffer with the contents of an array, contiguous in memory."""
        buffer = self.allocate(array.nbytes)
        self.upload(int(buffer.handle), array)
        return buffer

    def upload(self, address: int, array: np.ndarray) -> None:
        """Put an array, contiguous in memory, at an address of the device."""
        if array.nbytes:
            asked(driver.cuMemcpyHtoD, address, _place(array), array.nbytes)

    def download(self, array: np.ndarray, address: int) -> None:
        """Fill an array, contiguous in memory, from an address of the device, when what was asked before is done."""
        if array.nbytes:
            asked(driver.cuMemcpyDtoH, _place(array), address, array.nbytes)

    def copy(self, target: Any, source: Any, size: int) -> None:
        """Copy the first bytes of a buffer to another one."""
        asked(driver.cuMemcpyDtoDAsync, int(target.handle), int(source.handle), size, self.stream.handle)

    def wait(self) -> None:
        """Wait until all is done."""
        asked(driver.cuCtxSynchronize)

    def kernel(self, image: bytes, facts: LaunchFacts) -> DeviceKernel:
        """The kernel of a cubin, or of PTX, which the driver compiles."""
        return DeviceKernel(self._device, image, facts)


def _place(array: np.ndarray) -> int:
    assert array.flags.c_contiguous
    return array.__array_interface__["data"][0]


class DeviceKernel:
    """A kernel that is loaded for a device, which is current; it is unloaded with the object."""

    def __init__(self, device: Any, image: bytes, facts: LaunchFacts) -> None:
        """Raises `ToolError` where the driver does not take it."""
        self.facts = facts
        self._layout = ParameterLayout(facts.params)
        self._what = f"launching {facts.entry}"
        self._free: list[PreparedLaunch] = []
        """Those that no launch uses now; launches of several threads have one each."""
        is_cubin = image.startswith(b"\x7fELF")
        with asking(f"loading {facts.entry}"):
            code = core.ObjectCode.from_cubin(image) if is_cubin else core.ObjectCode.from_ptx(image)
            self._kernel = code.get_kernel(facts.entry)
            self._function = driver.CUfunction(int(self._kernel.handle))
        if facts.shared > _SHARED_WITHOUT_OPTIN:
            optin = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked(driver.cuKernelSetAttribute, optin, facts.shared, self._kernel.handle, device.device_id)

    @property
    def registers(self) -> int:
        """Of a thread."""
        return self._kernel.attributes.num_regs

    @property
    def local_bytes(self) -> int:
        """Memory of a thread for what its registers do not hold."""
        return self._kernel.attributes.local_size_bytes

    def arguments(self, values: Mapping[str, Any]) -> PreparedLaunch:
        """What `launch` takes, from the values of the parameters: addresses and numbers.  Tensor maps are made of those,
        and pointers without a value are null."""
        made = PreparedLaunch(self.facts, self._layout)
        made.put(values)
        return made

    def launch(self, stream: Any, grid: Sequence[int], arguments: PreparedLaunch) -> None:
        """Launch it on a stream of cuda.core, or the handle of one, that belongs to the current context.  Raises
        `ToolError` where the driver refuses."""
        config = arguments.config
        config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
        config.hStream = getattr(stream, "handle", stream)
        answer(self._what, driver.cuLaunchKernelEx(config, self._function, arguments.parameters, 0))

    def launch_once(self, stream: Any, grid: Sequence[int], values: Mapping[str, Any]) -> None:
        """Launch it with values that only this launch has: `launch` with their `arguments`, for less time."""
        try:
            prepared = self._free.pop()
        except IndexError:
            prepared = PreparedLaunch(self.facts, self._layout)
        prepared.put(values)
        self.launch(stream, grid, prepared)
        self._free.append(prepared)


class PreparedLaunch:
    """The configuration and the parameters of one launch at a time."""

    def __init__(self, facts: LaunchFacts, layout: ParameterLayout) -> None:
        self.config = config = driver.CUlaunchConfig()
        config.blockDimX, config.blockDimY, config.blockDimZ = (*facts.block, 1, 1)[:3]
        config.sharedMemBytes = facts.shared
        if facts.launch_pdl:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        self._layout = layout
        # First the tensor maps, at addresses that the driver asks for, then all parameters, and then where each lies.
        maps, values = MAP_BYTES * len(layout.maps), 8 * layout.count
        self._memory = ctypes.create_string_buffer(MAP_ALIGNMENT + maps + 2 * values)
        start = ctypes.addressof(self._memory)
        first = -(-start // MAP_ALIGNMENT) * MAP_ALIGNMENT
        self._values = first + maps - start
        places = [*range(first + maps, first + maps + values, 8)]
        self._maps = [(first + MAP_BYTES * index, map_) for index, (_, map_) in enumerate(layout.maps)]
        for (number, _), (place, _) in zip(layout.maps, self._maps):
            places[number] = place
        struct.pack_into(f"{layout.count}Q", self._memory, self._values + values, *places)
        self.parameters = first + maps + values
        """The address of the parameters' addresses."""

    def put(self, values: Mapping[str, Any]) -> None:
        """Make the parameters those of some values, as `DeviceKernel.arguments` takes them."""
        self._layout.put(values, self._memory, self._values)
        for place, map_ in self._maps:
            put_tensor_map(place, map_, values)
