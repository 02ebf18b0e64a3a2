"""The meaning of environment variables; the environment itself is an argument."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kbuild.errors import UsageError


@dataclass(frozen=True)
class Variable:
    """A variable of the environment that something of kbuild's reads."""

    name: str
    doc: str
    also: tuple[str, ...] = ()
    """Names of others, such as Triton's, that mean the same; where several are set, the first of all counts."""
    reader: str = "kbuild"
    """`kbuild`, which stands for the command line and `pip wheel`; `package`, the built one; `stand-in`, the fake
    driver; or `tests`."""


CACHE_DIR, DISABLE_CACHE = "KBUILD_CACHE_DIR", "KBUILD_DISABLE_CACHE"
DUMP, DUMP_DIR = "KBUILD_DUMP", "TRITON_DUMP_DIR"
PASS_DUMP, KERNEL_DUMP = "MLIR_ENABLE_DUMP", "TRITON_KERNEL_DUMP"
DEBUG, STRICT, INTERPRET = "KBUILD_DEBUG", "KBUILD_STRICT", "KBUILD_INTERPRET"
PRINT_TUNING, PTXAS, LIBCUDA = "KBUILD_PRINT_TUNING", "KBUILD_PTXAS", "KBUILD_LIBCUDA"

VARIABLES: tuple[Variable, ...] = (
    Variable(
        CACHE_DIR, "where cubins and verdicts are kept, instead of `kbuild` in XDG_CACHE_HOME or `~/.cache`"
    ),
    Variable(DISABLE_CACHE, "neither read nor write the cache, as `--no-cache`", ("TRITON_ALWAYS_COMPILE",)),
    Variable(PTXAS, "the ptxas to use, instead of that of NVIDIA's wheels", ("TRITON_PTXAS_PATH",)),
    Variable("CUDA_HOME", "a toolkit, whose ptxas is used where no variable names one", ("CUDA_PATH",)),
    Variable("CC", "the C compiler, with its arguments"),
    Variable(
        DUMP,
        "a folder for the IR after each pass, as `compile --dump`; of a build, with a folder for each variant",
    ),
    Variable(
        PASS_DUMP,
        "Triton's: as KBUILD_DUMP, in TRITON_DUMP_DIR; a kernel's name dumps that one alone",
    ),
    Variable(KERNEL_DUMP, "Triton's: as KBUILD_DUMP, in TRITON_DUMP_DIR"),
    Variable(DUMP_DIR, "the folder for the two before, `~/.triton/dump` where it is not set"),
    Variable(DEBUG, "compile assertions and checks of overflow in, as `--debug`", ("TRITON_DEBUG",)),
    Variable(STRICT, "dots that ptxas serializes are errors, as `--strict`"),
    Variable(
        INTERPRET, "`kbuild run` runs the kernel itself in numpy, and not its PTX", ("TRITON_INTERPRET",)
    ),
    Variable(
        PRINT_TUNING,
        "`kbuild tune` says what it tries and what is best, also with `-q`",
        ("TRITON_PRINT_AUTOTUNING",),
    ),
    Variable("MAX_JOBS", "steps and processes at a time, as `-j`"),
    Variable("SOURCE_DATE_EPOCH", "the time that files of a wheel have, in seconds since 1970"),
    Variable("NO_COLOR", "no colours and no bar of progress", ("CI",)),
    Variable("XDG_CACHE_HOME", "where caches are, `~/.cache` where it is not set"),
    Variable("HOME", "where `~` is"),
    Variable("PATH", "where programs are found"),
    Variable("PYTHONPATH", "where modules are found; steps of a build get it"),
    Variable(
        "GLIBC_TUNABLES", "settings of malloc; kbuild sets those that make ptxas faster where it is not set"
    ),
    Variable(
        LIBCUDA,
        "the driver's library, instead of `libcuda.so.1`; for `kbuild tune` as well",
        reader="package",
    ),
    Variable("LD_LIBRARY_PATH", "where the fake driver looks for its own library", reader="stand-in"),
    Variable("KBUILD_TEST_WHEEL", "the wheel that tests/gpu tests", reader="tests"),
    Variable("KBUILD_TEST_WHEEL_SM80", "the same, of PTX for sm_80", reader="tests"),
    Variable(
        "FAKE_CUDA_DEVICES", "the capabilities of the devices that the tests' driver has", reader="tests"
    ),
    Variable("FAKE_CUDA_VERSION", "the version that it reports", reader="tests"),
    Variable("FAKE_CUDA_FAIL", "a function of it that fails, and the code: `cuInit=100`", reader="tests"),
    Variable("FAKE_CUDA_CAPTURING", "whether its streams are being captured", reader="tests"),
)
"""Every variable that is read; docs/environment.md is made from this table."""
_ALSO = {variable.name: variable.also for variable in VARIABLES}
_FALSE = ("", "0", "false", "no", "off")
_LARGE_PAGES = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432"
"""Settings of glibc's malloc, from 2.35 on: its heap grows by 32 MB at a time and asks for pages of 2 MB.  ptxas touches 20 to
60 MB for a tenth of a second: with pages of 4 kB, every seventh of its instructions is one of the kernel's
that brings a page."""


