"""Whatever a server does, a build gets right entries or none, in limited time, with one warning."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import zstandard

from kbuild.aot.remote import protos, shared
from kbuild.aot.remote.shared import Gate, Shared, attempted
from kbuild.aot.remote.store import Fault, StoreError
from tests.aot.remote import http_server, reapi_server
from tests.aot.remote.conftest import KEY, SECONDS, Warnings, entry_of, remote_at, with_shared
from tests.aot.remote.http_server import Behaviour, Handler

KEYS = [f"{number:064x}" for number in range(12)]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_PAUSE", 0.001)


async def get_all(cache: Shared) -> list[bytes | None]:
    return [await cache.get(key) for key in KEYS]


async def put_all(cache: Shared) -> list[bool]:
    return [await cache.put(key, entry_of(key)) for key in KEYS]


BOMB = zstandard.compress(bytes(1 << 26))
RIGHT = [entry_of(key) for key in KEYS]


def filled(url: str) -> str:
    assert with_shared(remote_at(url, timeout=10), Warnings(), put_all) == [True] * len(KEYS)
    return url


def cas_only(answer: Behaviour) -> Behaviour:
    return lambda handler: "/cas/" in handler.path and answer(handler)


def swapped(handler: Handler) -> bool:
    """Gives the result of another action: a real entry, of another key."""
    results = sorted(path for path in handler.server.held if "/ac/" in path)
    if handler.path not in results:
        return False
    return handler.answer(200, handler.server.held[results[results.index(handler.path) - 1]])


def cut_short(handler: Handler) -> bool:
    held = handler.server.held[handler.path]
    handler.close_connection = True
    handler.wfile.write(
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(held)}\r\n\r\n".encode() + held[: len(held) // 2]
    )
    return True


def silently_cut_short(handler: Handler) -> bool:
    """As a proxy that runs into its own limit: the connection ends, and nobody said where it was to."""
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + handler.server.held[handler.path][:100])
    return True


def endless(handler: Handler) -> bool:
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(10_000):
        if handler.server.is_ending.is_set():
            break
        handler.wfile.write(bytes(100_000))
    return True


def flipped(handler: Handler) -> bool:
    held = bytearray(zstandard.ZstdDecompressor().stream_reader(handler.server.held[handler.path]).read())
    held[len(held) // 2] ^= 1
    return handler.answer(200, bytes(held))


def bomb(handler: Handler) -> bool:
    """Sixteen thousand times as many zeros as bytes that are sent."""
    return handler.answer(200, BOMB, Content_Encoding="zstd")


def garbage(handler: Handler) -> bool:
    handler.close_connection = True
    handler.wfile.write(b"\x16\x03\x01" * 1000)
    return True


UNREADABLE: dict[str, tuple[Behaviour, str]] = {
    "hangs": (Handler.wait, "no answer within 0.4 seconds"),
    "hangs with blobs": (cas_only(Handler.wait), "no answer within"),
    "one byte a second": (lambda handler: handler.drip(b"x" * 1000), "no answer within"),
    "blobs by the byte": (cas_only(lambda handler: handler.drip(b"x" * 1000)), "no answer within"),
    "fails": (lambda handler: handler.answer(500), "HTTP status 500"),
    "is overloaded": (lambda handler: handler.answer(429), "HTTP status 429"),
    "asks to wait for longer than there is": (
        lambda handler: handler.answer(503, Retry_After="3600"),
        "HTTP status 503",
    ),
    "wants a password": (lambda handler: handler.answer(401), "HTTP status 401; credentials go into"),
    "wants somebody else": (lambda handler: handler.answer(403), "HTTP status 403; the credentials"),
    "another entry": (swapped, "is not what its name says"),
    "no result": (
        lambda handler: handler.answer(200, b"<html>hello</html>"),
        "under the name of a result is none",
    ),
    "a bit flipped": (cas_only(flipped), "is not what its name says"),
    "half a blob": (cas_only(cut_short), "the connection broke"),
    "half a blob and no word of it": (cas_only(silently_cut_short), "is not what its name says"),
    "more than was asked for": (cas_only(endless), "it sends more than what was asked for"),
    "a bomb": (cas_only(bomb), "is not what its name says"),
    "something else than HTTP": (garbage, "the connection broke"),
}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_server_that_cannot_be_read_is_done_without(
    fault: str, http: http_server.Server, warnings: Warnings
) -> None:
    filled(http.url)
    http.behaviour, said = UNREADABLE[fault]
    found = with_shared(remote_at(http.url), warnings, get_all)
    assert found == [None] * len(KEYS)
    assert len(http.log) < 60, "it is asked no more"
    assert 1 <= len(warnings) <= 2 and said in warnings[0] and warnings[-1].endswith("; building without it")


def test_what_a_server_has_forgotten_is_absent(
    http: http_server.Server, reapi: reapi_server.Service, warnings: Warnings
) -> None:
    """It may keep names for longer than what they stand for."""
    filled(http.url)
    filled(reapi.target)
    http.held = {path: data for path, data in http.held.items() if "/ac/" in path}
    reapi.blobs.clear()
    for url in (http.url, reapi.target):
        assert with_shared(remote_at(url), warnings, get_all) == [None] * len(KEYS) and warnings == []
        filled(url)
        assert with_shared(remote_at(url), warnings, get_all) == RIGHT


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_fails_now_and_then_is_asked_again(
    status: int, http: http_server.Server, warnings: Warnings
) -> None:
    filled(http.url)
    requests = iter(range(10_000))
    http.behaviour = lambda handler: next(requests) % 3 != 2 and handler.answer(status, Retry_After="0")
    assert with_shared(remote_at(http.url, timeout=10), warnings, get_all) == RIGHT and warnings == []


def test_a_download_that_breaks_off_is_repeated(http: http_server.Server, warnings: Warnings) -> None:
    filled(http.url)
    requests = iter(range(10_000))
    http.behaviour = cas_only(lambda handler: next(requests) % 2 == 0 and cut_short(handler))
    assert with_shared(remote_at(http.url, timeout=10), warnings, get_all) == RIGHT and warnings == []


UNWRITABLE: dict[str, tuple[Behaviour, str]] = {
    "its disk is full": (lambda handler: handler.command == "PUT" and handler.answer(507), "HTTP status 507"),
    "it is only read": (lambda handler: handler.command == "PUT" and handler.answer(405), "HTTP status 405"),
    "others may write": (lambda handler: handler.command == "PUT" and handler.answer(403), "HTTP status 403"),
    "too large": (
        lambda handler: handler.command == "PUT" and handler.answer(413),
        "413; an entry is larger",
    ),
    "it fails": (lambda handler: handler.command == "PUT" and handler.answer(500), "HTTP status 500"),
}


@pytest.mark.parametrize("fault", UNWRITABLE)
def test_a_server_that_takes_nothing_is_still_read(
    fault: str, http: http_server.Server, warnings: Warnings
) -> None:
    filled(http.url)
    http.behaviour, said = UNWRITABLE[fault]

    async def use(cache: Shared) -> tuple[list[bool], list[bytes | None]]:
        return await put_all(cache), await get_all(cache)

    stored, found = with_shared(remote_at(http.url, timeout=10), warnings, use)
    assert stored == [False] * len(KEYS) and found == RIGHT
    assert (
        said in warnings[0] and warnings[-1].endswith("; nothing more is sent there") and len(warnings) <= 2
    )


def test_one_entry_that_is_too_large_keeps_no_other_back(
    http: http_server.Server, warnings: Warnings
) -> None:
    http.behaviour = lambda handler: (
        int(handler.headers.get("Content-Length", 0)) > 50_000 and handler.answer(413)
    )

    async def use(cache: Shared) -> list[bool]:
        return [await cache.put(KEY, entry_of(size=100_000)), *await put_all(cache)]

    assert with_shared(remote_at(http.url, timeout=10), warnings, use) == [False] + [True] * len(KEYS)
    assert len(warnings) == 1 and "413" in warnings[0]


def test_a_server_that_is_not_there(warnings: Warnings) -> None:
    with http_server.serving() as server:
        url = server.url
    for address in (url, url.replace("http", "grpc")):
        warnings.clear()
        assert with_shared(remote_at(address), warnings, get_all) == [None] * len(KEYS)
        assert len(warnings) == 1 and warnings[0].endswith("; building without it")


def test_a_server_that_was_away_is_tried_again(warnings: Warnings, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one request after half a minute, and after a minute more."""
    now = [1000.0]
    monkeypatch.setattr(shared.time, "monotonic", lambda: now[0])
    gate = Gate("server", "steps run here", warnings)
    away = StoreError("nobody answers", Fault.UNREACHABLE)

    def after(seconds: float) -> list[bool]:
        now[0] += seconds
        return [gate.enters(), gate.enters()]

    assert after(0) == [True, True]
    for _ in range(32):  # As many as were under way.
        gate.failed(away)
    assert after(29) == [False, False] and after(1) == [True, False]
    gate.failed(away)
    assert after(59) == [False, False] and after(1) == [True, False]
    gate.passed()
    assert after(0) == [True, True]
    assert warnings == ["warning: server: nobody answers; steps run here", "server answers again"]
    gate.failed(StoreError("no entry without a password", Fault.REFUSED))
    assert after(1e9) == [False, False]


