"""The calls of NVRTC, by `cuda.bindings`: a text in, PTX and messages out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.cuda.headers import EXTRA
from kbuild.errors import ToolError


@dataclass(frozen=True)
class NvrtcResult:
    """The outcome of one compilation."""

    log: str
    """What the compiler said."""
    ptx: str | None
    """None where it failed."""
    names: tuple[str, ...] = ()
    """The symbols of the expressions, in their order."""


def run_nvrtc(
    text: str, file: str, flags: Sequence[str], headers: Mapping[str, str], expressions: Sequence[str]
) -> NvrtcResult:
    """Compile a text, which messages call `file`.  `headers` are given as text, by name; `expressions` name functions
    and variables whose symbols are wanted.  Raises `ToolError` where NVRTC is not installed or does not run."""
    nvrtc = _library()
    names = [name.encode() for name in headers]
    texts = [header.encode() for header in headers.values()]
    program = _called(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), file.encode(), len(names), texts, names))
    try:
        for expression in expressions:
            _called(nvrtc, nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if not log.strip():
                raise ToolError(f"NVRTC failed: {_words(nvrtc, code)}")
            return NvrtcResult(log, None)
        symbols = tuple(
            _called(nvrtc, nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
            for expression in expressions
        )
        return NvrtcResult(log, _text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX), symbols)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def nvrtc_version() -> str:
    """The version of the library: `13.5`.  Raises `ToolError` as `run_nvrtc`."""
    nvrtc = _library()
    code, major, minor = nvrtc.nvrtcVersion()
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolError(f"NVRTC reports no version: {_words(nvrtc, code)}")
    return f"{major}.{minor}"


def _library() -> Any:
    """The bindings, with the library loaded."""
    try:
        from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]  # Here, for only kernels in CUDA C++ need it.
    except ImportError:
        raise ToolError(
            "kernels in CUDA C++ are compiled by NVRTC, which is not installed", help=EXTRA
        ) from None
    try:
        nvrtc.nvrtcVersion()
    except Exception as error:  # Which, depends on the version of the bindings: the library is found late.
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolError(
            f"kernels in CUDA C++ are compiled by NVRTC, whose library was not found: {said}", help=EXTRA
        ) from None
    return nvrtc


def _called(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """The value of a call.  Raises `ToolError` for its error code."""
    code, *values = result
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolError(f"NVRTC failed: {_words(nvrtc, code)}")
    return values[0] if values else None


def _words(nvrtc: Any, code: Any) -> str:
    found = nvrtc.nvrtcGetErrorString(code)[1]
    return found.decode() if isinstance(found, bytes) else str(code)


def _text(nvrtc: Any, program: Any, size: Any, read: Any) -> str:
    """A text that NVRTC writes into memory that it is given, without the zero at its end."""
    room = b" " * _called(nvrtc, size(program))
    _called(nvrtc, read(program, room))
    return room.rstrip(b"\0").decode(errors="replace")
