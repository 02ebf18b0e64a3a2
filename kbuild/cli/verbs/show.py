"""What several verbs do alike: facts of cubins in words, and files written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kbuild.aot.environment import STRICT, flag
from kbuild.errors import UsageError


def is_debugging(options: argparse.Namespace) -> bool:
    """Whether assertions are to be compiled in: by `--debug`, or by TRITON_DEBUG as in Triton."""
    return options.debug or flag(options.environment, "TRITON_DEBUG")


def is_strict(options: argparse.Namespace) -> bool:
    """Whether dots that ptxas serializes are errors: by `--strict`, or by KBUILD_STRICT."""
    return options.strict or flag(options.environment, STRICT)


def warnings_of(fact: dict[str, Any]) -> list[str]:
    """What is not as it should be with a cubin."""
    spills = [f"spills {fact['spill_stores']} bytes of registers"] if fact["spill_stores"] or fact["spill_loads"] else []
    # ptxas tells of spills in words of its own, with the same numbers.
    return spills + [text for text in fact["warnings"] if not (spills and "spilled" in text)]


def size_of(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def write(path: Path, data: bytes) -> None:
    """Writes a file that the user asked for, in directories made as needed; UsageError where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except FileExistsError:
        raise UsageError(f"cannot write {path}: {path.parent} is no directory") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
