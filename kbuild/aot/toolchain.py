"""The external programs that a build runs, and where they were found: the only module of a build that looks at
the machine.

The environment is an argument; nothing here reads it directly.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.aot.environment import PTXAS, names_of, setting
from kbuild.compiler.backend import ptxas_wheels
from kbuild.errors import ToolError

if TYPE_CHECKING:
    from kbuild.aot.artifact.platforms import Platform


@dataclass(frozen=True)
class Tool:
    """A program, or a library that counts as one."""

    name: str
    """Its name in messages."""
    path: str
    """Where it is."""
    origin: str
    """How it was found: an environment variable, a package, or PATH."""
    arguments: tuple[str, ...] = ()
    """Arguments that come before all others, as in CC="ccache gcc"."""


def find_ptxas(environment: Mapping[str, str], series: str = "", min_driver: int = 0) -> Tool:
    """ptxas: of KBUILD_PTXAS, TRITON_PTXAS_PATH or CUDA_HOME if set, otherwise of NVIDIA's wheels.

    `series` and `min_driver` are what a manifest asks for: a version, and code that drivers load from that
    branch on. Raises `ToolError` where there is none, or another one than that.
    """
    for variable in names_of(PTXAS):
        if path := environment.get(variable, ""):
            if not _is_program(path):
                raise ToolError(
                    f"{variable} is {path}, which is not a program",
                    help="unset it to use that of NVIDIA's wheels",
                )
            _require_fit(variable, path, series, min_driver)
            return Tool("ptxas", os.path.abspath(path), variable)
    for variable in names_of("CUDA_HOME"):
        path = os.path.join(environment.get(variable, ""), "bin", "ptxas")
        if environment.get(variable) and _is_program(path):
            _require_fit(variable, path, series, min_driver)
            return Tool("ptxas", path, variable)
    chosen = ptxas_wheels.choose(installed_ptxas(), series, min_driver)
    return Tool("ptxas", chosen.path, f"nvidia-cuda-nvcc {chosen.name}")


def ptxas_of_code(environment: Mapping[str, str], series: str = "", min_driver: int = 0) -> str | None:
    """The ptxas that PTX is made for, which need not be installed: None stands for the preferred version,
    where none is found or requested.  Other arguments and errors are those of `find_ptxas`."""
    try:
        return find_ptxas(environment, series, min_driver).path
    except ToolError:
        if series or min_driver or setting(environment, PTXAS):
            raise
        return None


def installed_ptxas() -> list[ptxas_wheels.Installed]:
    """Every ptxas of NVIDIA's wheels, the newest first."""
    return ptxas_wheels.installed(_ptxas_version)


def oldest_driver(ptxas: Tool) -> int:
    """The branch of drivers from which on the cubins of a ptxas run."""
    return ptxas_wheels.driver_of(_ptxas_version(ptxas.path))


def _ptxas_version(path: str) -> str:
    """The version that a ptxas reports."""
    from kbuild.compiler.backend.cubin import ptxas_version  # Rarely needed, and it takes a process.

    return ptxas_version(path)


def _require_fit(variable: str, path: str, series: str, min_driver: int) -> None:
    """Raise `ToolError` unless the ptxas that a variable names is one that the manifest asks for."""
    if not series and not min_driver:
        return
    version = _ptxas_version(path)
    advice = f"unset {variable}, or change the manifest"
    if series and not ptxas_wheels.is_of(ptxas_wheels.parsed(version), series):
        raise ToolError(
            f"package.ptxas asks for ptxas {series}, and {variable} is {path}, {version}", help=advice
        )
    needed = ptxas_wheels.driver_of(version)
    if min_driver and needed > min_driver:
        raise ToolError(
            f"package.min_driver is {min_driver}, and {variable} is {path}, {version}; what that makes needs a driver {needed}",
            help=advice,
        )


def find_ninja(environment: Mapping[str, str]) -> Tool:
    """ninja: that of the ninja package, otherwise that on PATH."""
    spec = importlib.util.find_spec("ninja")
    if spec is not None and spec.origin is not None:
        # Beside the interpreter, in the package's own bin directory, or where `pip install --target` puts it.
        package = Path(spec.origin).parent
        for directory in (Path(sys.executable).parent, package / "data" / "bin", package.parent / "bin"):
            if _is_program(directory / "ninja"):
                return Tool("ninja", str(directory / "ninja"), "ninja package")
    if path := shutil.which("ninja", path=environment.get("PATH")):
        return Tool("ninja", path, "PATH")
    raise ToolError("ninja was not found", help="pip install ninja")


