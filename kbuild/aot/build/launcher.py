"""Compiling a package's launcher to one shared library that any CPython from 3.10 on loads.

The launcher proper, `launcher.c` among the templates, is the same for all packages: a build compiles it
beside the kernels. What a package adds, `launcher_tables.c`, needs the facts of all cubins, and so comes
last; it is short. The library is linked against the C library alone: Python's functions come from the
process, the driver's by dlopen.
"""

from __future__ import annotations

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
from kbuild.aot.build.plan import LAUNCHER, LAUNCHER_RECORD
from kbuild.aot.files import templates_directory, write_files
from kbuild.aot.identity import bytes_digest
from kbuild.errors import ToolError

LIBRARY = "_launcher.abi3.so"
TABLES = "launcher_tables.c"
FUNCTIONS = "launcher_functions.c"

# The launcher proper is compiled at -O2, which makes a call of an operator 8 % shorter, and comes from the cache; the
# tables are compiled in every build.
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
    """The command that compiles the launcher proper, its output last; ToolError where Python's headers are
    missing.

    `headers` is the folder of the `foreign_headers`, where there are such.
    """
    return [
        *cc,
        *_FLAGS,
        "-O2",
        f"-I{python_headers()}",
        *([f"-I{headers}"] if headers else []),
        f"-I{templates_directory() / 'launcher'}",
        "-c",
        str(templates_directory() / "launcher/python/launcher.c"),
        "-o",
        output,
    ]


def compile_launcher(job: bytes, command: Sequence[str], cache: Cache) -> None:
    """The step of a build, in its directory, that compiles the launcher proper by a command of `core_command`,
    or takes it from the cache: it is the same for all packages."""
    identity = bytes_digest(job)
    found = cache.get(identity)
    if found is None:
        with tempfile.TemporaryDirectory(prefix=".launcher-", dir=Path(LAUNCHER).parent) as folder:
            made = Path(folder, "launcher.o")
            toolchain.run([*command[:-1], str(made)], Path())
            found = {"launcher.o": made.read_bytes()}
        cache.put(identity, found)
    records.write(Path(), LAUNCHER_RECORD, {LAUNCHER: found["launcher.o"]}, identity)


def link_command(cc: Sequence[str], core: str, output: str) -> list[str]:
    """The command that compiles the tables and links the library, to be run in the package's directory.

    Relative names keep the library the same everywhere; `core` is the launcher's object file.
    """
    return [
        *cc,
        *_FLAGS,
        *_LINK_FLAGS,
        f"-I{templates_directory() / 'launcher'}",
        TABLES,
        FUNCTIONS,
        core,
        "-o",
        output,
        "-ldl",
        "-lpthread",
    ]


def build_launcher(
    package_dir: Path, cc: Sequence[str] = ("cc",), core: Path | None = None, machine: str = ""
) -> Path:
    """Make `_launcher.abi3.so` in a package's directory from the `launcher_tables.c` there, and give its
    path.

    `cc` is the compiler with arguments that come before all others, `core` the launcher's object file, which
    is compiled first if there is none, for `machine` if that is another one.  ToolError where the compiler or
    Python's headers are missing, or the compiler fails.
    """
    library = package_dir / LIBRARY
    with tempfile.TemporaryDirectory(prefix=".launcher-", dir=package_dir) as folder:
        if core is None:
            core, headers = Path(folder, "launcher.o").absolute(), foreign_headers(machine) if machine else {}
            write_files({Path(folder, name): data for name, data in headers.items()})
            toolchain.run(core_command(cc, str(core), str(core.parent) if headers else ""), package_dir)
        made = Path(folder, LIBRARY)
        toolchain.run(link_command(cc, str(core.absolute()), f"{made.parent.name}/{LIBRARY}"), package_dir)
        os.chmod(made, 0o755)
        os.replace(made, library)
    return library