def prepare(environment: MutableMapping[str, str]) -> None:
    """Sets variables that speed up the programs a process starts, unless the user has set them."""
    environment.setdefault("GLIBC_TUNABLES", _LARGE_PAGES)


def names_of(name: str) -> tuple[str, ...]:
    """The names of a variable: its own, then those of others that mean the same."""
    return (name, *_ALSO[name])


def setting(environment: Mapping[str, str], name: str) -> str:
    """The value of a variable, or of the first that means the same; "" where none is set."""
    return next((text for one in names_of(name) if (text := environment.get(one, ""))), "")


def flag(environment: Mapping[str, str], name: str) -> bool:
    """Whether a variable, or the first that means the same, is set to anything but a word for no."""
    return setting(environment, name).lower() not in _FALSE


class Dump(NamedTuple):
    """Where IR is dumped."""

    folder: Path
    only: str = ""
    """The only kernel of which it is; all where empty."""

    def of(self, kernel: str) -> Path | None:
        """The folder for a kernel; None where that is not dumped."""
        return self.folder if self.only in ("", kernel) else None


def dump_of(environment: Mapping[str, str]) -> Dump | None:
    """Where IR is to be dumped; None where no variable asks for it."""
    if folder := environment.get(DUMP):
        return Dump(Path(folder))
    if not flag(environment, PASS_DUMP) and not flag(environment, KERNEL_DUMP):
        return None
    passes = environment.get(PASS_DUMP, "")
    only = passes if flag(environment, PASS_DUMP) and not passes.isdigit() else ""
    only = "" if only.lower() in ("true", "on", "yes") or flag(environment, KERNEL_DUMP) else only
    default = Path(environment.get("HOME", ""), ".triton", "dump")
    return Dump(Path(environment.get(DUMP_DIR) or default), only)


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """KBUILD_CACHE_DIR, or `kbuild` in XDG_CACHE_HOME or ~/.cache; None with KBUILD_DISABLE_CACHE or without
    any of them."""
    if flag(environment, DISABLE_CACHE):
        return None
    if directory := environment.get(CACHE_DIR):
        return Path(directory).absolute()
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "kbuild")
    home = environment.get("HOME", "")
    return Path(home, ".cache", "kbuild") if os.path.isabs(home) else None


def number(environment: Mapping[str, str], name: str) -> int | None:
    """A variable that holds a natural number; None if it is not set, UsageError if it is something else."""
    text = environment.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(f"{name} is {text!r}, expected a natural number of up to 11 digits")
    return int(text)


def epoch(environment: Mapping[str, str]) -> int | None:
    """SOURCE_DATE_EPOCH, seconds since 1970."""
    return number(environment, "SOURCE_DATE_EPOCH")
