"""Servers and entries for the tests of what is shared with other machines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("aiohttp", reason="pip install 'kbuild[remote]'")
pytest.importorskip("grpc", reason="pip install 'kbuild[remote]'")

from kbuild.aot.build.cache import encode
from kbuild.aot.environment import Remote
from kbuild.aot.remote.shared import Shared
from kbuild.aot.remote.store import Store
from kbuild.aot.remote.stores import open_store
from tests.aot.remote import http_server, reapi_server

T = TypeVar("T")

KEY = "ab" * 32
SECONDS = 0.4
"""That a request may take in these tests."""


def entry_of(key: str = KEY, size: int = 3000) -> bytes:
    """An entry of a key, different for each."""
    noise = random.Random(key).randbytes(size)
    return encode(key, {"cubin": b"\x7fELF\x02\x01" + noise, "ptx": b"// ptx\n" * 200, "facts": b"{}"})


class Warnings(list[str]):
    """What the user is shown."""

    def __call__(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def warnings() -> Warnings:
    return Warnings()


@pytest.fixture
def http() -> Iterator[http_server.Server]:
    with http_server.serving() as server:
        yield server


@pytest.fixture
def reapi(tmp_path: Path) -> Iterator[reapi_server.Service]:
    with reapi_server.serving(tmp_path / "machines") as service:
        yield service


def remote_at(url: str, **more: Any) -> Remote:
    return Remote(**{"cache": url, "timeout": SECONDS, **more})


def with_store(remote: Remote, use: Callable[[Store], Awaitable[T]]) -> T:
    """What comes of using a store."""

    async def used() -> T:
        store = open_store(remote)
        try:
            return await use(store)
        finally:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(store.close(), 1)

    return asyncio.run(used())


def with_shared(remote: Remote, warn: Callable[[str], None], use: Callable[[Shared], Awaitable[T]]) -> T:
    """What comes of using a shared cache."""
    return with_store(remote, lambda store: use(Shared(store, remote, warn)))
