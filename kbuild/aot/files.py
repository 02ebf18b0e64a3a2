"""Writing files so that a build may be cut off at any point: whole, or not at all, and only when they change.

Also where kbuild's own files that are not modules lie.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is too large here",
}


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Puts a file in place in one step: readers see the old bytes or the new ones, also after a power
    failure.

    OSError names the file, whichever step failed; no partial file is left.
    """
    _put(path, data, mode, is_durable=True)
    _sync_directory(path.parent)


def write_files(files: Mapping[Path, bytes]) -> None:
    """Puts files in place, each as `write_atomic` does it, unless they have their bytes already."""
    changed = {path: data for path, data in files.items() if not _has(path, data)}
    for path, data in changed.items():
        _put(path, data, 0o644, is_durable=True)
    for directory in {path.parent for path in changed}:
        _sync_directory(directory)


def write_if_changed(path: Path, data: bytes) -> bool:
    """Writes a file unless it has these bytes already; returns whether it did.

    For files that every build compares and rewrites anyway: it does not wait for the disk.
    """
    if _has(path, data):
        return False
    _put(path, data, 0o644, is_durable=False)
    return True


def why(error: OSError) -> str:
    """A readable text for an OSError: which file, and what is wrong with it; a full disk is called that."""
    text = _FULL.get(error.errno or 0, "")
    said = f"{text} ({error.strerror})" if text else error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said


def _has(path: Path, data: bytes) -> bool:
    with suppress(OSError):
        return path.stat().st_size == len(data) and path.read_bytes() == data
    return False


def _put(path: Path, data: bytes, mode: int, is_durable: bool) -> None:
    """Writes a file under another name, and gives it its own; durable, it waits for the disk in between."""
    import tempfile  # Wording an error needs none of its modules.

    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                if is_durable:  # Otherwise a power failure would leave the name with an empty file.
                    os.fsync(handle)
            os.chmod(name, mode)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # Some file systems cannot, and keep names safe by themselves or not at all.
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Has errors name the file that was to be written, not a temporary one or none."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def templates_directory() -> Path:
    """Where the package's templates are: within an installed kbuild, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"
