"""Cubins compiled before, found by the digest of all their inputs.

    <root>/entries/ab/abcdef...   one file per entry: magic, sha256 of the rest, JSON header with the key, parts
    <root>/tmp/                   entries being written; they move to their place in one step

Every read checks the digest and the key, so a truncated, swapped or flipped entry counts as absent; that is
why writing needs no fsync.  Nothing here raises on a broken, full or read-only directory: the build then
continues without a cache.

Files and folders have the access rights of the root, whatever the umask: a root that a group may write to is a cache
of the whole group.  Times are those of the file system, which on a network is another machine's clock.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

CAPACITY = 4 << 30
"""Bytes that `trim` leaves unless told otherwise."""
LARGEST_ENTRY = 256 << 20
"""Bytes; nothing larger is read."""
_MAGIC = b"KBC1"
_HEADER = len(_MAGIC) + 32
_STALE_AFTER = 24 * 3600
"""Seconds after which a file in tmp/ was left behind by a build that died."""
_TRIES = 2
"""Of reading a file that another machine is replacing."""


class Cache:
    """A directory of entries; `root` None makes a cache that holds nothing."""

    def __init__(self, root: Path | None, capacity: int = CAPACITY, is_read_only: bool = False) -> None:
        self.root = root
        self.capacity = capacity
        """Bytes that `trim` leaves."""
        self.is_read_only = is_read_only
        """Whether to change nothing there: neither damaged entries nor times of use."""

    def get(self, key: str) -> dict[str, bytes] | None:
        """The parts stored under a key, or None; an entry that is not exactly what was written is removed."""
        data = self.raw(key)
        if data is None:
            return None
        parts = decode(key, data)
        if parts is not None:
            self.touch(key)
        elif not self.is_read_only:
            with suppress(OSError):
                self.entry(key).unlink()
        return parts

    def touch(self, key: str) -> None:
        """Notes that an entry is used now, by which `trim` goes."""
        if not self.is_read_only:
            with suppress(OSError):
                os.utime(self.entry(key))

    def raw(self, key: str) -> bytes | None:
        """The bytes of an entry as they are, unchecked; None where there are none."""
        if self.root is not None:
            for _ in range(_TRIES):
                try:
                    return _read(self.entry(key))
                except OSError as error:
                    if error.errno != errno.ESTALE:
                        break
        return None

    def put(self, key: str, parts: Mapping[str, bytes]) -> bool:
        """Stores the parts under a key; returns whether it succeeded."""
        return self.put_raw(key, encode(key, parts))

    def put_raw(self, key: str, data: bytes) -> bool:
        """Stores an encoded entry under its key; returns whether it succeeded."""
        if self.root is None or self.is_read_only:
            return False
        path = self.entry(key)
        temporary = self.root / "tmp"
        try:
            for directory in (temporary, path.parent.parent, path.parent):
                self._make(directory)
            handle, name = tempfile.mkstemp(dir=temporary)
            try:
                with os.fdopen(handle, "wb") as stream:
                    os.fchmod(handle, self._rights() & 0o666)
                    stream.write(data)
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError:
            return False
        return True

    def all_keys(self) -> Iterator[str]:
        """The keys of all entries, in order."""
        if self.root is not None:
            yield from sorted(path.name for path in (self.root / "entries").glob("*/*"))

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

    def entry(self, key: str) -> Path:
        """The file of an entry."""
        assert self.root is not None
        return self.root / "entries" / key[:2] / key

    def _sweep(self) -> None:
        assert self.root is not None
        with suppress(OSError), tempfile.NamedTemporaryFile(dir=self.root / "tmp") as clock:
            now = os.fstat(clock.fileno()).st_mtime  # By the clock that gave all others their times.
            for path in (self.root / "tmp").glob("*"):
                with suppress(OSError):
                    if now - path.lstat().st_mtime > _STALE_AFTER:
                        path.unlink()

    def _make(self, directory: Path) -> None:
        """Makes a folder, with the root's rights."""
        assert self.root is not None
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            os.chmod(directory, self._rights())

    def _rights(self) -> int:
        assert self.root is not None
        return stat.S_IMODE(self.root.stat().st_mode)


def usable(root: Path, is_read_only: bool = False) -> str:
    """Why a directory cannot serve as a cache, or as one to read; empty if it can.  It is made if it is not there."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = root.stat()
    except OSError as error:
        return f"{root}: {error.strerror}"
    if status.st_mode & stat.S_IWOTH:
        return f"{root}: all users may write to it"
    if not is_read_only and not os.access(root, os.W_OK | os.X_OK):
        return f"{root}: it is read-only"
    return ""


def encode(key: str, parts: Mapping[str, bytes]) -> bytes:
    """The bytes of an entry."""
    header = {"key": key, "parts": [[name, len(data)] for name, data in parts.items()]}
    body = json.dumps(header).encode() + b"\n" + b"".join(parts.values())
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(key: str, data: bytes) -> dict[str, bytes] | None:
    """The parts of an encoded entry; None unless it is whole, unchanged, and of this key."""
    body = data[_HEADER:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : _HEADER]:
        return None
    line, _, rest = body.partition(b"\n")
    try:
        header = json.loads(line)
        sizes = [(str(name), int(size)) for name, size in header["parts"]]
        is_whole = header["key"] == key and sum(size for _, size in sizes) == len(rest)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None  # Its digest is right, so somebody meant it so.
    if not is_whole or any(size < 0 for _, size in sizes):
        return None
    parts: dict[str, bytes] = {}
    offset = 0
    for name, size in sizes:
        parts[name] = rest[offset : offset + size]
        offset += size
    return parts


def _read(path: Path) -> bytes:
    """The bytes of a file; none if it is a link, a pipe, or larger than entries are."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_ENTRY:
            return b""
        with os.fdopen(os.dup(handle), "rb") as stream:
            return stream.read()
    finally:
        os.close(handle)
