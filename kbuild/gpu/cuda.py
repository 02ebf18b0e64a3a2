"""cuda.core and cuda.bindings, and their errors as kbuild's own."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kbuild.errors import ToolError

try:
    from cuda import core
    from cuda.bindings import driver
    from cuda.core import _tensor_map as tensor_map  # Its numbers have no other home.
    from cuda.core import utils
except ImportError as error:
    raise ToolError(
        f"a GPU is spoken to through cuda-core and cuda-bindings, and these are not here ({error})",
        help="install kbuild[gpu]: pip install 'kbuild[gpu]'",
    ) from None

__all__ = ["asked", "asking", "core", "device_of", "driver", "open_driver", "tensor_map", "utils"]

LIBRARY = "libcuda.so.1"
_HELP = "without a GPU there are kbuild tune --dry-run, kbuild run, and the driver that kbuild stand-in makes, for KBUILD_LIBCUDA"
_opened: list[ctypes.CDLL] = []


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
    code, *answers = function(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise _refusal(function.__name__, code)
    return answers[0] if len(answers) == 1 else tuple(answers)


def device_of(address: int) -> int:
    """The ordinal of the device whose memory an address lies in.  Raises `ToolError` where the driver does not know it.

    cuda.bindings has this too, but answers 0 for every device before 12.9.10 and 13.5.
    """
    ordinal = ctypes.c_int()
    library = _opened[0] if _opened else ctypes.CDLL(LIBRARY)
    attribute = int(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    code = library.cuPointerGetAttribute(ctypes.byref(ordinal), attribute, ctypes.c_uint64(address))
    if code:
        raise _refusal("cuPointerGetAttribute", driver.CUresult(code))
    return ordinal.value


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Within it, what the driver refuses to cuda.core is a `ToolError` about `what`."""
    try:
        yield
    except Exception as error:
        name = re.match(r"CUDA_ERROR_\w+", str(error))
        if name is None:
            raise
        raise _refusal(what, getattr(driver.CUresult, name[0])) from None


def _refusal(what: str, code: Any) -> ToolError:
    _, reason = driver.cuGetErrorString(code)
    text = f": {reason.decode(errors='replace')}" if reason else ""
    return ToolError(f"{what} failed: {code.name} ({int(code)}){text}")
