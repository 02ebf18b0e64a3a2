"""`cubins/<arch>.kbz`: the cubins of one architecture in one file, each with its digest.

    offset  bytes
    0       4       "KBZ1"
    4       4       length of the index, little endian
    8       32      sha256 of the index
    40      ...     index: canonical JSON {"entries": [...]}, sorted by key
    ...     ...     blobs; offsets in the index count from here

An entry of the index has `key`, `kind` ("cubin" or "ptx"), `kernel`, `variant`, `arch`, `entry` (the symbol),
`shared` (bytes), `num_warps` (of a launch), `registers`, and of its blob `offset`, `stored` and `size`
(bytes), `compression`, `sha256` (of the raw bytes).  The digest of the index, which `write_archive` returns and
the package's table repeats, ties every cubin to what it may be launched as.  Equal blobs are stored once.

Blobs are zlib streams where that makes them smaller, because every Python can read those: Python has no
zstandard before 3.14, and some are built without lzma, which would be a third smaller and three times as
slow to unpack (1.1 ms against 0.35 ms for a cubin of 63 kB, at the first launch of a kernel).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kbuild.aot.files import write_if_changed
from kbuild.aot.identity import bytes_digest, canonical_json

MAGIC = b"KBZ1"
_LEVEL = 6
"""The level of zlib: 9 takes four times as long and saves one percent."""
_PREFIX = struct.Struct("<4sI32s")


@dataclass(frozen=True)
class ArchiveEntry:
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


Packed = tuple[bytes, str]
"""A blob as it is stored, and its compression."""


def encode(entries: Iterable[ArchiveEntry], packed: Mapping[str, Packed] | None = None) -> bytes:
    """The bytes of an archive; ValueError if two entries have one key.

    `packed` are blobs that need not be compressed, by the sha256 of their raw bytes.
    """
    blobs = bytearray()
    places: dict[str, tuple[int, int, str]] = {}
    index: list[dict[str, object]] = []
    for entry in sorted(entries, key=lambda entry: entry.key):
        if index and index[-1]["key"] == entry.key:
            raise ValueError(f"two entries have the key {entry.key}")
        sha256 = bytes_digest(entry.data)
        if sha256 not in places:
            stored, compression = (packed or {}).get(sha256) or _pack(entry.data)
            places[sha256] = (len(blobs), len(stored), compression)
            blobs += stored
        offset, length, compression = places[sha256]
        facts = {name: value for name, value in asdict(entry).items() if name != "data"}
        place = {
            "offset": offset,
            "stored": length,
            "size": len(entry.data),
            "compression": compression,
            "sha256": sha256,
        }
        index.append(facts | place)
    text = canonical_json({"entries": index})
    return _PREFIX.pack(MAGIC, len(text), bytes.fromhex(bytes_digest(text))) + text + bytes(blobs)


def _pack(data: bytes) -> Packed:
    packed = zlib.compress(data, _LEVEL)
    return (packed, "zlib") if len(packed) < len(data) else (data, "raw")


def decode(data: bytes) -> tuple[list[ArchiveEntry], dict[str, Packed]]:
    """The entries of an archive, and their blobs as it has them, by the sha256 of the raw bytes; ValueError if any of it
    is damaged."""
    entries: list[ArchiveEntry] = []
    packed: dict[str, Packed] = {}
    raw: dict[str, bytes] = {}
    try:
        rows = read_index(data)
        first = _PREFIX.size + _PREFIX.unpack_from(data)[1]
        for row in rows:
            offset, stored, sha256 = row.pop("offset"), row.pop("stored"), row.pop("sha256")
            compression = row.pop("compression")
            del row["size"]  # The digest says as much.
            if sha256 not in raw:
                blob = data[first + offset : first + offset + stored]
                raw[sha256] = zlib.decompress(blob) if compression == "zlib" else blob
                packed[sha256] = blob, compression
                if bytes_digest(raw[sha256]) != sha256:
                    raise ValueError(f"{row['key']} is damaged")
            entries.append(ArchiveEntry(**row, data=raw[sha256]))
    except (zlib.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"an archive of cubins is damaged: {error}") from None
    return entries, packed


def index_digest(data: bytes) -> str:
    """The sha256 of an archive's index in hexadecimal, as its header has it; empty for data that is too short."""
    return data[8:40].hex() if len(data) >= _PREFIX.size else ""


def read_index(data: bytes) -> list[dict[str, Any]]:
    """The entries of an archive's index; ValueError if it is damaged."""
    magic, length, sha256 = _PREFIX.unpack_from(data) if len(data) >= _PREFIX.size else (b"", 0, b"")
    text = data[_PREFIX.size : _PREFIX.size + length]
    if magic != MAGIC or bytes.fromhex(bytes_digest(text)) != sha256:
        raise ValueError("not an archive of cubins, or damaged")
    return json.loads(text)["entries"]


class Place(NamedTuple):
    """Where a blob is, as the library for C has it, which reads no index."""

    offset: int
    """From the first blob."""
    stored: int
    """Bytes in the archive; a zlib stream where they are fewer than `size`."""
    size: int
    """Bytes of the cubin."""
    crc: int
    """CRC-32 of the cubin."""


def write_archive(
    path: Path, entries: Iterable[ArchiveEntry], packed: Mapping[str, Packed] | None = None
) -> tuple[str, dict[str, Place]]:
    """Writes an archive, unless it is there already; returns the sha256 of its index in hexadecimal, and where the
    blobs are by their keys.  Arguments as for `encode`."""
    entries = list(entries)
    data = encode(entries, packed)
    write_if_changed(path, data)
    crcs = {entry.key: zlib.crc32(entry.data) for entry in entries}
    places = {
        found["key"]: Place(found["offset"], found["stored"], found["size"], crcs[found["key"]])
        for found in read_index(data)
    }
    return index_digest(data), places
