"""An archive gives back what went in, the same bytes each time, and refuses anything else."""

from __future__ import annotations

import json
import random
import struct
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from kbuild.aot.archive import ArchiveError, Entry, decode, encode, read_archive, write_archive

PREFIX = 40
CUBIN = bytes(range(256)) * 40


def entry(key: str, data: bytes = CUBIN) -> Entry:
    return Entry(key, "cubin", "scale", f"scale/{key}", "sm_90a", "scale_kernel", 1024, 4, 32, data)


ENTRIES = [entry("b"), entry("a", b"\x7fELF" + random.Random(1).randbytes(500)), entry("c"), entry("empty", b"")]


def index_of(data: bytes) -> dict[str, list[dict[str, object]]]:
    """The index, as a reader of another language sees it."""
    (length,) = struct.unpack_from("<I", data, 4)
    assert data[:4] == b"KBZ1" and sha256(data[PREFIX : PREFIX + length]).digest() == data[8:40]
    return json.loads(data[PREFIX : PREFIX + length])


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    digest = write_archive(tmp_path / "sm_90.kbz", ENTRIES)
    assert read_archive(tmp_path / "sm_90.kbz", digest) == tuple(sorted(ENTRIES, key=lambda entry: entry.key))
    assert decode(encode([])) == ()


def test_the_same_entries_give_the_same_bytes() -> None:
    assert encode(ENTRIES) == encode(reversed(ENTRIES))


def test_equal_cubins_are_stored_once() -> None:
    data = encode(ENTRIES)
    rows = {row["key"]: row for row in index_of(data)["entries"]}
    assert rows["b"]["offset"] == rows["c"]["offset"]
    assert len(data) == len(encode([replace(one, data=b"" if one.key == "c" else one.data) for one in ENTRIES])) + sum(
        len(str(rows["c"][name])) - len(str(rows["empty"][name])) for name in ("offset", "stored", "size", "compression")
    )


def test_small_or_random_blobs_are_stored_raw() -> None:
    assert {row["key"]: row["compression"] for row in index_of(encode(ENTRIES))["entries"]} == {
        "a": "raw", "b": "zlib", "c": "zlib", "empty": "raw",
    }  # fmt: skip


def test_a_key_may_stand_for_one_cubin_only() -> None:
    with pytest.raises(ValueError, match="two entries have the key a"):
        encode([entry("a"), entry("a", b"other")])


def test_any_flipped_bit_is_refused() -> None:
    data = encode(ENTRIES)
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 1 << place % 8
        with pytest.raises(ArchiveError):
            decode(bytes(broken))


def test_any_cut_and_any_addition_is_refused() -> None:
    data = encode(ENTRIES)
    for end in range(len(data)):
        with pytest.raises(ArchiveError):
            decode(data[:end])
    with pytest.raises(ArchiveError):
        decode(data + b"\0")


def forged(change: dict[str, object]) -> bytes:
    """An archive whose first entry says something else, with a digest that fits the lie."""
    data = encode(ENTRIES)
    (length,) = struct.unpack_from("<I", data, 4)
    index = index_of(data)
    index["entries"][0] |= change
    text = json.dumps(index).encode()
    return b"KBZ1" + struct.pack("<I", len(text)) + sha256(text).digest() + text + data[PREFIX + length :]


@pytest.mark.parametrize("change", [
    {"offset": -1}, {"offset": 1 << 70}, {"stored": -1}, {"stored": 1 << 40}, {"size": 0}, {"size": 1 << 62},
    {"size": 503}, {"offset": 1}, {"stored": None}, {"offset": "0"}, {"compression": "zlib"}, {"compression": "lzma"},
    {"sha256": "0" * 64}, {"sha256": None},
])  # fmt: skip
def test_an_index_that_lies_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ArchiveError):
        decode(forged(change))


def test_an_index_that_launches_a_cubin_as_another_is_not_the_package_s() -> None:
    """Within itself it is sound, so it takes the digest in the package's table to tell."""
    data = encode(ENTRIES)
    lie = forged({"entry": "other_kernel"})
    assert decode(lie)[0].entry == "other_kernel"
    with pytest.raises(ArchiveError, match="not that of this package"):
        decode(lie, data[8:40].hex())


def test_a_stream_that_grows_beyond_its_size_is_refused_without_unpacking_it() -> None:
    bomb = zlib.compress(bytes(100 << 20), 9)
    row = {"offset": 0, "stored": len(bomb), "size": 1000, "compression": "zlib", "sha256": "0" * 64}
    row |= {name: getattr(entry("k"), name) for name in Entry.__dataclass_fields__ if name != "data"}
    text = json.dumps({"entries": [row]}).encode()
    with pytest.raises(ArchiveError, match="not one whole zlib stream"):
        decode(b"KBZ1" + struct.pack("<I", len(text)) + sha256(text).digest() + text + bomb)


@pytest.mark.parametrize("text", [
    b"", b"[]", b"{}", b'{"entries":1}', b'{"entries":[1]}', b'{"entries":[{}]}', b"\xff", b"[" * 99999,
])  # fmt: skip
def test_an_index_of_another_kind_is_refused(text: bytes) -> None:
    with pytest.raises(ArchiveError):
        decode(b"KBZ1" + struct.pack("<I", len(text)) + sha256(text).digest() + text)
