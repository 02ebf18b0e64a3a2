"""Functions shared by several verbs: facts of cubins in words, and files written."""

from __future__ import annotations

import argparse
from pathlib import Path

from kbuild.aot.environment import DEBUG, STRICT, flag
from kbuild.errors import UsageError
from kbuild.options import DEFAULTS, CompileOptions
from kbuild.options import options as known_options


def compile_options(options: argparse.Namespace) -> CompileOptions:
    """The compile options that flags and the environment give: KBUILD_DEBUG is as `--debug`, KBUILD_STRICT as
    `--strict`."""
    given = {
        option.name: getattr(options, option.name)
        for option in known_options()
        if hasattr(options, option.name)
    }
    by_environment = {"debug": DEBUG, "strict": STRICT}
    given |= {
        name: True
        for name, variable in by_environment.items()
        if name in given and flag(options.environment, variable)
    }
    return DEFAULTS.changed(given)


def size_of(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def write(path: Path, data: bytes) -> None:
    """Writes a file that the user asked for, in directories made as needed; UsageError where that is not
    possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except FileExistsError:
        raise UsageError(f"cannot write {path}: {path.parent} is not a directory") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
