"""The headers that NVRTC is given: those of NVIDIA's wheels, and stand-ins for those of a host's C++ library.

NVRTC has no headers of its own. `cuda_fp16.h` and its like come with nvidia-cuda-runtime, parts of them with nvidia-cuda-crt,
and `cuda/std/…` and `cub/…` with nvidia-cuda-cccl, which is searched where a source takes it: with it in the path other headers
of CUDA include much more, and a compilation takes 20 times as long.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from kbuild.errors import ToolError, UsageError

EXTRA = "pip install 'kbuild[cuda]'"
"""What brings all that CUDA C++ takes."""
_WHEELS = {
    "nvidia-cuda-runtime": "cuda_fp16.h",
    "nvidia-cuda-crt": "crt/mma.h",
    "nvidia-cuda-cccl": "cuda/std/cstdint",
}
"""Wheels with headers, and one of each."""
_CCCL = "nvidia-cuda-cccl"
_OF_CCCL = re.compile(r"(?:cuda|cub|thrust|nv|cutlass|cute|cooperative_groups)/|cooperative_groups\.h")
"""Names of headers that are in CCCL, or include some that are."""
_IN_CCCL = (
    *(
        "algorithm",
        "array",
        "atomic",
        "bit",
        "cfloat",
        "complex",
        "concepts",
        "functional",
        "initializer_list",
    ),
    *(
        "iterator",
        "limits",
        "numeric",
        "optional",
        "ratio",
        "span",
        "tuple",
        "type_traits",
        "utility",
        "variant",
    ),
)
"""Headers of C++'s library that `cuda/std` has as well."""

_INTEGERS = {
    f"{prefix}int{kind}{bits}_t": f"{sign} {type_}"
    for bits, type_ in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    for prefix, sign in (("", "signed"), ("u", "unsigned"))
    for kind in ("", "_least", "_fast")
} | {
    f"{prefix}int{kind}_t": f"{sign} long long"
    for prefix, sign in (("", "signed"), ("u", "unsigned"))
    for kind in ("ptr", "max")
}
_LIMITS = "\n".join(
    f"#define {name} {value}"
    for name, value in {
        "CHAR_BIT": "8",
        "SCHAR_MIN": "(-128)",
        "SCHAR_MAX": "127",
        "UCHAR_MAX": "255",
        "CHAR_MIN": "SCHAR_MIN",
        "CHAR_MAX": "SCHAR_MAX",
        "SHRT_MIN": "(-32768)",
        "SHRT_MAX": "32767",
        "USHRT_MAX": "65535",
        "INT_MIN": "(-2147483647 - 1)",
        "INT_MAX": "2147483647",
        "UINT_MAX": "4294967295U",
        "LONG_MAX": "9223372036854775807L",
        "LONG_MIN": "(-LONG_MAX - 1L)",
        "ULONG_MAX": "18446744073709551615UL",
        "LLONG_MAX": "9223372036854775807LL",
        "LLONG_MIN": "(-LLONG_MAX - 1LL)",
        "ULLONG_MAX": "18446744073709551615ULL",
    }.items()
)
_FLOAT = "\n".join(
    f"#define {name} {value}"
    for name, value in {
        "FLT_MAX": "3.402823466e+38F",
        "FLT_MIN": "1.175494351e-38F",
        "FLT_EPSILON": "1.192092896e-07F",
        "FLT_DIG": "6",
        "DBL_MAX": "1.7976931348623158e+308",
        "DBL_MIN": "2.2250738585072014e-308",
        "DBL_EPSILON": "2.2204460492503131e-016",
        "DBL_DIG": "15",
    }.items()
)
_MATH = """\
#ifndef M_PI
#define M_PI 3.14159265358979323846
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#endif
"""
# The same types as cuda/std/cstdint gives them, so that a source may include both.
_STDINT = "".join(
    f"typedef {type_} {name};\nnamespace std {{ using ::{name}; }}\n" for name, type_ in _INTEGERS.items()
)
_TENSOR_MAP = "typedef struct CUtensorMap_st { alignas(64) unsigned long long opaque[16]; } CUtensorMap;\n"
"""As in the driver's cuda.h, which NVRTC cannot read: it declares functions of the host."""


