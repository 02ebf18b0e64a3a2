"""Cubins compiled before, found by the digest of all their inputs.

    <root>/entries/ab/abcdef...   one file per entry: magic, sha256 of the rest, JSON header with the key, parts
    <root>/tmp/                   entries being written; they move to their place in one step

Every read checks the digest and the key, so a truncated, swapped or flipped entry counts as absent; that is
why writing needs no fsync.  Nothing here raises on a broken, full or read-only directory: the build then
continues without a cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_MAGIC = b"KBC1"
_HEADER = len(_MAGIC) + 32
_LARGEST_ENTRY = 256 << 20
_STALE_AFTER = 24 * 3600
"""Seconds after which a file in tmp/ was left behind by a build that died."""


class Cache:
    """A directory of entries; `root` None makes a cache that holds nothing."""

    def __init__(self, root: Path | None, capacity: int = 4 << 30) -> None:
        self.root = root
        self.capacity = capacity
        """Bytes that `trim` leaves."""

    def get(self, key: str) -> dict[str, bytes] | None:
        """The parts stored under a key, or None; an entry that is not exactly what was written is removed."""
        if self.root is None:
            return None
        path = self._entry(key)
        try:
            data = _read(path)
        except OSError:
            return None
        parts = _decode(key, data)
        with suppress(OSError):
            if parts is None:
                path.unlink()
            else:
                os.utime(path)  # The time of last use, by which `trim` goes.
        return parts

    def put(self, key: str, parts: Mapping[str, bytes]) -> bool:
        """Stores the parts under a key; returns whether it succeeded."""
        if self.root is None:
            return False
        path = self._entry(key)
        temporary = self.root / "tmp"
        try:
            for directory in (temporary, path.parent):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=temporary)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(_encode(key, parts))
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError:
            return False
        return True

    def trim(self) -> int:
        """Removes the entries used longest ago until the rest fits the capacity; returns the number removed."""
        if self.root is None:
            return 0
        self._sweep()
        entries: list[tuple[float, int, Path]] = []
        for path in (self.root / "entries").glob("*/*"):
            with suppress(OSError):
                status = path.lstat()
                entries.append((status.st_mtime, status.st_size, path))
        size = sum(entry[1] for entry in entries)
        removed = 0
        for _, bytes_, path in sorted(entries):
            if size <= self.capacity:
                break
            with suppress(OSError):
                path.unlink()
                removed += 1
            size -= bytes_
        return removed

    def _sweep(self) -> None:
        assert self.root is not None
        for path in (self.root / "tmp").glob("*"):
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > _STALE_AFTER:
                    path.unlink()

    def _entry(self, key: str) -> Path:
        assert self.root is not None
        return self.root / "entries" / key[:2] / key


def usable(root: Path) -> str:
    """Why a directory cannot serve as a cache; empty if it can.  It is made if it is not there."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = root.stat()
    except OSError as error:
        return f"{root}: {error.strerror}"
    if status.st_mode & stat.S_IWOTH:
        return f"{root}: all users may write to it"
    if not os.access(root, os.W_OK | os.X_OK):
        return f"{root}: it is read-only"
    return ""


def _read(path: Path) -> bytes:
    """The bytes of a file; none if it is a link, a pipe, or larger than entries are."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_ENTRY:
            return b""
        with os.fdopen(os.dup(handle), "rb") as stream:
            return stream.read()
    finally:
        os.close(handle)


def _encode(key: str, parts: Mapping[str, bytes]) -> bytes:
    header = {"key": key, "parts": [[name, len(data)] for name, data in parts.items()]}
    body = json.dumps(header).encode() + b"\n" + b"".join(parts.values())
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(key: str, data: bytes) -> dict[str, bytes] | None:
    body = data[_HEADER:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : _HEADER]:
        return None
    line, _, rest = body.partition(b"\n")
    header = json.loads(line)
    if header["key"] != key:
        return None
    parts: dict[str, bytes] = {}
    offset = 0
    for name, size in header["parts"]:
        parts[name] = rest[offset : offset + size]
        offset += size
    return parts
