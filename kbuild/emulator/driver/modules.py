"""Images of code: PTX texts, and cubins, whose PTX is looked up by their digests, as the emulator runs PTX
alone."""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.emulator.driver import host
from kbuild.emulator.driver.codes import DriverResult, FunctionAttribute, Refused
from kbuild.emulator.driver.devices import Device, DriverContext
from kbuild.emulator.engine.launch import align_of_parameter, place_globals, size_of
from kbuild.emulator.engine.program import Program, decode
from kbuild.emulator.ptx.model import PtxError
from kbuild.emulator.ptx.model import PtxModule as PtxModule
from kbuild.emulator.ptx.parser import parse
from kbuild.errors import UsageError

_ELF = b"\x7fELF\x02\x01"
_FATBIN = (b"\x50\xed\x55\xba", b"\x51\xed\x55\xba")
_ABI_VERSION = 8
"""Where an ELF file says which version of its ABI it is in: cubins for sm_50 to sm_90 have 7 of ptxas 12, and
8 of ptxas 13."""
_FIRST_WITH_ABI_8 = 13000
SHARED_WITHOUT_OPTIN = 49152
"""Bytes of shared memory that a launch may have without opting in to more."""
_PTX_VERSIONS = {10000: 63, 10010: 64, 10020: 65, 12060: 85, 12070: 86, 12080: 87, 12090: 88}
"""The newest PTX that a driver knows, 10 * major + minor, where it does not follow from the driver's version."""


class PtxTable:
    """The PTX of cubins."""

    def __init__(self) -> None:
        self._texts: dict[str, str | Path] = {}

    def register(self, cubin: bytes, ptx: str) -> None:
        """Accept a cubin from now on; its kernels run this text."""
        self._texts[digest_of(cubin)] = ptx

    def add_folder(self, folder: Path) -> int:
        """Take every cubin in a folder, and below it, that has its PTX beside it, as builds leave them; returns
        how many.

        Raises UsageError for a folder with none.
        """
        cubins = [cubin for cubin in folder.rglob("*.cubin") if cubin.with_suffix(".ptx").is_file()]
        found = {digest_of(cubin.read_bytes()): cubin.with_suffix(".ptx") for cubin in cubins}
        if not found:
            raise UsageError(
                f"{folder} has no cubins with their PTX beside them",
                help="give the build folder of a project",
            )
        self._texts |= found
        return len(found)

    def text_of(self, cubin: bytes) -> str:
        """The PTX of a cubin.  Raises Refused where it is not known."""
        digest = digest_of(cubin)
        found = self._texts.get(digest)
        if found is None:
            raise Refused(
                DriverResult.CUDA_ERROR_NO_BINARY_FOR_GPU,
                f"the fake driver runs PTX, and does not know that of the cubin with sha256 {digest}; "
                'name the folder that it was built in, or use a package with PTX in it (archs = ["sm_80+ptx"])',
            )
        return found.read_text() if isinstance(found, Path) else found


def digest_of(cubin: bytes) -> str:
    """The name of a cubin: its sha256, without bytes after its end."""
    return hashlib.sha256(cubin[: _elf_size(cubin)]).hexdigest()


def _elf_size(header: bytes) -> int:
    """Bytes of an ELF file, whose tables of sections and segments come last."""
    segments, sections = struct.unpack_from("<QQ", header, 32)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
    return max(sections + section_size * section_count, segments + segment_size * segment_count)


def image_at(address: int) -> bytes:
    """The image at an address: the bytes of a cubin, or PTX.  Raises Refused for anything else."""
    if host.read(address, len(_ELF)) == _ELF:
        return host.read(address, _elf_size(host.read(address, 64)))
    return image_in(host.read_bytes(address))


def image_in(data: bytes) -> bytes:
    """The image that bytes begin with: a cubin, or PTX.  Raises Refused for anything else."""
    if data.startswith(_ELF):
        return data[: _elf_size(data)]
    if data[:4] in _FATBIN:
        raise Refused(
            DriverResult.CUDA_ERROR_NO_BINARY_FOR_GPU,
            "the fake driver loads cubins and PTX, not fat binaries",
        )
    text = data.partition(b"\0")[0].decode(errors="replace")
    if not re.match(r"(\s|//[^\n]*\n|/\*.*?\*/)*\.version\b", text, re.DOTALL):
        raise Refused(DriverResult.CUDA_ERROR_INVALID_IMAGE, "the image is neither a cubin nor PTX")
    return text.encode()


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> PtxModule:
    return parse(text)


@functools.lru_cache(maxsize=256)
def _program(text: str, entry: str) -> Program:
    module = _parsed(text)
    return decode(module, module.function(entry))


