"""The meaning of environment variables; the environment itself is an argument."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from kbuild.errors import UsageError

STRICT = "KBUILD_STRICT"
"""Says that dots which ptxas serializes are errors, as `--strict` does."""
_FALSE = ("", "0", "false", "no", "off")
_LARGE_PAGES = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432"
"""Settings of glibc's malloc, from 2.35 on: its heap grows by 32 MB at a time and asks for pages of 2 MB.  ptxas touches 20 to
60 MB for a tenth of a second: with pages of 4 kB, every seventh of its instructions is one of the kernel's
that brings a page."""


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
