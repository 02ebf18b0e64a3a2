"""Entries pushed and pulled without a build, whatever interrupts that."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kbuild.aot.build.cache import Cache
from kbuild.aot.build.progress import Progress
from kbuild.aot.remote import transfer
from tests.aot.remote import http_server, reapi_server
from tests.aot.remote.conftest import entry_of, remote_at

ROOT = Path(__file__).parents[3]
KEYS = [f"{number:064x}" for number in range(40)]


@pytest.fixture
def full(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path / "full")
    for key in KEYS:
        assert cache.put_raw(key, entry_of(key))
    return cache


@pytest.fixture
def empty(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "empty")


def entries(cache: Cache) -> dict[str, bytes | None]:
    return {key: cache.raw(key) for key in cache.all_keys()}


@pytest.mark.parametrize("kind", ["file", "http", "grpc"])
def test_what_was_pushed_is_pulled(
    kind: str,
    full: Cache,
    empty: Cache,
    http: http_server.Server,
    reapi: reapi_server.Service,
    tmp_path: Path,
) -> None:
    (tmp_path / "shared").mkdir(mode=0o700)
    urls = {"file": f"file://{tmp_path}/shared", "http": http.url, "grpc": reapi.target}
    remote = remote_at(urls[kind], timeout=10)
    assert transfer.push(KEYS, full, remote, Progress(), dry_run=True).moved == len(KEYS)
    assert transfer.push(KEYS, full, remote, Progress()).moved == len(KEYS)
    again = transfer.push(KEYS, full, remote, Progress())
    assert (again.moved, again.there, again.bytes) == (0, len(KEYS), 0)
    pulled = transfer.pull([*KEYS, "f" * 64], empty, remote, Progress())
    assert (pulled.moved, pulled.absent, pulled.failed) == (len(KEYS), 1, 0) and pulled.bytes > 0
    assert entries(empty) == entries(full)
    assert transfer.wrong(KEYS, remote, Progress()) == ([], len(KEYS))


def test_what_is_wrong_there_is_found_and_mended(full: Cache, http: http_server.Server) -> None:
    remote = remote_at(http.url, timeout=10)
    transfer.push(KEYS, full, remote, Progress())
    (blob, *_) = sorted(path for path in http.held if "/cas/" in path)
    http.held[blob] = b"what somebody else left there"
    (key,), right = transfer.wrong(KEYS, remote, Progress())
    assert right == len(KEYS) - 1
    http.behaviour = lambda handler: (
        handler.path == blob and handler.command == "GET" and handler.answer(200, b"?")
    )
    assert transfer.wrong(KEYS, remote, Progress())[0] == [key]
    http.behaviour = lambda handler: False
    del http.held[blob]
    assert transfer.wrong(KEYS, remote, Progress())[0] == [key]
    assert transfer.push(KEYS, full, remote, Progress()).moved == 1
    assert transfer.wrong(KEYS, remote, Progress()) == ([], len(KEYS))


def test_a_server_that_fails_is_told_of(
    full: Cache, http: http_server.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    http.behaviour = lambda handler: handler.command == "PUT" and handler.answer(507)
    moved = transfer.push(KEYS, full, remote_at(http.url), Progress())
    assert (moved.moved, moved.failed) == (0, len(KEYS))
    assert capsys.readouterr().err.count("nothing more is sent there") == 1


TRANSFER = """
import sys
from pathlib import Path
from kbuild.aot.build.cache import Cache
from kbuild.aot.build.progress import Progress
from kbuild.aot.environment import Remote
from kbuild.aot.remote import transfer
what, root, url, *keys = sys.argv[1:]
print("begun", flush=True)
getattr(transfer, what)(keys, Cache(Path(root)), Remote(cache=url, timeout=10), Progress())
"""


def interrupt(what: str, cache: Cache, url: str, seed: int) -> None:
    """Begins a transfer, and ends it at a random moment, in one of the ways that processes end."""
    generator = random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", TRANSFER, what, str(cache.root), url, *KEYS],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    time.sleep(generator.uniform(0, 0.25))
    process.send_signal(generator.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
    process.wait(20)
    process.stdout.close()


def interrupted_transfers(full: Cache, empty: Cache, url: str, seed: int) -> None:
    """Pushes and pulls, each cut off once and begun again; at the end both ends have the same bytes."""
    remote = remote_at(url, timeout=10)
    interrupt("push", full, url, seed)
    transfer.push(KEYS, full, remote, Progress())
    interrupt("pull", empty, url, seed + 1)
    for key in empty.all_keys():
        assert empty.raw(key) == entry_of(key), "what has a name is whole"
    transfer.pull(KEYS, empty, remote, Progress())
    assert entries(empty) == entries(full)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_transfers_that_are_cut_off_leave_the_same_bytes(
    seed: int, full: Cache, empty: Cache, http: http_server.Server
) -> None:
    """bench/scale/cut_off.py does the same a hundred times."""
    http.behaviour = slowly
    interrupted_transfers(full, empty, http.url, seed)


def slowly(handler: Any) -> bool:
    time.sleep(0.003)
    return False
