"""What environment variables mean; the environment itself is handed in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kbuild.errors import UsageError

_FALSE = ("", "0", "false", "no", "off")


def flag(environment: Mapping[str, str], name: str) -> bool:
    """Whether a variable is set to anything but a word for no."""
    return environment.get(name, "").lower() not in _FALSE


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """KBUILD_CACHE_DIR, or `kbuild` in XDG_CACHE_HOME or ~/.cache; None with KBUILD_DISABLE_CACHE or without any of them."""
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
        raise UsageError(f"{name} is {text!r}, expected a natural number")
    return int(text)


def epoch(environment: Mapping[str, str]) -> int | None:
    """SOURCE_DATE_EPOCH, seconds since 1970."""
    return number(environment, "SOURCE_DATE_EPOCH")
