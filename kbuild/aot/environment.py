"""The meaning of environment variables; the environment itself is an argument."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kbuild.compiler.backend.large_pages import TUNABLES, with_large_pages
from kbuild.errors import UsageError


@dataclass(frozen=True)
class Variable:
    """A variable of the environment that something of kbuild's reads."""

    name: str
    doc: str
    also: tuple[str, ...] = ()
    """Names of others, such as Triton's, that mean the same; where several are set, the first of all counts."""
    reader: str = "kbuild"
    """`kbuild`, which stands for the command line and `pip wheel`; `package`, the built one; `capture`, processes that
    `kbuild capture` runs; `stand-in`, the fake driver; or `tests`."""


CACHE_DIR, DISABLE_CACHE = "KBUILD_CACHE_DIR", "KBUILD_DISABLE_CACHE"
DUMP, DUMP_DIR = "KBUILD_DUMP", "TRITON_DUMP_DIR"
PASS_DUMP, KERNEL_DUMP = "MLIR_ENABLE_DUMP", "TRITON_KERNEL_DUMP"
DEBUG, STRICT, INTERPRET = "KBUILD_DEBUG", "KBUILD_STRICT", "KBUILD_INTERPRET"
CACHE_SIZE, CACHE_URL, CACHE_MODE = "KBUILD_CACHE_SIZE", "KBUILD_CACHE_URL", "KBUILD_CACHE_MODE"
CACHE_TIMEOUT, REMOTE_TIMEOUT = "KBUILD_CACHE_TIMEOUT", "KBUILD_REMOTE_TIMEOUT"
REMOTE_URL, REMOTE_JOBS, REMOTE_ONLY = "KBUILD_REMOTE_URL", "KBUILD_REMOTE_JOBS", "KBUILD_REMOTE_ONLY"
REMOTE_PYTHON, REMOTE_PLATFORM = "KBUILD_REMOTE_PYTHON", "KBUILD_REMOTE_PLATFORM"
REMOTE_TOKEN, REMOTE_HEADERS = "KBUILD_REMOTE_TOKEN", "KBUILD_REMOTE_HEADERS"
CAPTURE, CAPTURE_DEVICE, CAPTURE_HOME = "KBUILD_CAPTURE", "KBUILD_CAPTURE_DEVICE", "KBUILD_CAPTURE_HOME"
PRINT_TUNING, PTXAS, LIBCUDA = "KBUILD_PRINT_TUNING", "KBUILD_PTXAS", "KBUILD_LIBCUDA"

