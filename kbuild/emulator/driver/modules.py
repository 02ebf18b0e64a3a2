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
from kbuild.emulator.engine.launch import place_globals, size_of
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
    start = host.read(address, 6)
    if start == _ELF:
        return host.read(address, _elf_size(host.read(address, 64)))
    if start[:4] in _FATBIN:
        raise Refused(
            DriverResult.CUDA_ERROR_NO_BINARY_FOR_GPU,
            "the fake driver loads cubins and PTX, not fat binaries",
        )
    text = host.read_text(address)
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
    text: str
    """Its PTX."""
    digest: str
    """sha256 of the image."""
    ptx: PtxModule
    symbols: Mapping[str, int]
    """Addresses of its global variables."""
    functions: dict[str, LoadedFunction] = field(default_factory=dict)

    def unload(self) -> None:
        """Free its memory."""
        for address in self.symbols.values():
            self.context.device.heap.free(address)


@dataclass(eq=False)
class LoadedFunction:
    """A kernel of a module."""

    module: LoadedModule
    name: str
    program: Program
    dynamic_shared: int
    """Bytes of dynamic shared memory that a launch may ask for."""

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
        variables = (*self.module.ptx.variables, *self.program.variables)
        return sum(size_of(variable) for variable in variables if variable.space == "shared")

    def attribute(self, number: int) -> int:
        """The value of an attribute.  Raises Refused for an unknown one."""
        named, ptx = FunctionAttribute, self.module.ptx
        major, _, minor = ptx.version.partition(".")
        local = sum(size_of(variable) for variable in self.program.variables if variable.space == "local")
        values = {
            named.MAX_THREADS_PER_BLOCK: self.threads,
            named.SHARED_SIZE_BYTES: self.static_shared,
            named.CONST_SIZE_BYTES: 0,
            named.LOCAL_SIZE_BYTES: local,
            named.NUM_REGS: 32,
            named.PTX_VERSION: 10 * int(major) + int(minor),
            named.BINARY_VERSION: self.module.context.device.capability,
            named.MAX_DYNAMIC_SHARED_SIZE_BYTES: self.dynamic_shared,
            named.PREFERRED_SHARED_MEMORY_CARVEOUT: -1,
        }
        for attribute, value in values.items():
            if attribute == number:
                return value
        raise Refused(DriverResult.CUDA_ERROR_INVALID_VALUE, f"functions have no attribute {number}")


def load(context: DriverContext, image: bytes, table: PtxTable, version: int) -> LoadedModule:
    """Load an image in a context, under a driver of that version.  Raises Refused where the device does not
    run it."""
    is_cubin = image[:6] == _ELF
    text = table.text_of(image) if is_cubin else image.decode()
    try:
        ptx = _parsed(text)
    except PtxError as error:
        raise Refused(DriverResult.CUDA_ERROR_INVALID_PTX, str(error)) from None
    _check_version(ptx, is_cubin, version)
    if is_cubin:
        _check_format(image, version)
    if not runs_on(ptx.arch, is_cubin, context.device):
        what = "a cubin" if is_cubin else "PTX"
        result = (
            DriverResult.CUDA_ERROR_NO_BINARY_FOR_GPU if is_cubin else DriverResult.CUDA_ERROR_INVALID_PTX
        )
        raise Refused(result, f"{what} for {ptx.arch} does not run on {context.device.arch}")
    digest = digest_of(image) if is_cubin else hashlib.sha256(image).hexdigest()
    return LoadedModule(context, text, digest, ptx, place_globals(ptx, context.device.heap))


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


def function_of(module: LoadedModule, name: str) -> LoadedFunction:
    """A kernel of a module.  Raises Refused where there is none of that name, or the emulator cannot run it."""
    if name not in module.functions:
        kernels = [function.name for function in module.ptx.functions if function.is_entry]
        if name not in kernels:
            raise Refused(
                DriverResult.CUDA_ERROR_NOT_FOUND,
                f"no kernel {name}; the module has {', '.join(kernels) or 'none'}",
            )
        try:
            program = _program(module.text, name)
        except PtxError as error:
            raise Refused(DriverResult.CUDA_ERROR_INVALID_PTX, str(error)) from None
        function = LoadedFunction(module, name, program, 0)
        function.dynamic_shared = 49152 - function.static_shared
        module.functions[name] = function
    return module.functions[name]