@dataclass(frozen=True)
class HeaderPath:
    """Where the headers for one compilation are."""

    folders: tuple[str, ...]
    """Folders to search, in order."""
    texts: tuple[tuple[str, str], ...]
    """Headers given as text."""


def standard_headers(with_cccl: bool) -> dict[str, str]:
    """The headers of C and C++ that kernels may include, by name, and `cuda.h` with what a kernel takes of it."""
    stdint = "#include <cuda/std/cstdint>\n" if with_cccl else _STDINT
    texts = {"stdint": stdint, "limits": _LIMITS, "float": _FLOAT, "math": _MATH}
    found = {"cuda.h": _TENSOR_MAP}
    # NVRTC declares the functions of these itself.
    for name in ("stdint", "limits", "float", "math", "stddef", "stdlib", "stdio", "string", "assert"):
        found[f"{name}.h"] = found[f"c{name}"] = texts.get(name, "")
    if with_cccl:
        using = "namespace std { using namespace cuda::std; }\n"
        found |= {name: f"#include <cuda/std/{name}>\n{using}" for name in _IN_CCCL}
    return {name: f"#pragma once\n{text}\n" for name, text in found.items()}


def needs_cccl(names: Iterable[str]) -> bool:
    """Whether any of these headers is CCCL's, or takes it."""
    return any(_OF_CCCL.match(name) or name in _IN_CCCL for name in names)


def lacks_cccl(log: str) -> bool:
    """Whether a compilation failed for want of one of CCCL's headers, which a header of CUDA includes."""
    return any(
        needs_cccl([name]) for name in re.findall(r'(?:cannot|could not) open source file "([^"]+)"', log)
    )


def header_path(include: Iterable[str], with_cccl: bool, root: str = "") -> HeaderPath:
    """Where the headers are, with those of CCCL or without.

    `include` are folders of the manifest, below `root`, or in wheels: `nvidia-cutlass:cutlass_library/source/include`.
    Raises `UsageError` for a folder that is not there, `ToolError` where a wheel of NVIDIA's is missing.
    """
    own = [include_folder(one, root) for one in include]
    wheels = [wheel_folder(name) for name in _WHEELS if with_cccl or name != _CCCL]
    return HeaderPath(tuple(dict.fromkeys([*own, *wheels])), tuple(standard_headers(with_cccl).items()))


def include_folder(entry: str, root: str = "") -> str:
    """The folder of an entry of `include`.  Raises `UsageError` where there is none."""
    wheel, _, inner = entry.rpartition(":")
    folder = os.path.join(root, inner)
    if wheel:
        try:
            folder = str(metadata.distribution(wheel).locate_file(inner))
        except metadata.PackageNotFoundError:
            raise UsageError(
                f"include {entry}: {wheel} is not installed", help=f"pip install {wheel}"
            ) from None
    if not os.path.isdir(folder):
        raise UsageError(f"include {entry}: there is no folder {inner}{f' in {wheel}' if wheel else ''}")
    return folder


@lru_cache(maxsize=8)
def wheel_folder(name: str) -> str:
    """The folder of a wheel's headers.  Raises `ToolError` where it is not installed."""
    known = _WHEELS[name]
    for folder in _candidates(name):
        if (folder / known).is_file():
            return str(folder)
    raise ToolError(f"the headers of CUDA C++ are missing: {name} is not installed", help=EXTRA)


def _candidates(name: str) -> Iterator[Path]:
    """The folders in which a wheel may have its headers."""
    try:
        files = metadata.distribution(name).files or ()
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.as_posix().endswith(_WHEELS[name]):
            yield Path(os.path.abspath(str(file.locate()).removesuffix(_WHEELS[name])))


def versions(include: Iterable[str] = ()) -> dict[str, str]:
    """The versions of NVRTC, of the wheels with headers, and of those that `include` names; empty for one that is not
    installed."""
    names = ["nvidia-cuda-nvrtc", *_WHEELS]
    names += [wheel for entry in include for wheel, colon, _ in [entry.rpartition(":")] if colon]
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
