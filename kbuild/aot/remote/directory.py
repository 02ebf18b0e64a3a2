"""A shared cache in a directory, `file:///mnt/cache`, which may be one of a network."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kbuild.aot.build.cache import Cache, usable
from kbuild.aot.remote.store import Fault, Found, StoreError, Traffic


class Directory:
    """The same folders and files as the cache of one machine.

    An entry is written beside them and gets its name in one step, which file systems on a network do as well.
    """

    def __init__(self, root: Path, is_read_only: bool) -> None:
        self.name = f"file://{root}"
        self.traffic = Traffic()
        self._cache = Cache(root, is_read_only=is_read_only)
        self._root, self._is_read_only = root, is_read_only
        self._is_checked = False

    async def find(self, key: str) -> Found | None:
        return await asyncio.to_thread(self._find, key)  # A server that is away stops those who ask it.

    async def holds(self, found: Found) -> bool:
        return True

    async def read(self, key: str, found: Found) -> bytes | None:
        data = await asyncio.to_thread(self._cache.raw, key)
        await asyncio.to_thread(self._cache.touch, key)
        self.traffic.received += len(data or b"")
        return data

    async def write(self, key: str, entry: bytes) -> None:
        await asyncio.to_thread(self._write, key, entry)
        self.traffic.sent += len(entry)

    async def describe(self) -> dict[str, str]:
        await asyncio.to_thread(self._check)
        keys = await asyncio.to_thread(lambda: list(self._cache.all_keys()))
        return {"entries": str(len(keys))}

    async def close(self) -> None:
        pass

    def _find(self, key: str) -> Found | None:
        self._check()
        try:
            return Found("", self._cache.entry(key).lstat().st_size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(error.strerror or str(error), Fault.BUSY) from None

    def _write(self, key: str, entry: bytes) -> None:
        self._check()
        if not self._cache.put_raw(key, entry):
            raise StoreError("it cannot be written to, or is full", Fault.FULL)

    def _check(self) -> None:
        """Raises unless the directory is one that may be trusted, and used as asked for."""
        if self._is_checked:
            return
        if not self._root.is_dir():
            raise StoreError("there is no such directory", Fault.UNREACHABLE)
        if why := usable(self._root, self._is_read_only):
            raise StoreError(why.removeprefix(f"{self._root}: "), Fault.REFUSED)
        self._is_checked = True
