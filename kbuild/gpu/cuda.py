"""cuda.core and cuda.bindings, and their errors as kbuild's own."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kbuild.errors import ToolError

try:
    from cuda import core
    from cuda.bindings import driver
    from cuda.core import utils
except ImportError as error:
    raise ToolError(
        f"a GPU is spoken to through cuda-core and cuda-bindings, and these are not here ({error})",
        help="install kbuild[gpu]: pip install 'kbuild[gpu]'",
    ) from None

__all__ = [
    "answer",
    "asked",
    "asking",
    "core",
    "device_of",
    "driver",
    "entry_point",
    "open_driver",
    "reaches",
    "refusal",
    "utils",
]

LIBRARY = "libcuda.so.1"
_HELP = "without a GPU there are kbuild tune --dry-run, kbuild run, and the driver that kbuild stand-in makes, for KBUILD_LIBCUDA"
_SUCCESS = driver.CUresult.CUDA_SUCCESS
_ORDINAL, _ADDRESS = (
    int(getattr(driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}"))
    for name in ("DEVICE_ORDINAL", "DEVICE_POINTER")
)
_opened: list[ctypes.CDLL] = []


@functools.cache
def open_driver(library: str | None = None) -> None:
    """Initialize the driver: that of the machine, or the library at a path, which is then the process's.

    Raises `ToolError` where there is no driver, or none that finds a GPU.
    """
    if library and not _opened:
        # cuda.bindings asks the loader for libcuda.so.1, and gets a library of that name which is there already.
        try:
            _opened.append(ctypes.CDLL(library))
        except OSError as error:
            why = str(error).removeprefix(f"{library}: ")
            raise ToolError(f"no NVIDIA driver: {library} was not found ({why})", help=_HELP) from None
    try:
        asked(driver.cuInit, 0)
    except ToolError:
        raise
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolError(
            f"no NVIDIA driver: {LIBRARY} was not found, or is too old ({text})",
            help=_HELP,
        ) from None


def asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of cuda.bindings answers.  Raises `ToolError` where it refuses."""
    return answer(function.__name__, function(*arguments))


def answer(what: str, answered: tuple[Any, ...]) -> Any:
    """What a function of cuda.bindings has answered.  Raises `ToolError` about `what` where it refused."""
    if answered[0] != _SUCCESS:
        raise refusal(what, answered[0])
    return answered[1] if len(answered) == 2 else answered[1:]


def device_of(address: int) -> int:
    """The ordinal of the device whose memory an address lies in.  Raises `ToolError` where the driver does not know it.

    cuda.bindings has this too, but answers 0 for every device before 12.9.10 and 13.5.
    """
    ordinal = ctypes.c_int()
    code = _attributes()(ctypes.byref(ordinal), _ORDINAL, address)
    if code:
        raise refusal("cuPointerGetAttribute", code)
    return ordinal.value


def reaches(address: int) -> bool:
    """Whether kernels in the current context reach the memory at an address."""
    return _attributes()(ctypes.byref(ctypes.c_uint64()), _ADDRESS, address) == 0


@functools.cache
def _attributes() -> Callable[..., int]:
    return entry_point("cuPointerGetAttribute", ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)


def entry_point(name: str, *types: Any) -> Callable[..., int]:
    """A function of the driver, which is open, with parameters of types of ctypes, where that of cuda.bindings will not do.
    Raises `ToolError` where the driver is too old."""
    function = getattr(_opened[0] if _opened else ctypes.CDLL(LIBRARY), name, None)
    if function is None:
        raise ToolError(f"the driver is too old: it has no {name}")
    function.argtypes = types
    return function


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Within it, what the driver refuses to cuda.core is a `ToolError` about `what`."""
    try:
        yield
    except Exception as error:
        name = re.match(r"CUDA_ERROR_\w+", str(error))
        if name is None:
            raise
        raise refusal(what, getattr(driver.CUresult, name[0])) from None


def refusal(what: str, code: int) -> ToolError:
    """The error of what the driver has answered, which is not that it succeeded."""
    result = driver.CUresult(code)
    _, reason = driver.cuGetErrorString(result)
    text = f": {reason.decode(errors='replace')}" if reason else ""
    return ToolError(f"{what} failed: {result.name} ({int(result)}){text}")
