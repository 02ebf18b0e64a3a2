"""Builds libcuda.so.1, the shared library that a process loads in the driver's place.

Each library lies in a folder of its own in the cache, together with `stand_in.json`, which describes the
driver; the folder's name is the digest of both, so that an existing one is not built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.emulator.driver.table import exported
from kbuild.errors import ToolError

NAME = "libcuda.so.1"
DESCRIPTION = "stand_in.json"
_SOURCE = Path(__file__).with_name("libcuda.c")
_FLAGS = (
    "-std=gnu11",
    "-O1",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    f"-Wl,-soname,{NAME}",
    "-s",
)


def default_folder() -> Path:
    """Where libraries are kept unless another folder is named: ~/.cache/kbuild/stand-in."""
    return Path("~/.cache/kbuild/stand-in").expanduser()


def build(
    description: Mapping[str, Any],
    version: int,
    without: Iterable[str] = (),
    folder: Path | None = None,
    cc: Sequence[str] = ("cc",),
) -> Path:
    """The path of the library with the functions of a driver of that version (1000 * major + 10 * minor), but
    for some.

    `description` is put beside it.  Raises ToolError where the C compiler is missing or fails, or the folder
    cannot be written, and UsageError for unknown functions.
    """
    entries = "\n".join(function.entry for function in exported(version, without)) + "\n"
    text = json.dumps(description, sort_keys=True, indent=1) + "\n"
    source = _SOURCE.read_text()
    digest = hashlib.sha256("\0".join((source, entries, text, *_FLAGS, *cc)).encode()).hexdigest()[:16]
    base = folder or default_folder()
    target = base / digest
    if not (target / NAME).is_file():
        try:
            base.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=base))
        except OSError as error:
            raise ToolError(
                f"{base}: {error.strerror}", help="name another folder for the fake driver's library"
            ) from None
        try:
            (made / DESCRIPTION).write_text(text)
            _compile(made, source, entries, cc)
            os.chmod(made, 0o755)
            _move(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return target / NAME


def _compile(folder: Path, source: str, entries: str, cc: Sequence[str]) -> None:
    """Compile the library in a folder, and leave it alone there with its description."""
    inputs = {"libcuda.c": source, "entries.h": entries}
    for name, text in inputs.items():
        (folder / name).write_text(text)
    command = [*cc, *_FLAGS, "libcuda.c", "-o", NAME, "-ldl"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{cc[0]}: {error.strerror}", help="the fake driver requires a C compiler") from None
    if done.returncode:
        raise ToolError(f"{' '.join(command)} failed with exit code {done.returncode}\n{done.stderr.strip()}")
    for name in inputs:
        (folder / name).unlink()


def _move(made: Path, target: Path) -> None:
    """Put the finished folder in place; one that another process has put there meanwhile is as good."""
    try:
        made.rename(target)
    except OSError:
        if not (target / NAME).is_file():
            raise
