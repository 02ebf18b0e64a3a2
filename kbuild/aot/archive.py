"""`cubins/<arch>.kbz`: the cubins of one architecture in one file, each with its digest.

    offset  bytes
    0       4       "KBZ1"
    4       4       length of the index, little endian
    8       32      sha256 of the index
    40      ...     index: canonical JSON {"entries": [...]}, sorted by key
    ...     ...     blobs; offsets in the index count from here

An entry of the index has `key`, `kind` ("cubin" or "ptx"), `kernel`, `variant`, `arch`, `entry` (the symbol), `shared`
(bytes), `num_warps` (of a launch), `registers`, and of its blob `offset`, `stored` and `size` (bytes), `compression`, `sha256`
(of the raw bytes).  The digest of the index, which `write_archive` gives and the package's table repeats, so binds every cubin to
what it may be launched as.  Equal blobs are stored once.

Blobs are zlib streams where that makes them smaller, because every Python can read those: zstandard is no part of it
before 3.14, and some are built without lzma, which would be a third smaller and three times as slow to unpack (1.1 ms
against 0.35 ms for a cubin of 63 kB, at the first launch of a kernel).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import bytes_digest, canonical_json
from kbuild.errors import KbuildError

MAGIC = b"KBZ1"
_LEVEL = 6
"""Of zlib: 9 takes four times as long and saves a hundredth."""
LARGEST = 1 << 30
"""Bytes that an archive, and any blob of it, may have."""

_PREFIX = struct.Struct("<4sI32s")


class ArchiveError(KbuildError):
    """The bytes are not an archive that `write_archive` wrote."""


@dataclass(frozen=True)
class Entry:
    """One cubin, or the PTX text of one, with what a launch needs to know of it."""

    key: str
    """What the package's table calls it; unique within the archive."""
    kind: str
    """`cubin` or `ptx`."""
    kernel: str
    """Kernel of the manifest."""
    variant: str
    """The variant as text."""
    arch: str
    """Architecture it was compiled for, such as `sm_90a`."""
    entry: str
    """Symbol of the kernel."""
    shared: int
    """Dynamic shared memory, bytes."""
    num_warps: int
    """Warps per program."""
    registers: int
    """Registers per thread."""
    data: bytes
    """The raw bytes."""


def encode(entries: Iterable[Entry]) -> bytes:
    """The bytes of an archive; ValueError if two entries have one key."""
    blobs = bytearray()
    places: dict[str, tuple[int, int, str]] = {}
    index: list[dict[str, object]] = []
    for entry in sorted(entries, key=lambda entry: entry.key):
        if index and index[-1]["key"] == entry.key:
            raise ValueError(f"two entries have the key {entry.key}")
        sha256 = bytes_digest(entry.data)
        if sha256 not in places:
            packed = zlib.compress(entry.data, _LEVEL)
            stored, compression = (packed, "zlib") if len(packed) < len(entry.data) else (entry.data, "raw")
            places[sha256] = (len(blobs), len(stored), compression)
            blobs += stored
        offset, length, compression = places[sha256]
        facts = {name: value for name, value in asdict(entry).items() if name != "data"}
        place = {"offset": offset, "stored": length, "size": len(entry.data), "compression": compression, "sha256": sha256}
        index.append(facts | place)
    text = canonical_json({"entries": index})
    return _PREFIX.pack(MAGIC, len(text), bytes.fromhex(bytes_digest(text))) + text + bytes(blobs)


def write_archive(path: Path, entries: Iterable[Entry]) -> str:
    """Writes an archive, unless it is there already; gives the sha256 of its index in hexadecimal."""
    data = encode(entries)
    write_if_changed(path, data)
    return data[8:40].hex()


def read_archive(path: Path, index_sha256: str = "") -> tuple[Entry, ...]:
    """The entries of an archive, every digest checked, and that of the index against the one expected if given."""
    data = path.read_bytes()
    try:
        return decode(data, index_sha256)
    except ArchiveError as error:
        raise ArchiveError(f"{path}: {error.message}") from None


def decode(data: bytes, index_sha256: str = "") -> tuple[Entry, ...]:
    """The entries of an archive's bytes; ArchiveError on anything that `encode` would not have written."""
    if len(data) < _PREFIX.size or len(data) > LARGEST:
        raise ArchiveError(f"an archive has {_PREFIX.size} to {LARGEST} bytes, not {len(data)}")
    magic, length, sha256 = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ArchiveError(f"starts with {magic!r}, not {MAGIC!r}")
    text = data[_PREFIX.size : _PREFIX.size + length]
    if len(text) != length or bytes_digest(text) != sha256.hex():
        raise ArchiveError("the index does not have its digest")
    if index_sha256 and index_sha256 != sha256.hex():
        raise ArchiveError("the index is not that of this package")
    blobs = memoryview(data)[_PREFIX.size + length :]
    try:
        rows = json.loads(text)["entries"]
        entries = tuple(_decode_entry(row, blobs) for row in rows)
        end = max((row["offset"] + row["stored"] for row in rows), default=0)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ArchiveError(f"the index is malformed: {type(error).__name__}") from None
    if end != len(blobs):
        raise ArchiveError(f"{len(blobs)} bytes of cubins, expected {end}")
    return entries


def _decode_entry(row: dict[str, object], blobs: memoryview) -> Entry:
    names = tuple(name for name in Entry.__dataclass_fields__ if name != "data")
    facts = {name: row[name] for name in names}
    offset, stored, size = (row[name] for name in ("offset", "stored", "size"))
    if not (isinstance(offset, int) and isinstance(stored, int) and isinstance(size, int)):
        raise ArchiveError(f"{row['key']}: place and size are no integers")
    if min(offset, stored, size) < 0 or offset + stored > len(blobs) or size > LARGEST:
        raise ArchiveError(f"{row['key']}: lies outside the archive")
    data = _unpack(bytes(blobs[offset : offset + stored]), size, row["compression"], str(row["key"]))
    if bytes_digest(data) != row["sha256"]:
        raise ArchiveError(f"{row['key']}: does not have its digest")
    return Entry(**facts, data=data)  # type: ignore[arg-type]


def _unpack(stored: bytes, size: int, compression: object, key: str) -> bytes:
    if compression == "raw":
        data = stored
    elif compression == "zlib":
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(stored, size + 1)
        except zlib.error as error:
            raise ArchiveError(f"{key}: {error}") from None
        if not stream.eof or stream.unused_data:
            raise ArchiveError(f"{key}: is not one whole zlib stream")
    else:
        raise ArchiveError(f"{key}: unknown compression {compression!r}")
    if len(data) != size:
        raise ArchiveError(f"{key}: has {len(data)} bytes, expected {size}")
    return data
