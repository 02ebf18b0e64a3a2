"""Writing files so that a build may be cut off at any point: whole, or not at all, and only when they change.

And where the files of kbuild's own that are no modules lie.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Puts a file in place in one step; readers see the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_if_changed(path: Path, data: bytes) -> bool:
    """Writes a file unless it has these bytes already; says whether it did."""
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass
    write_atomic(path, data)
    return True


def templates_directory() -> Path:
    """Where the package's templates are: within an installed kbuild, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"