VARIABLES: tuple[Variable, ...] = (
    Variable(
        CACHE_DIR, "where cubins and verdicts are kept, instead of `kbuild` in XDG_CACHE_HOME or `~/.cache`"
    ),
    Variable(DISABLE_CACHE, "neither read nor write the cache, as `--no-cache`", ("TRITON_ALWAYS_COMPILE",)),
    Variable(CACHE_SIZE, "bytes that the cache may have, as `500M` or `4G` (the default)"),
    Variable(CACHE_URL, "a cache that machines share, as `--cache`"),
    Variable(CACHE_MODE, "`read-write` (the default) or `read-only`, which is as `--cache-read-only`"),
    Variable(CACHE_TIMEOUT, "seconds that a request to it may take, repetitions included (10)"),
    Variable(REMOTE_URL, "a service that executes steps, as `--remote`"),
    Variable(REMOTE_JOBS, "steps that it executes at a time, as `--remote-jobs` (16)"),
    Variable(REMOTE_ONLY, "compile nothing here as long as it works, as `--remote-only`"),
    Variable(REMOTE_TIMEOUT, "seconds that a step may take there, waiting included (600)"),
    Variable(REMOTE_PYTHON, "Python on its machines (`python3`)"),
    Variable(REMOTE_PLATFORM, "properties of its machines, as `OSFamily=linux,ISA=x86-64`"),
    Variable(REMOTE_TOKEN, "sent to the shared cache and to the service, as `Authorization: Bearer`"),
    Variable(REMOTE_HEADERS, "headers for both, as `x-api-key=…,x-team=kernels`"),
    Variable("NETRC", "the file with credentials for a shared cache, instead of `~/.netrc`"),
    Variable("HTTPS_PROXY", "the proxy for a shared cache", ("HTTP_PROXY", "ALL_PROXY")),
    Variable("NO_PROXY", "hosts that are reached without it"),
    Variable("AWS_REGION", "the region of a shared cache in S3", ("AWS_DEFAULT_REGION",)),
    Variable("AWS_ENDPOINT_URL_S3", "where S3 is, if it is not Amazon's", ("AWS_ENDPOINT_URL",)),
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
    Variable(TUNABLES, "settings of malloc; kbuild sets those that make ptxas faster where it is not set"),
    Variable(
        LIBCUDA,
        "the driver's library, instead of `libcuda.so.1`; for `kbuild tune` as well",
        reader="package",
    ),
    Variable(
        "KBUILD_RECORD",
        "the folder into which `install()` has calls recorded that the package does not answer",
        reader="package",
    ),
    Variable(CAPTURE, "the folder into which the process records what it asks Triton for", reader="capture"),
    Variable(CAPTURE_DEVICE, "an architecture: nothing is compiled or run, as `--device`", reader="capture"),
    Variable(CAPTURE_HOME, "the folder with the kbuild that captures", reader="capture"),
    Variable("LD_LIBRARY_PATH", "where the fake driver looks for its own library", reader="stand-in"),
    Variable(
        "KBUILD_CHROMIUM",
        "the browser that the tests of `kbuild report` look at its page with",
        reader="tests",
    ),
    Variable("KBUILD_TEST_WHEEL", "the wheel that tests/gpu tests", reader="tests"),
    Variable("KBUILD_TEST_WHEEL_SM80", "the same, of PTX for sm_80", reader="tests"),
    Variable("STAND_IN_TRITON", "the version of Triton that the tests' stand-in of it is", reader="tests"),
    Variable("STAND_IN_GPU", "whether that finds a GPU", reader="tests"),
    Variable("STAND_IN_FASTEST", "which of its configurations a tuner of that chooses", reader="tests"),
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


_MODES = {"": False, "read-write": False, "read-only": True}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Remote:
    """What a build shares with other machines: a cache, and a service that executes its steps."""

    cache: str = ""
    """URL of the shared cache, KBUILD_CACHE_URL; empty for none."""
    is_read_only: bool = False
    """Whether the shared cache is only read: KBUILD_CACHE_MODE is `read-only` rather than `read-write`."""
    timeout: float = 10
    """Seconds that one request may take, retries included: KBUILD_CACHE_TIMEOUT."""
    engine: str = ""
    """URL of the service that executes steps, KBUILD_REMOTE_URL; empty for none."""
    jobs: int = 16
    """Steps that it executes at a time: KBUILD_REMOTE_JOBS."""
    is_only: bool = False
    """Whether steps run there alone as long as it works, and none here: KBUILD_REMOTE_ONLY."""
    job_timeout: float = 600
    """Seconds that a step may take there, waiting included: KBUILD_REMOTE_TIMEOUT."""
    python: str = "python3"
    """Python on its machines: KBUILD_REMOTE_PYTHON."""
    platform: tuple[tuple[str, str], ...] = ()
    """Properties of the machines that may execute steps: KBUILD_REMOTE_PLATFORM, as `OSFamily=linux,ISA=x86-64`."""
    token: str = field(default="", repr=False)
    """Sent to both as `Authorization: Bearer`: KBUILD_REMOTE_TOKEN."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent to both: KBUILD_REMOTE_HEADERS, as `x-api-key=…,x-team=kernels`."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Where libraries look for proxies, ~/.netrc and other credentials."""


def prepare(environment: MutableMapping[str, str]) -> None:
    """Sets variables that speed up the programs a process starts, unless the user has set them."""
    environment.update(with_large_pages(environment))


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


def cache_capacity(environment: Mapping[str, str], default: int) -> int:
    """KBUILD_CACHE_SIZE, the bytes that the cache on this machine may have."""
    text = environment.get(CACHE_SIZE, "")
    return size(CACHE_SIZE, text) if text else default


def size(what: str, text: str) -> int:
    """A number of bytes, as `500M` or `4G`; UsageError for anything else."""
    digits, unit = (text[:-1], text[-1:].upper()) if text[-1:].isalpha() else (text, "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16 and unit in _UNITS):
        raise UsageError(f"{what} is {text!r}, expected a number of bytes such as 500M or 4G")
    return int(digits) * _UNITS[unit]


def remote(
    environment: Mapping[str, str],
    cache: str = "",
    engine: str = "",
    jobs: int = 0,
    is_only: bool = False,
    is_read_only: bool = False,
) -> Remote | None:
    """The shared cache and the service that executes steps; what the command line says of them goes before
    the variables.  None where there is neither, UsageError where a variable cannot be read."""
    cache = cache or environment.get(CACHE_URL, "")
    engine = engine or environment.get(REMOTE_URL, "")
    if flag(environment, DISABLE_CACHE):
        cache = ""
    if not cache and not engine:
        return None
    mode = environment.get(CACHE_MODE, "")
    if mode not in _MODES:
        raise UsageError(f"KBUILD_CACHE_MODE is {mode!r}, expected read-only or read-write")
    return Remote(
        cache=cache,
        is_read_only=is_read_only or _MODES[mode],
        timeout=number(environment, CACHE_TIMEOUT) or Remote.timeout,
        engine=engine,
        jobs=jobs or number(environment, REMOTE_JOBS) or Remote.jobs,
        is_only=is_only or flag(environment, REMOTE_ONLY),
        job_timeout=number(environment, REMOTE_TIMEOUT) or Remote.job_timeout,
        python=environment.get(REMOTE_PYTHON) or Remote.python,
        platform=_pairs(environment, REMOTE_PLATFORM),
        token=environment.get(REMOTE_TOKEN, "").strip(),
        headers=_pairs(environment, REMOTE_HEADERS),
        environment=environment,
    )


def _pairs(environment: Mapping[str, str], name: str) -> tuple[tuple[str, str], ...]:
    """A variable that holds `name=value,...`."""
    words = [word.strip().partition("=") for word in environment.get(name, "").split(",") if word.strip()]
    for key, equals, _ in words:
        if not key or not equals:
            raise UsageError(f"{name} is not of the form name=value,name=value")
    return tuple((key, value) for key, _, value in words)


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
