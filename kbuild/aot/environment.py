"""The meaning of environment variables; the environment itself is an argument."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.errors import UsageError

STRICT = "KBUILD_STRICT"
"""Says that dots which ptxas serializes are errors, as `--strict` does."""
_FALSE = ("", "0", "false", "no", "off")
_LARGE_PAGES = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432"
"""Settings of glibc's malloc, from 2.35 on: its heap grows by 32 MB at a time and asks for pages of 2 MB.  ptxas touches 20 to
60 MB for a tenth of a second: with pages of 4 kB, every seventh of its instructions is one of the kernel's
that brings a page."""


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
    environment.setdefault("GLIBC_TUNABLES", _LARGE_PAGES)


def flag(environment: Mapping[str, str], name: str) -> bool:
    """Whether a variable is set to anything but a word for no."""
    return environment.get(name, "").lower() not in _FALSE


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """KBUILD_CACHE_DIR, or `kbuild` in XDG_CACHE_HOME or ~/.cache; None with KBUILD_DISABLE_CACHE or without
    any of them."""
    if flag(environment, "KBUILD_DISABLE_CACHE"):
        return None
    if directory := environment.get("KBUILD_CACHE_DIR"):
        return Path(directory).absolute()
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "kbuild")
    home = environment.get("HOME", "")
    return Path(home, ".cache", "kbuild") if os.path.isabs(home) else None


def cache_capacity(environment: Mapping[str, str], default: int) -> int:
    """KBUILD_CACHE_SIZE, the bytes that the cache on this machine may have."""
    text = environment.get("KBUILD_CACHE_SIZE", "")
    return size("KBUILD_CACHE_SIZE", text) if text else default


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
    cache = cache or environment.get("KBUILD_CACHE_URL", "")
    engine = engine or environment.get("KBUILD_REMOTE_URL", "")
    if flag(environment, "KBUILD_DISABLE_CACHE"):
        cache = ""
    if not cache and not engine:
        return None
    mode = environment.get("KBUILD_CACHE_MODE", "")
    if mode not in _MODES:
        raise UsageError(f"KBUILD_CACHE_MODE is {mode!r}, expected read-only or read-write")
    return Remote(
        cache=cache,
        is_read_only=is_read_only or _MODES[mode],
        timeout=number(environment, "KBUILD_CACHE_TIMEOUT") or Remote.timeout,
        engine=engine,
        jobs=jobs or number(environment, "KBUILD_REMOTE_JOBS") or Remote.jobs,
        is_only=is_only or flag(environment, "KBUILD_REMOTE_ONLY"),
        job_timeout=number(environment, "KBUILD_REMOTE_TIMEOUT") or Remote.job_timeout,
        python=environment.get("KBUILD_REMOTE_PYTHON") or Remote.python,
        platform=_pairs(environment, "KBUILD_REMOTE_PLATFORM"),
        token=environment.get("KBUILD_REMOTE_TOKEN", "").strip(),
        headers=_pairs(environment, "KBUILD_REMOTE_HEADERS"),
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