def aborting(code: grpc.StatusCode, *methods: str) -> Callable[[str, grpc.ServicerContext], None]:
    def fail(method: str, context: grpc.ServicerContext) -> None:
        if not methods or method in methods:
            context.abort(code, "as the test says")

    return fail


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE: as the test says"),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"),
        (grpc.StatusCode.INTERNAL, "INTERNAL"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"),
    ],
)
def test_a_service_that_cannot_be_read_is_done_without(
    code: grpc.StatusCode, said: str, reapi: reapi_server.Service, warnings: Warnings
) -> None:
    filled(reapi.target)
    reapi.fail = aborting(code)
    assert with_shared(remote_at(reapi.target), warnings, get_all) == [None] * len(KEYS)
    assert said in warnings[0] and warnings[-1].endswith("; building without it") and len(warnings) <= 2


def test_a_service_that_hangs_is_done_without(reapi: reapi_server.Service, warnings: Warnings) -> None:
    filled(reapi.target)
    reapi.fail = lambda method, context: reapi.wait()
    assert with_shared(remote_at(reapi.target), warnings, get_all) == [None] * len(KEYS)
    assert warnings == [f"warning: {reapi.target}: no answer within {SECONDS} seconds; building without it"]


def test_a_service_that_lies_is_done_without(reapi: reapi_server.Service, warnings: Warnings) -> None:
    filled(reapi.target)
    reapi.blobs = {hash_: data[:-1] + b"?" for hash_, data in reapi.blobs.items()}
    assert with_shared(remote_at(reapi.target), warnings, get_all) == [None] * len(KEYS)
    assert "is not what its name says" in warnings[0]


