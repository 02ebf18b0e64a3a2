"""An archive returns its contents, with the same bytes each time.  The package that reads it is tested in
tests/launcher."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.artifact.archive import ArchiveEntry, encode, write_archive
from tests.aot.artifact.archives import entries_of, index_of

CUBIN = bytes(range(256)) * 40


def entry(key: str, data: bytes = CUBIN) -> ArchiveEntry:
    return ArchiveEntry(key, "cubin", "scale", f"scale/{key}", "sm_90a", "scale_kernel", 1024, 4, 32, data)


ENTRIES = [
    entry("b"),
    entry("a", b"\x7fELF" + random.Random(1).randbytes(500)),
    entry("c"),
    entry("empty", b""),
]


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    digest, places = write_archive(tmp_path / "sm_90.kbz", ENTRIES)
    data = (tmp_path / "sm_90.kbz").read_bytes()
    assert entries_of(data) == sorted(ENTRIES, key=lambda entry: entry.key) and data[8:40].hex() == digest
    assert entries_of(encode([])) == []
    start = 40 + int.from_bytes(data[4:8], "little")
    for one in ENTRIES:
        place = places[one.key]
        blob = data[start + place.offset :][: place.stored]
        image = zlib.decompress(blob) if place.stored < place.size else blob
        assert (image, zlib.crc32(image)) == (one.data, place.crc)


def test_the_same_entries_give_the_same_bytes() -> None:
    assert encode(ENTRIES) == encode(reversed(ENTRIES))


def test_equal_cubins_are_stored_once() -> None:
    data = encode(ENTRIES)
    rows = {row["key"]: row for row in index_of(data)}
    assert rows["b"]["offset"] == rows["c"]["offset"]
    assert len(data) == len(
        encode([replace(one, data=b"" if one.key == "c" else one.data) for one in ENTRIES])
    ) + sum(
        len(str(rows["c"][name])) - len(str(rows["empty"][name]))
        for name in ("offset", "stored", "size", "compression")
    )


def test_small_or_random_blobs_are_stored_raw() -> None:
    assert {row["key"]: row["compression"] for row in index_of(encode(ENTRIES))} == {
        "a": "raw",
        "b": "zlib",
        "c": "zlib",
        "empty": "raw",
    }


def test_a_key_may_stand_for_one_cubin_only() -> None:
    with pytest.raises(ValueError, match="two entries have the key a"):
        encode([entry("a"), entry("a", b"other")])
