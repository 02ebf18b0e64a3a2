"""The cache returns exactly what was put in, or nothing, whatever happens to its directory."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.aot.build.cache import Cache, decode, usable

KEY = "ab" + "0" * 62
PARTS = {"cubin": b"\x7fELF" + bytes(300), "facts": b"{}"}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def entry_of(cache: Cache, key: str = KEY) -> Path:
    assert cache.root
    return cache.root / "entries" / key[:2] / key


def test_what_is_put_in_comes_out(cache: Cache) -> None:
    assert cache.get(KEY) is None
    assert cache.put(KEY, PARTS) and cache.get(KEY) == PARTS
    assert cache.put(KEY, {"a": b""}) and cache.get(KEY) == {"a": b""}
    assert list((cache.root or Path()).glob("tmp/*")) == []


def test_a_cache_without_a_place_holds_nothing() -> None:
    assert not Cache(None).put(KEY, PARTS) and Cache(None).get(KEY) is None and Cache(None).trim() == 0


def test_every_damage_is_noticed_and_the_entry_removed(cache: Cache) -> None:
    cache.put(KEY, PARTS)
    data = entry_of(cache).read_bytes()
    generator = random.Random(5)
    broken = [data[:end] for end in range(0, len(data), 7)] + [data + b"\0", b"", b"\0" * len(data)]
    for _ in range(200):
        flipped = bytearray(data)
        flipped[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        broken.append(bytes(flipped))
    for content in broken:
        entry_of(cache).write_bytes(content)
        assert cache.get(KEY) is None and not entry_of(cache).exists()


def test_an_entry_under_another_key_is_refused(cache: Cache) -> None:
    other = "ab" + "1" * 62
    cache.put(KEY, PARTS)
    os.replace(entry_of(cache), entry_of(cache, other))
    assert cache.get(other) is None


def test_what_is_not_a_file_is_refused(cache: Cache, tmp_path: Path) -> None:
    cache.put(KEY, PARTS)
    good = tmp_path / "good"
    os.replace(entry_of(cache), good)
    os.symlink(good, entry_of(cache))
    assert cache.get(KEY) is None
    entry_of(cache).unlink()
    os.mkfifo(entry_of(cache))
    assert cache.get(KEY) is None
    entry_of(cache).mkdir()
    assert cache.get(KEY) is None and not cache.put(KEY, PARTS)


def test_a_directory_that_cannot_be_written_makes_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    assert not cache.put(KEY, PARTS) and cache.get(KEY) is None and cache.trim() == 0
    assert "file" in usable(tmp_path / "file" / "below")
    everyone = tmp_path / "everyone"
    everyone.mkdir()
    everyone.chmod(0o777)
    assert "all users may write" in usable(everyone)
    assert usable(tmp_path / "new" / "deep") == ""


def test_files_have_the_rights_of_the_folder(tmp_path: Path) -> None:
    """Whatever the umask: the next to use it may be another user."""
    for rights in (0o700, 0o2770, 0o2775):
        folder = tmp_path / oct(rights)
        folder.mkdir()
        folder.chmod(rights)
        before = os.umask(0o077)
        try:
            assert Cache(folder).put(KEY, PARTS)
        finally:
            os.umask(before)
        found = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
        assert found == {rights, rights & 0o666}


def test_one_that_is_only_read_is_left_as_it_is(cache: Cache) -> None:
    cache.put(KEY, PARTS)
    path = entry_of(cache)
    os.utime(path, (1, 1))
    reading = Cache(cache.root, is_read_only=True)
    assert reading.get(KEY) == PARTS and path.stat().st_mtime == 1 and not reading.put(KEY, PARTS)
    path.write_bytes(b"damaged")
    assert reading.get(KEY) is None and path.exists()


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{}", b'{"key": 1, "parts": 2}', b"{", b'{"key": "KEY", "parts": [["a", -1], ["b", 2]]}',
     b'{"key": "KEY", "parts": [["a", 2]]}', b'{"key": "KEY", "parts": [["a"]]}', b"\xff", b"[" * 100_000],
)  # fmt: skip
def test_what_somebody_meant_to_be_wrong_is_refused(header: bytes) -> None:
    """The digest is right, as it is of an entry from a server that lies."""
    body = header.replace(b"KEY", KEY.encode()) + b"\nx"
    assert decode(KEY, b"KBC1" + hashlib.sha256(body).digest() + body) is None


def test_what_was_left_half_written_is_judged_by_the_clock_of_the_disk(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine's may be days ahead of it: nothing that others write now may be swept."""
    cache.put(KEY, PARTS)
    assert cache.root
    fresh, old = cache.root / "tmp/fresh", cache.root / "tmp/old"
    for path in (fresh, old):
        path.write_bytes(b"")
    now = fresh.stat().st_mtime
    os.utime(old, (now - 90_000, now - 90_000))
    monkeypatch.setattr("time.time", lambda: now + 1_000_000)
    cache.trim()
    assert fresh.exists() and not old.exists()


def test_the_entries_used_longest_ago_go_first(cache: Cache) -> None:
    keys = [f"{index:02x}" + "0" * 62 for index in range(10)]
    for age, key in enumerate(keys):
        cache.put(key, {"cubin": bytes(1000)})
        os.utime(entry_of(cache, key), (1_000_000 + age, 1_000_000 + age))
    assert cache.get(keys[0]) is not None  # Used now, so the youngest.
    cache.capacity = 4 * entry_of(cache, keys[0]).stat().st_size
    assert cache.trim() == 6
    assert [key for key in keys if cache.get(key) is not None] == [keys[0], *keys[7:]]


HAMMER = """
import sys
from pathlib import Path
from kbuild.aot.build.cache import Cache
cache, bad = Cache(Path(sys.argv[1]), capacity=20_000), 0
for turn in range(150):
    for key in ("ab" + str(n) * 62 for n in range(4)):
        expected = {"cubin": key.encode() * 50}
        found = cache.get(key)
        bad += found is not None and found != expected
        cache.put(key, expected)
    cache.trim()
sys.exit(bad)
"""


def test_processes_at_once_never_see_half_an_entry(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    runs = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(tmp_path)], env=environment) for _ in range(4)
    ]
    assert [run.wait(60) for run in runs] == [0, 0, 0, 0]
