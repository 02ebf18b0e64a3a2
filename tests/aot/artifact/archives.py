"""Archives as their readers see them, every digest checked."""

from __future__ import annotations

import json
import struct
import zlib
from hashlib import sha256
from typing import Any

from kbuild.aot.artifact.archive import ArchiveEntry

HEADER = 40
"""Bytes before the index."""


def index_of(data: bytes) -> list[dict[str, Any]]:
    """The entries of the index."""
    (length,) = struct.unpack_from("<I", data, 4)
    index = data[HEADER : HEADER + length]
    assert data[:4] == b"KBZ1" and sha256(index).digest() == data[8:HEADER]
    return json.loads(index)["entries"]


def entries_of(data: bytes) -> list[ArchiveEntry]:
    """What went into an archive."""
    (length,) = struct.unpack_from("<I", data, 4)
    found: list[ArchiveEntry] = []
    for row in index_of(data):
        stored = data[HEADER + length + row["offset"] :][: row["stored"]]
        blob = zlib.decompress(stored) if row["compression"] == "zlib" else stored
        assert len(blob) == row["size"] and sha256(blob).hexdigest() == row["sha256"]
        found.append(
            ArchiveEntry(
                **{name: row[name] for name in ArchiveEntry.__dataclass_fields__ if name != "data"}, data=blob
            )
        )
    return found