@dataclass(eq=False)
class LoadedModule:
    """An image that is loaded in a context."""

    context: DriverContext
    image: Image
    symbols: Mapping[str, int]
    """Addresses of its global variables."""
    functions: dict[str, LoadedFunction] = field(default_factory=dict)

    def unload(self) -> None:
        """Free its memory."""
        for address in self.symbols.values():
            self.context.device.heap.free(address)

    def function(self, name: str) -> LoadedFunction:
        """A kernel.  Raises Refused where there is none of that name, or the emulator cannot run it."""
        if name not in self.functions:
            self.functions[name] = LoadedFunction(self, self.image.kernel(name))
        return self.functions[name]

    def variable(self, name: str) -> tuple[int, int]:
        """Address and bytes of a global variable.  Raises Refused where there is none of that name."""
        if name not in self.symbols:
            raise Refused(DriverResult.CUDA_ERROR_NOT_FOUND, f"no variable {name}")
        variable = next(variable for variable in self.image.ptx.variables if variable.name == name)
        return self.symbols[name], size_of(variable)


@dataclass(frozen=True)
class KernelCode:
    """A kernel of an image, wherever that is loaded."""

    ptx: PtxModule
    program: Program

    @property
    def name(self) -> str:
        return self.program.entry.name

    @property
    def threads(self) -> int:
        """Threads that a block may have at most."""
        for name, values in self.program.entry.directives:
            if name in ("reqntid", "maxntid"):
                x, y, z = (*values, 1, 1)[:3]
                return x * y * z
        return 1024

    @property
    def static_shared(self) -> int:
        """Bytes of shared memory that it always takes."""
        variables = (*self.ptx.variables, *self.program.variables)
        return sum(size_of(variable) for variable in variables if variable.space == "shared")

    @property
    def default_dynamic_shared(self) -> int:
        """Bytes of dynamic shared memory that a launch may ask for without opting in."""
        return SHARED_WITHOUT_OPTIN - self.static_shared

    @property
    def parameters(self) -> list[tuple[int, int]]:
        """Offset and bytes of each parameter in a buffer with all of them."""
        found: list[tuple[int, int]] = []
        end = 0
        for parameter in self.program.entry.parameters:
            size = size_of(parameter)
            align = align_of_parameter(parameter)
            offset = -(-end // align) * align
            found.append((offset, size))
            end = offset + size
        return found

    def attribute(self, number: int, device: Device, dynamic_shared: int) -> int:
        """The value of an attribute on a device, where a launch may ask for so many bytes.  Raises Refused for an
        unknown one."""
        named = FunctionAttribute
        if number not in named.__members__.values():
            raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"functions have no attribute {number}")
        major, _, minor = self.ptx.version.partition(".")
        local = sum(size_of(variable) for variable in self.program.variables if variable.space == "local")
        cluster = self.program.required_cluster
        must_be_set = cluster != (1, 1, 1)
        values = {
            named.MAX_THREADS_PER_BLOCK: self.threads,
            named.SHARED_SIZE_BYTES: self.static_shared,
            named.LOCAL_SIZE_BYTES: local,
            named.NUM_REGS: 32,
            named.PTX_VERSION: 10 * int(major) + int(minor),
            named.BINARY_VERSION: device.capability,
            named.MAX_DYNAMIC_SHARED_SIZE_BYTES: dynamic_shared,
            named.PREFERRED_SHARED_MEMORY_CARVEOUT: -1,
            named.CLUSTER_SIZE_MUST_BE_SET: int(must_be_set),
            named.REQUIRED_CLUSTER_WIDTH: cluster[0] * must_be_set,
            named.REQUIRED_CLUSTER_HEIGHT: cluster[1] * must_be_set,
            named.REQUIRED_CLUSTER_DEPTH: cluster[2] * must_be_set,
        }
        return values.get(named(number), 0)

    def check_dynamic_shared(self, device: Device, size: int) -> None:
        """Raise Refused where launches on a device cannot be given so many bytes of dynamic shared memory."""
        limit = device.shared_limit - self.static_shared
        if not 0 <= size <= limit:
            raise Refused(
                DriverResult.CUDA_ERROR_INVALID_VALUE,
                f"{size} bytes of dynamic shared memory; the device has {limit}",
            )


@dataclass(eq=False)
class LoadedFunction:
    """A kernel of a module."""

    module: LoadedModule
    code: KernelCode
    kernel: LoadedKernel | None = None
    """Of a library, the kernel that it is in this context."""
    opted_in: int | None = None
    """The dynamic shared memory that was asked for, in bytes; it comes before what was asked for of `kernel`."""

    @property
    def dynamic_shared(self) -> int:
        """Bytes of dynamic shared memory that a launch may ask for."""
        if self.opted_in is not None:
            return self.opted_in
        by_device = self.kernel.opted_in if self.kernel else {}
        return by_device.get(self.module.context.device.ordinal, self.code.default_dynamic_shared)


