"""One GPU: its memory, and kernels that are loaded on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.compiler.driver import Metadata
from kbuild.compiler.interp import encode
from kbuild.compiler.interp.formats import element_named
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME
from kbuild.errors import UsageError
from kbuild.gpu.cuda import asked, asking, core, driver, open_driver
from kbuild.gpu.tensor_maps import descriptor
from kbuild.tensor_map import TensorMapType

_ALIGNMENT = 256
"""Bytes of the smallest allocation."""
_SHARED_WITHOUT_OPTIN = 48 * 1024
_CODED = {"bf16": "bf16", "f8E4M3FN": "fp8e4nv", "f8E4M3B15": "fp8e4b15", "f8E5M2": "fp8e5"}
"""Types of parameters that numpy lacks, by their names in the IR; in signatures."""
_IR_NAMES = {name: str(dtype.ir) for name, dtype in BY_SIGNATURE_NAME.items()}
"""Parameters of kernels in CUDA C++ have the types of their signatures."""
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_UNSIGNED = {"i1": np.uint8, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64}


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


class Gpu:
    """A device and its memory; what it is asked is done in order, in the default stream of its context."""

    def __init__(self, ordinal: int = 0, library: str | None = None) -> None:
        """Open a device, and make its primary context the thread's.

        `library` is the path of the driver's library, where it is not the machine's.  Raises `ToolError` without a driver,
        `UsageError` without that device.
        """
        open_driver(library)
        count = asked(driver.cuDeviceGetCount)
        if not 0 <= ordinal < count:
            raise UsageError(f"no CUDA device {ordinal}; the driver shows {count}")
        with asking(f"opening device {ordinal}"):
            self._device = core.Device(ordinal)
            self._device.set_current()
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
        is_cubin = image.startswith(b"\x7fELF")
        with asking(f"loading {facts.entry}"):
            code = core.ObjectCode.from_cubin(image) if is_cubin else core.ObjectCode.from_ptx(image)
            self._kernel = code.get_kernel(facts.entry)
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

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """What `launch` takes, from the values of the parameters: addresses and numbers.  Tensor maps are made of those,
        and pointers without a value are null."""
        return [packed(name, type_, values) for name, type_ in self.facts.params]

    def launch(self, stream: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        """Launch it on a stream of cuda.core.  Raises `ToolError` where the driver refuses."""
        facts = self.facts
        config = core.LaunchConfig(
            grid=tuple(grid),
            block=facts.block,
            shmem_size=facts.shared,
            programmatic_stream_serialization=facts.launch_pdl,
        )
        with asking(f"launching {facts.entry}"):
            core.launch(stream, config, self._kernel, *arguments)


def packed(name: str, type_: str, values: Mapping[str, Any]) -> Any:
    """An argument as cuda.core passes it, for a parameter of a type as `Metadata.params` has it."""
    if map_ := TensorMapType.parse(type_):
        return descriptor(map_, values)
    if type_.startswith(("!tt.ptr", "*")):
        return int(values.get(name, 0))
    type_ = _IR_NAMES.get(type_, type_)
    if type_ in _FLOATS:
        return _FLOATS[type_](values[name])
    if type_ in _CODED:
        return encode(np.array([values[name]], np.float64), element_named(_CODED[type_]))[0]
    made = _UNSIGNED[type_]
    return made(int(values[name]) & np.iinfo(made).max)
