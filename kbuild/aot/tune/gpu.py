"""A GPU for `kbuild tune`, through the driver's functions: loads cubins, launches them on random arrays, and
times them.

It needs only the driver's library, not torch or the toolkit.  numpy makes the arrays and compares results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kbuild.aot.artifact.tensor_maps import encode as encode_map
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.tune.interleaved import interleave
from kbuild.aot.tune.tune import SECONDS, DeviceFacts, TimedProgram
from kbuild.aot.verify.cases import LaunchCase
from kbuild.compiler.interp import decode, encode
from kbuild.compiler.interp.formats import element_named, memory_dtype
from kbuild.compiler.interp.loaded import Type, is_float
from kbuild.errors import ToolError, UsageError
from kbuild.tensor_map import TensorMapType

LIBRARY = "libcuda.so.1"
BOUNDS = {"fp64": 1e-10, "fp32": 2e-3, "fp16": 1e-2, "bf16": 4e-2}
"""How far results of two configurations may be apart, relative to the root mean square of the array: sums are
added up in another order, and dots of fp32 may be of tf32."""
_COARSEST = 0.3
"""The tolerance of the 8-bit types."""
_MAX_COMPARED = 1 << 20
"""Elements of an array that are compared, spread over all of it."""
_RANDOM = 1 << 20
"""Random elements that are made; larger arrays repeat them."""
_CACHE_BYTES = 256 << 20
"""Bytes written before each timed launch: more than any L2 cache holds."""
_SHARED_WITHOUT_OPTIN = 48 * 1024
_CAPABILITY_MAJOR, _CAPABILITY_MINOR, _SHARED_OPTIN, _NUM_SMS, _FUNCTION_SHARED = 75, 76, 97, 16, 8
_ALIGNMENT = 256
_TRIAL = 3
"""Launches of the first trial of a candidate."""
_NOT_READY = 600
SCALARS = {
    "i1": ctypes.c_int8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float,
    "fp64": ctypes.c_double,
}
"""How a number of each type is passed to a kernel."""


class Gpu:
    """One device, its context, and the arrays of the launch at hand."""

    def __init__(self, ordinal: int = 0, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            help = "kbuild tune times kernels on a GPU; --dry-run shows without one what it would try"
            raise ToolError(f"no NVIDIA driver: {library} was not found", help=help) from None
        self._call("cuInit", 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= ordinal < count.value:
            raise UsageError(f"no CUDA device {ordinal}; the driver shows {count.value}")
        device, context, name = ctypes.c_int(), ctypes.c_void_p(), ctypes.create_string_buffer(256)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        major, minor, shared, num_sms = (
            self._attribute(number, device)
            for number in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR, _SHARED_OPTIN, _NUM_SMS)
        )
        self.device = DeviceFacts(name.value.decode(errors="replace"), 10 * major + minor, shared, num_sms)
        self._cache = self._allocated(_CACHE_BYTES)
        self._fresh: dict[str, tuple[int, int]] = {}  # Arrays as they are before a launch: address, bytes.
        self._used: dict[str, tuple[int, int]] = {}
        self._values: dict[str, np.ndarray] = {}
        self._restored: list[str] = []
        self._loaded: dict[bytes, _Loaded] = {}

    def place(self, variant: Variant, case: LaunchCase) -> None:
        """Make the arrays of a launch, of zeros or random values, in place of earlier ones."""
        for address, _ in (*self._fresh.values(), *self._used.values()):
            self._call("cuMemFree_v2", ctypes.c_uint64(address))
        for loaded in self._loaded.values():
            self._call("cuModuleUnload", loaded.module)
        self._fresh, self._used, self._values, self._loaded = {}, {}, {}, {}
        types, random = dict(variant.signature), np.random.default_rng(0)
        sized = dict(case.sizes or ())
        self._restored = [name for name in (*case.zeros, *case.restored) if name in sized]
        for name, count in sized.items():
            values = _random(_element(types[name]), count, random)
            self._values[name] = values = np.zeros_like(values) if name in case.zeros else values
            for arrays in (self._fresh, self._used):
                arrays[name] = self._allocated(values.nbytes), values.nbytes
            address, size = self._fresh[name]
            self._call(
                "cuMemcpyHtoD_v2",
                ctypes.c_uint64(address),
                values.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(size),
            )

    def results(self, program: TimedProgram) -> dict[str, np.ndarray]:
        """Launch once on fresh arrays, and return those that changed."""
        for name, (address, size) in self._fresh.items():
            self._call(
                "cuMemcpyDtoD_v2",
                ctypes.c_uint64(self._used[name][0]),
                ctypes.c_uint64(address),
                ctypes.c_size_t(size),
            )
        self._launch(program)
        self.wait()
        found: dict[str, np.ndarray] = {}
        for name, (address, size) in self._used.items():
            values = np.empty_like(self._values[name])
            self._call(
                "cuMemcpyDtoH_v2",
                values.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_uint64(address),
                ctypes.c_size_t(size),
            )
            if not np.array_equal(values.view(np.uint8), self._values[name].view(np.uint8)):
                found[name] = values
        return found

    def difference(
        self, variant: Variant, expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
    ) -> str:
        """The error in results, in words; empty if there is none."""
        types = dict(variant.signature)
        for name in expected.keys() | found.keys():
            problem = _difference(
                types[name], expected.get(name, self._values[name]), found.get(name, self._values[name])
            )
            if problem:
                return f"wrong: {name}: {problem}"
        return ""

    def times(self, programs: Sequence[TimedProgram], seconds: float = SECONDS) -> list[float]:
        """The median time of a launch of each in microseconds, in random order, with a cold cache and with the
        arrays as they were placed that the launch asks for, over about so many seconds of the device's; a few
        launches of each where they are 0."""
        calls = {
            number: lambda program=program: self._launch(program) for number, program in enumerate(programs)
        }
        return list(interleave(calls, self, seconds, 0 if seconds else _TRIAL).values())

    def flush(self) -> None:
        """Make the arrays as they were placed that every launch asks for, and write over the L2 cache: this and
        the following make a `Clock`."""
        for name in self._restored:
            (address, size), (source, _) = self._used[name], self._fresh[name]
            self._call(
                "cuMemcpyDtoDAsync_v2",
                ctypes.c_uint64(address),
                ctypes.c_uint64(source),
                ctypes.c_size_t(size),
                None,
            )
        self._call(
            "cuMemsetD8Async",
            ctypes.c_uint64(self._cache),
            ctypes.c_ubyte(0),
            ctypes.c_size_t(_CACHE_BYTES),
            None,
        )

    def mark(self) -> _Event:
        event = _Event(self._library)
        self._call("cuEventCreate", ctypes.byref(event.handle), 0)
        self._call("cuEventRecord", event.handle, None)
        return event

    def has_passed(self, mark: _Event) -> bool:
        return self._library.cuEventQuery(mark.handle) != _NOT_READY

    def wait(self) -> None:
        self._call("cuCtxSynchronize")

    def microseconds(self, start: _Event, end: _Event) -> float:
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start.handle, end.handle)
        return milliseconds.value * 1e3

    def _launch(self, program: TimedProgram) -> None:
        facts, loaded = program.facts, self._loaded.get(program.cubin) or self._load(program)
        x, y, z = (*program.case.grid, 1, 1)[:3]
        threads = 32 * facts.get("warps", facts["num_warps"])
        self._call(
            "cuLaunchKernel",
            loaded.function,
            x,
            y,
            z,
            threads,
            1,
            1,
            facts["shared"],
            None,
            loaded.pointers,
            None,
        )

    def _load(self, program: TimedProgram) -> _Loaded:
        """The program's kernel with its parameters; it stays loaded as long as the arrays."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), program.cubin)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, program.facts["entry"].encode())
        if program.facts["shared"] > _SHARED_WITHOUT_OPTIN:
            self._call("cuFuncSetAttribute", function, _FUNCTION_SHARED, program.facts["shared"])
        values = self._parameters(program)
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        self._loaded[program.cubin] = loaded = _Loaded(module, function, pointers, tuple(values))
        return loaded

    def _parameters(self, program: TimedProgram) -> list[Any]:
        """The parameters that the cubin declares."""
        types = {name: type_.partition(":")[0] for name, type_ in program.variant.signature}
        given: dict[str, Any] = dict(program.case.scalars)
        given |= {name: address for name, (address, _) in self._used.items()}
        return [self._parameter(name, type_, types, given) for name, type_ in program.facts["params"]]

    def _parameter(self, name: str, type_: str, types: Mapping[str, str], given: Mapping[str, Any]) -> Any:
        if map_ := TensorMapType.parse(type_):
            return encode_map(self._call, map_, given)
        own = types.get(name, "*")
        if own.startswith("*"):
            return ctypes.c_uint64(given.get(name, 0))
        if own in SCALARS:
            return SCALARS[own](given[name])
        bits = encode(np.array([given[name]], np.float64), element_named(own))
        return (ctypes.c_uint8 * bits.nbytes).from_buffer_copy(bits.tobytes())

    def _allocated(self, size: int) -> int:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, _ALIGNMENT)))
        return address.value

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            status = getattr(self._library, name)(*arguments)
        except AttributeError:
            raise ToolError(f"the driver has no {name}; it is too old for this kernel") from None
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise ToolError(f"{name} failed: {(text.value or b'unknown error').decode()} ({status})")


