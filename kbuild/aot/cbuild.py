"""Compiling a package's launcher: one C file to one shared library that any CPython from 3.10 on loads.

The library is linked against the C library alone: Python's functions come from the process, the driver's by dlopen.
"""

from __future__ import annotations

import os
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kbuild.aot import toolchain
from kbuild.errors import ToolError

LIBRARY = "_launcher.abi3.so"
SOURCE = "launcher.c"

_FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra",
    "-fvisibility=hidden", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2",
    "-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,--build-id=none", "-s",
)  # fmt: skip


def compile_command(cc: Sequence[str], output: str, include: str) -> list[str]:
    """The compiler's command line, to be run in the package's directory: relative names keep the library the same everywhere."""
    return [*cc, *_FLAGS, f"-I{include}", SOURCE, "-o", output, "-ldl", "-lpthread"]


def python_headers() -> str:
    """The directory with Python.h; ToolError where there is none."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        raise ToolError(f"Python.h is not in {include}", hint="install Python's headers (python3-dev on Debian and Ubuntu)")
    return include


def build_launcher(package_dir: Path, cc: Sequence[str] = ("cc",)) -> Path:
    """Compile `launcher.c` in a package's directory to `_launcher.abi3.so` beside it, and give that path.

    `cc` is the compiler with arguments that come before all others.
    ToolError where the compiler or Python's headers are missing, or the compiler fails.
    """
    include = python_headers()
    library = package_dir / LIBRARY
    descriptor, temporary = tempfile.mkstemp(suffix=".so", prefix=".launcher-", dir=package_dir)
    os.close(descriptor)
    try:
        toolchain.run(compile_command(cc, Path(temporary).name, include), package_dir)
        os.chmod(temporary, 0o755)
        os.replace(temporary, library)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return library

