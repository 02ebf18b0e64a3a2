"""Compiling the two shared libraries of a package: the launcher, which any CPython from 3.10 on loads, and the
library for C, which needs no Python.

Their proper parts, `python/launcher.c` and `library/library.c` among the templates, are the same for all packages:
a build compiles them beside the kernels. What a package adds, `launcher_tables.c` and the functions of each library,
needs the facts of all cubins, and so comes last; it is short. Both are linked against the C library alone: Python's
functions come from the process, the driver's by dlopen.
"""

from __future__ import annotations

import json
import os
import re
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kbuild.aot import toolchain
from kbuild.aot.artifact.platforms import this_machine
from kbuild.aot.build import records
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.plan import LAUNCHER, LAUNCHER_RECORD, LIBRARY_CORE
from kbuild.aot.files import templates_directory, write_files
from kbuild.aot.identity import bytes_digest
from kbuild.errors import ToolError

LIBRARY = "_launcher.abi3.so"
TABLES = "launcher_tables.c"
CORES = {"launcher.o": "python/launcher.c", "library.o": "library/library.c"}
"""What is the same for all packages: object files, and their sources among the templates."""

# What is the same for all packages is compiled at -O2, which makes a call of an operator 8 % shorter, and comes from
# the cache; the tables are compiled in every build.
_FLAGS = (
    "-std=gnu11",
    "-O1",
    "-fPIC",
    "-fno-math-errno",  # so that a square root is an instruction, and nothing is asked of libm
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-fstack-protector-strong",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
)
_LINK_FLAGS = ("-shared", "-Wl,-z,relro,-z,now,-z,noexecstack", "-Wl,--build-id=none", "-s")


def python_headers() -> str:
    """The directory with Python.h; ToolError where there is none."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        raise ToolError(
            f"Python.h is not in {include}",
            help="install Python's headers (python3-dev on Debian and Ubuntu)",
        )
    return include


def foreign_headers(machine: str) -> dict[str, bytes]:
    """The headers that those of this machine's Python lack for another machine, by their names in a folder of
    headers.

    Of Python's headers only `pyconfig.h` is made for one machine.  What it says that Py_LIMITED_API depends on, the
    sizes of types, is the same on all of `platforms.MACHINES`.  Debian's is a switch: it includes
    `<aarch64-linux-gnu/python3.11/pyconfig.h>` when compiled for that, which only Debian's packages for aarch64
    have.  There this machine's stands in for it.
    """
    include = Path(python_headers())
    switch = (include / "pyconfig.h").read_text(errors="replace")
    wanted = re.search(rf"<({machine}-linux-gnu/[\w./]+)>", switch)
    own = re.search(rf"<({this_machine()}-linux-gnu/[\w./]+)>", switch)
    if wanted is None or own is None:
        return {}
    return {wanted[1]: f'#include "{include.parent / own[1]}"\n'.encode()}


def core_command(cc: Sequence[str], output: str, headers: str = "") -> list[str]:
    """The command that compiles the proper part of one of the libraries, its output last, whose name says which;
    ToolError where Python's headers are missing.

    `headers` is the folder of the `foreign_headers`, where there are such.
    """
    templates = templates_directory() / "launcher"
    return [
        *cc,
        *_FLAGS,
        "-O2",
        f"-I{python_headers()}",
        *([f"-I{headers}"] if headers else []),
        f"-I{templates}",
        "-c",
        str(templates / CORES[Path(output).name]),
        "-o",
        output,
    ]


def core_commands(cc: Sequence[str], headers: str = "") -> list[list[str]]:
    """The commands of the step that compiles the proper parts of the libraries, whose job is `plan.launcher_job`."""
    return [core_command(cc, output, headers) for output in (LAUNCHER, LIBRARY_CORE)]


def compile_launcher(job: bytes, cache: Cache) -> None:
    """The step of a build, in its directory, that compiles the proper parts of the libraries."""
    found = core_objects(job, cache, Path(LAUNCHER).parent)
    made = {output: found[Path(output).name] for output in (LAUNCHER, LIBRARY_CORE)}
    records.write(Path(), LAUNCHER_RECORD, made, bytes_digest(job))


def core_objects(job: bytes, cache: Cache, folder: Path) -> dict[str, bytes]:
    """The object files of that job, by the names of `CORES`: from the cache, for they are the same for all packages,
    or compiled in `folder`."""
    identity = bytes_digest(job)
    found = cache.get(identity)
    if found is None:
        with tempfile.TemporaryDirectory(prefix=".launcher-", dir=folder) as place:
            made = {name: Path(place, name) for name in CORES}
            for command in json.loads(job)["launcher"]:
                toolchain.run([*command[:-1], str(made[Path(command[-1]).name])], Path())
            found = {name: path.read_bytes() for name, path in made.items()}
        cache.put(identity, found)
    return found


def tables_command(cc: Sequence[str], output: str) -> list[str]:
    """The command that compiles the tables, to be run in the package's directory.

    Relative names keep what is made the same everywhere.
    """
    return [*cc, *_FLAGS, f"-I{templates_directory() / 'launcher'}", "-c", TABLES, "-o", output]


def link_command(cc: Sequence[str], functions: str, objects: Sequence[str], output: str) -> list[str]:
    """The command that compiles the functions of a library and links it, to be run in the package's directory.

    `objects` are the tables and the library's proper part.
    """
    include = f"-I{templates_directory() / 'launcher'}"
    return [*cc, *_FLAGS, *_LINK_FLAGS, include, functions, *objects, "-o", output, "-ldl", "-lpthread"]


def build_launcher(
    package_dir: Path,
    cc: Sequence[str] = ("cc",),
    cores: Path | None = None,
    machine: str = "",
    symbol: str = "",
) -> list[Path]:
    """Make the libraries in a package's directory from the sources there, and give their paths, the launcher's first.

    `cc` is the compiler with arguments that come before all others, `cores` the folder with the object files of what
    is the same for all packages, which are compiled first if there is none, for `machine` if that is another one.
    `symbol` is the package's name in C, by default the directory's.  ToolError where the compiler or Python's headers
    are missing, or the compiler fails.
    """
    libraries = {
        LIBRARY: ("launcher_functions.c", "launcher.o"),
        library_name(symbol or package_dir.name): ("library_functions.c", "library.o"),
    }
    with tempfile.TemporaryDirectory(prefix=".launcher-", dir=package_dir) as folder:
        if cores is None:
            cores, headers = Path(folder).absolute(), foreign_headers(machine) if machine else {}
            write_files({Path(folder, name): data for name, data in headers.items()})
            for name in CORES:
                command = core_command(cc, str(cores / name), str(cores) if headers else "")
                toolchain.run(command, package_dir)
        name = Path(folder).name
        toolchain.run(tables_command(cc, f"{name}/tables.o"), package_dir)
        for library, (functions, core) in libraries.items():
            objects = [f"{name}/tables.o", str((cores / core).absolute())]
            toolchain.run(link_command(cc, functions, objects, f"{name}/{library}"), package_dir)
            os.chmod(Path(folder, library), 0o755)
            os.replace(Path(folder, library), package_dir / library)
    return [package_dir / library for library in libraries]


def library_name(symbol: str) -> str:
    """The file name of the library for C of a package with this name in C."""
    return f"lib{symbol}.so"