@dataclass(eq=False)
class LoadedLibrary:
    """An image that is loaded in each context when one of its kernels is needed there."""

    image: Image
    modules: dict[DriverContext, int] = field(default_factory=dict)
    """Handles of the modules that it is in contexts."""
    kernels: dict[str, LoadedKernel] = field(default_factory=dict)

    def kernel(self, name: str) -> LoadedKernel:
        """A kernel.  Raises Refused where there is none of that name, or the emulator cannot run it."""
        if name not in self.kernels:
            self.kernels[name] = LoadedKernel(self, self.image.kernel(name))
        return self.kernels[name]


@dataclass(eq=False)
class LoadedKernel:
    """A kernel of a library, the same in all contexts."""

    library: LoadedLibrary
    code: KernelCode
    opted_in: dict[int, int] = field(default_factory=dict)
    """The dynamic shared memory that was asked for, in bytes, by ordinal of the device."""


@dataclass(frozen=True)
class Image:
    """A cubin or PTX text that a driver takes, with its PTX."""

    text: str
    digest: str
    """sha256 of the image."""
    ptx: PtxModule
    is_cubin: bool

    @property
    def kernels(self) -> list[str]:
        """The names of its kernels."""
        return [function.name for function in self.ptx.functions if function.is_entry]

    def kernel(self, name: str) -> KernelCode:
        """A kernel.  Raises Refused where there is none of that name, or the emulator cannot run it."""
        if name not in self.kernels:
            raise Refused(
                DriverResult.CUDA_ERROR_NOT_FOUND,
                f"no kernel {name}; the module has {', '.join(self.kernels) or 'none'}",
            )
        try:
            return KernelCode(self.ptx, _program(self.text, name))
        except PtxError as error:
            raise Refused(DriverResult.CUDA_ERROR_INVALID_PTX, str(error)) from None


def read_image(image: bytes, table: PtxTable, version: int) -> Image:
    """An image, for a driver of that version.  Raises Refused where it takes none such."""
    is_cubin = image[:6] == _ELF
    text = table.text_of(image) if is_cubin else image.decode()
    try:
        ptx = _parsed(text)
    except PtxError as error:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_PTX, str(error)) from None
    _check_version(ptx, is_cubin, version)
    if is_cubin:
        _check_format(image, version)
    return Image(text, digest_of(image) if is_cubin else hashlib.sha256(image).hexdigest(), ptx, is_cubin)


def load(context: DriverContext, image: Image) -> LoadedModule:
    """Load an image in a context.  Raises Refused where the device does not run it."""
    if not runs_on(image.ptx.arch, image.is_cubin, context.device):
        what = "a cubin" if image.is_cubin else "PTX"
        result = (
            DriverResult.CUDA_ERROR_NO_BINARY_FOR_GPU
            if image.is_cubin
            else DriverResult.CUDA_ERROR_INVALID_PTX
        )
        raise Refused(result, f"{what} for {image.ptx.arch} does not run on {context.device.arch}")
    return LoadedModule(context, image, place_globals(image.ptx, context.device.heap))


def _check_version(ptx: PtxModule, is_cubin: bool, version: int) -> None:
    """Raise Refused for PTX that is newer than the driver; a cubin needs no compiler."""
    major, _, minor = ptx.version.partition(".")
    known = _PTX_VERSIONS.get(version, (version // 1000 - 4) * 10 + version % 1000 // 10)
    if not is_cubin and 10 * int(major) + int(minor) > known:
        raise Refused(
            DriverResult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            f"PTX {ptx.version}; the driver knows PTX up to {known // 10}.{known % 10}",
        )


def _check_format(cubin: bytes, version: int) -> None:
    """Raise Refused for a cubin of a newer format than the driver loads."""
    if cubin[_ABI_VERSION] >= 8 and version < _FIRST_WITH_ABI_8:
        raise Refused(
            DriverResult.CUDA_ERROR_INVALID_IMAGE,
            "device kernel image is invalid: the cubin is of ptxas 13, whose code drivers for CUDA 13.0 and later load",
        )


def runs_on(arch: str, is_cubin: bool, device: Device) -> bool:
    """Whether a device runs code for an architecture: PTX on newer ones too, cubins on their own major
    version."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if match is None:
        return False
    capability = int(match[1])
    if match[2] == "a":
        return device.capability == capability
    same_major = device.capability // 10 == capability // 10
    return device.capability >= capability and (same_major or not (is_cubin or match[2] == "f"))