class _Event:
    """One of the driver's events, destroyed with its last reference."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if self.handle:
            self._library.cuEventDestroy_v2(self.handle)


class _Loaded(NamedTuple):
    """A kernel in the device's memory."""

    module: ctypes.c_void_p
    function: ctypes.c_void_p
    pointers: Any
    """Pointers to its parameters, as cuLaunchKernel takes them."""
    values: tuple[Any, ...]
    """The parameters, kept alive."""


def _element(type_: str) -> Type:
    return element_named(type_.partition(":")[0].removeprefix("*"))


def _random(element: Type, count: int, random: np.random.Generator) -> np.ndarray:
    """Normal numbers, and small whole ones for integers; as they lie in memory."""
    if not count:
        return np.zeros(1, memory_dtype(element))
    some = min(count, _RANDOM)
    values = (
        random.standard_normal(some)
        if is_float(element)
        else random.integers(0, 2 if str(element) == "i1" else 4, some)
    )
    return np.resize(encode(np.asarray(values, np.float32), element), count)


def _difference(type_: str, expected: np.ndarray, found: np.ndarray) -> str:
    """How two arrays differ, in words; empty where they agree."""
    if np.array_equal(expected.view(np.uint8), found.view(np.uint8)):
        return ""
    step = -(-expected.size // _MAX_COMPARED)
    name, element = type_.partition(":")[0].removeprefix("*"), _element(type_)
    left, right = (decode(array[::step], element).astype(np.float64) for array in (expected, found))
    if not is_float(element):
        wrong = left != right
    else:
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        finite = left[np.isfinite(left)]
        scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 1.0
        with np.errstate(all="ignore"):
            errors = np.where(same, 0.0, np.abs(left - right)) / max(scale, 1e-30)
        wrong = ~(errors <= BOUNDS.get(name, _COARSEST))
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ from those of the default" if wrong.any() else ""
    )