def find_cc(environment: Mapping[str, str], platform: Platform | None = None) -> Tool:
    """The C compiler: CC if set, otherwise cc, gcc or clang on PATH.

    For a platform of another machine than this: CC if set, otherwise a gcc for that machine on PATH, or zig of the
    ziglang package.  ToolError where there is none.
    """
    path = environment.get("PATH")
    if words := shlex.split(environment.get("CC", "")):
        if program := shutil.which(words[0], path=path):
            return Tool("cc", program, "CC", tuple(words[1:]))
        raise ToolError(f"CC is {words[0]}, which is not a program")
    if platform is not None and platform.is_foreign:
        gcc = f"{platform.machine}-linux-gnu-gcc"
        if program := shutil.which(gcc, path=path):
            return Tool("cc", program, "PATH")
        if zig := _zig():
            return Tool("cc", zig, "ziglang package", ("cc", "-target", platform.zig_target))
        raise ToolError(
            f"no C compiler for {platform.machine} was found; the package's launcher needs one",
            help=f"pip install ziglang, or set CC to a cross compiler such as {gcc}",
        )
    for name in ("cc", "gcc", "clang"):
        if program := shutil.which(name, path=path):
            return Tool("cc", program, "PATH")
    raise ToolError(
        "no C compiler was found; the package's launcher needs one",
        help="install gcc or clang, or set CC",
    )


def _zig() -> str | None:
    """The program of the ziglang package, if that is installed."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).with_name("zig")
    return str(program) if _is_program(program) else None


def find_llvm() -> Tool:
    """The library with LLVM, in the llvmlite package, which is found without importing it."""
    from kbuild.compiler.backend.llvm_library import library_path  # Not needed to look for ptxas.

    return Tool("llvmlite", str(library_path()), "llvmlite package")


def nvrtc_version() -> str:
    """The version of NVRTC, which compiles CUDA C++.  Raises ToolError where it is missing."""
    from kbuild.compiler.cuda import nvrtc  # Builds of other kernels do without.

    return nvrtc.nvrtc_version()


def find_nvdisasm(environment: Mapping[str, str]) -> Tool | None:
    """nvdisasm, which only pictures of code need: that of NVIDIA's wheel, beside the ptxas that CUDA_HOME or PATH have,
    or None."""
    for entry in sys.path:
        for program in sorted(Path(entry or ".", "nvidia").glob("*/bin/nvdisasm"), reverse=True):
            if _is_program(program):
                return Tool("nvdisasm", str(program), "nvidia-cuda-nvdisasm")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        path = os.path.join(environment.get(variable, ""), "bin", "nvdisasm")
        if environment.get(variable) and _is_program(path):
            return Tool("nvdisasm", path, variable)
    if path := shutil.which("nvdisasm", path=environment.get("PATH")):
        return Tool("nvdisasm", path, "PATH")
    return None


def disassembled(nvdisasm: str, cubin: Path, timeout: float = 120) -> str:
    """The machine code of a cubin as text, with the lines of PTX that it comes from; empty where the program fails, as
    an old one does for a new architecture."""
    command = [nvdisasm, "-gp", "-c", str(cubin)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def version(tool: Tool) -> str:
    """The last line with a version that the program prints for `--version`; the error, in brackets, if it
    cannot run."""
    command = [tool.path, *tool.arguments, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    if done.returncode != 0 or not lines:
        return f"(exit code {done.returncode})"
    return next((line for line in lines if "release" in line), lines[0])


def compiler_version(command: Sequence[str]) -> tuple[str, str]:
    """The name and version of the C compiler that a command begins with: `gcc` and `12.2.0`, however it is called;
    of one that is neither that nor clang its own name, and the line that it prints."""
    text = version(Tool("cc", command[0], "", tuple(command[1:])))
    if found := re.search(r"\bclang version (\S+)", text):
        return "clang", found[1]
    if found := re.match(r"\S+ \(.*\) (\d[\w.]*)", text):
        return "gcc", found[1]
    return os.path.basename(command[0]), text


def llvm_versions() -> dict[str, str]:
    """The versions of llvmlite, and of the LLVM in it."""
    from importlib import metadata  # With email it takes a hundredth of a second.

    from kbuild.compiler.backend.llvm_library import llvm_version  # As above.

    return {"llvmlite": metadata.version("llvmlite"), "LLVM": llvm_version()}


def run(command: Sequence[str], directory: Path, timeout: float = 300) -> None:
    """Runs a program in a directory; ToolError with the end of its messages if it fails, or takes more than
    `timeout` seconds."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise ToolError(
            f"{command[0]} was not found", help="install it, or set the variable that names it"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{command[0]} did not run: {error}") from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        where = f" in {directory}" if directory != Path() else ""
        said = f":\n{output[-4000:]}" if output else " and said nothing"
        raise ToolError(f"{command[0]} failed with exit code {done.returncode}{where}{said}")


def _is_program(path: str | Path) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