def test_a_service_that_gives_results_of_other_actions(
    reapi: reapi_server.Service, warnings: Warnings
) -> None:
    filled(reapi.target)
    one = next(iter(reapi.results.values()))
    reapi.change_result = lambda result: one
    found = with_shared(remote_at(reapi.target), warnings, get_all)
    assert set(found) <= {None, *RIGHT} and sum(entry is not None for entry in found) <= 1


def test_a_service_whose_disk_is_full_is_still_read(reapi: reapi_server.Service, warnings: Warnings) -> None:
    filled(reapi.target)
    reapi.blobs.pop(protos.blob(RIGHT[3]).hash)
    reapi.fail = aborting(grpc.StatusCode.RESOURCE_EXHAUSTED, "BatchUpdateBlobs")

    async def use(cache: Shared) -> tuple[bool, bytes | None]:
        return await cache.put(KEYS[3], RIGHT[3]), await cache.get(KEYS[0])

    assert with_shared(remote_at(reapi.target, timeout=5), warnings, use) == (False, RIGHT[0])
    assert warnings[0].endswith("RESOURCE_EXHAUSTED: as the test says; nothing more is sent there")


def test_a_service_that_takes_no_results(reapi: reapi_server.Service, warnings: Warnings) -> None:
    reapi.may_update = False
    assert not with_shared(remote_at(reapi.target), warnings, lambda cache: cache.put(KEY, entry_of()))
    assert "it takes no results from builds; nothing more is sent there" in warnings[0]


def test_a_directory_that_damages_entries(tmp_path: Path, warnings: Warnings) -> None:
    (tmp_path / "shared").mkdir(mode=0o700)
    url = filled(f"file://{tmp_path}/shared")
    files = sorted((tmp_path / "shared/entries").glob("*/*"))
    files[0].write_bytes(files[0].read_bytes()[:100])
    files[1].write_bytes(b"")
    files[2].write_bytes(files[3].read_bytes())
    found = with_shared(remote_at(url), warnings, get_all)
    assert found[:3] == [None] * 3 and found[3:] == RIGHT[3:] and len(warnings) == 1


def test_a_directory_that_has_gone(tmp_path: Path, warnings: Warnings) -> None:
    assert with_shared(remote_at(f"file://{tmp_path}/none"), warnings, get_all) == [None] * len(KEYS)
    assert warnings == [f"warning: file://{tmp_path}/none: there is no such directory; building without it"]


def test_pauses_are_random_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[tuple[float, float]] = []
    monkeypatch.setattr(shared.random, "uniform", lambda low, high: pauses.append((low, high)) or 0.0)

    async def fail() -> None:
        raise StoreError("busy", Fault.BUSY)

    with pytest.raises(StoreError):
        asyncio.run(attempted(60, fail))
    assert pauses == [(0, 0.001 * 2**number) for number in range(4)]


def test_mistakes_of_a_library_end_no_build() -> None:
    async def fail() -> Any:
        raise KeyError("of somebody else")

    with pytest.raises(StoreError, match="KeyError"):
        asyncio.run(attempted(60, fail))


@contextmanager
def accepting() -> Iterator[str]:
    """A port where connections are taken and nothing is ever said."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        held: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):  # Closed.
                while True:
                    held.append(listening.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_port_that_says_nothing(scheme: str, warnings: Warnings) -> None:
    with accepting() as netloc:
        assert with_shared(remote_at(f"{scheme}://{netloc}"), warnings, get_all) == [None] * len(KEYS)
    assert len(warnings) == 1 and "no answer within" in warnings[0]
