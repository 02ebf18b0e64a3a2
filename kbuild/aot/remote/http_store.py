"""A shared cache on an HTTP server, as Bazel, bazel-remote and ccache speak to one.

    GET, PUT <url>/ac/<sha256>     the result of an action, a message of the Remote Execution API that names a blob
    GET, PUT <url>/cas/<sha256>    the blob, whose sha256 is its name; HEAD asks whether it is there

Any server that stores what is put will do, such as nginx with WebDAV, or S3 with requests that are signed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import aiohttp
import zstandard

from kbuild import __version__
from kbuild.aot.environment import Remote
from kbuild.aot.remote import protos
from kbuild.aot.remote.address import Address, authorization
from kbuild.aot.remote.store import Fault, Found, StoreError, Traffic

Sign = Callable[[str, str, bytes], Mapping[str, str]]
"""Gives the headers of a request, of its method, URL and body."""

_CONNECTIONS = 32
_LARGEST_RESULT = 1 << 20
_LONGEST_WAIT = 60.0
"""Seconds that a server may ask to wait."""
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_FAULTS = {
    **dict.fromkeys((401, 403, 405, 407, 501), Fault.REFUSED),
    **dict.fromkeys((408, 425, 429, 500, 502, 503, 504), Fault.BUSY),
    507: Fault.FULL,
}
_ADVICE = {
    401: "; credentials go into the URL, ~/.netrc or KBUILD_REMOTE_TOKEN",
    403: "; the credentials do not allow it",
    413: "; an entry is larger than it takes",
}
_PLAIN_ONLY = (400, 415, 422)
"""Answers of a server that takes compressed bytes for the blob itself."""


class Http:
    """Entries on an HTTP server."""

    def __init__(self, address: Address, remote: Remote, sign: Sign | None = None) -> None:
        """`sign`, if given, takes the place of credentials in the address and of ~/.netrc."""
        self.name = address.shown
        self.traffic = Traffic()
        self._base = address.url.rstrip("/")
        self._sign = sign
        self._headers = {"User-Agent": f"kbuild/{__version__}", **dict(remote.headers)}
        if sign is None:
            self._headers |= authorization(address, remote)
        self._proxy = proxy_of(self._base, remote.environment)
        self._session: aiohttp.ClientSession | None = None
        self._compresses = True

    async def find(self, key: str) -> Found | None:
        action, _ = protos.action_of_entry(key)
        data = await self._get(f"ac/{action.hash}", _LARGEST_RESULT)
        return None if data is None else protos.found_in(data)

    async def holds(self, found: Found) -> bool:
        status, _, _ = await self._request("HEAD", f"cas/{found.hash}", b"", {}, 0)
        return status == 200

    async def read(self, key: str, found: Found) -> bytes | None:
        return await self._get(f"cas/{found.hash}", found.size)

    async def write(self, key: str, entry: bytes) -> None:
        blob = protos.blob(entry)
        action, _ = protos.action_of_entry(key)
        await self._put_blob(blob)
        await self._put(f"ac/{action.hash}", protos.encode(protos.result_of_entry(blob)).data)

    async def describe(self) -> dict[str, str]:
        action, _ = protos.action_of_entry("0" * 64)
        await self._get(f"ac/{action.hash}", _LARGEST_RESULT)
        return {"answers": "yes"}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _get(self, path: str, size: int) -> bytes | None:
        """What is at a path, None where nothing is; `size` bytes at most, uncompressed."""
        status, data, encoding = await self._request("GET", path, b"", {"Accept-Encoding": "zstd"}, size)
        if status in (404, 410):
            return None
        _check(status)
        if encoding == "zstd" or data.startswith(_ZSTD_MAGIC):  # Some servers give back what they got.
            return _decompressed(data, size)
        return data

    async def _put_blob(self, blob: protos.Blob) -> None:
        if self._compresses:
            packed = zstandard.ZstdCompressor().compress(blob.data)
            status = await self._put(f"cas/{blob.hash}", packed, {"Content-Encoding": "zstd"}, _PLAIN_ONLY)
            if status not in _PLAIN_ONLY:
                return
            self._compresses = False
        await self._put(f"cas/{blob.hash}", blob.data)

    async def _put(
        self, path: str, data: bytes, headers: Mapping[str, str] | None = None, allowed: tuple[int, ...] = ()
    ) -> int:
        status, _, _ = await self._request("PUT", path, data, headers or {}, _LARGEST_RESULT)
        if status not in allowed:
            _check(status)
        self.traffic.sent += len(data)
        return status

    async def _request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], limit: int
    ) -> tuple[int, bytes, str]:
        """Status, body and encoding of the answer; raises `StoreError` where there is none, or it asks to
        wait."""
        url = f"{self._base}/{path}"
        headers = {**self._headers, **headers, **(self._sign(method, url, body) if self._sign else {})}
        try:
            async with self._open().request(
                method,
                url,
                data=body or None,
                headers=headers,
                proxy=self._proxy,
                allow_redirects=self._sign is None,
            ) as answer:
                data = await _limited(answer.content, limit)
                self.traffic.received += len(data)
                if _FAULTS.get(answer.status) is Fault.BUSY:
                    raise StoreError(_said(answer.status), Fault.BUSY, _wait(answer.headers))
                return answer.status, data, answer.headers.get("Content-Encoding", "")
        except aiohttp.ClientConnectorError as error:
            raise StoreError(f"no connection: {error.strerror or error}", Fault.UNREACHABLE) from None
        except aiohttp.InvalidURL:
            raise StoreError("that is no URL of a server", Fault.REFUSED) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise StoreError(f"the connection broke: {error or type(error).__name__}", Fault.BUSY) from None

    def _open(self) -> aiohttp.ClientSession:
        """The session, made where its event loop runs."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(),  # `shared.attempted` limits a request as a whole.
                auto_decompress=False,
            )
        return self._session


async def _limited(stream: aiohttp.StreamReader, limit: int) -> bytes:
    """The body of an answer, cut off where it is longer than what was asked for can be."""
    parts: list[bytes] = []
    left = limit + _LARGEST_RESULT  # An error may have a page of its own, and what is incompressible grows.
    async for chunk in stream.iter_any():
        parts.append(chunk)
        left -= len(chunk)
        if left < 0:
            raise StoreError("it sends more than what was asked for", Fault.WRONG)
    return b"".join(parts)


def _decompressed(data: bytes, size: int) -> bytes:
    """Bytes of at most this size; what is damaged comes back as it is, and is found out by its digest."""
    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(size + 1)
    except zstandard.ZstdError:
        return data


def _check(status: int) -> None:
    if not 200 <= status < 300:
        raise StoreError(_said(status), _FAULTS.get(status, Fault.REJECTED))


def _said(status: int) -> str:
    return f"HTTP status {status}{_ADVICE.get(status, '')}"


def _wait(headers: Mapping[str, str]) -> float:
    """The seconds of `Retry-After`.  Its other form, a date, is ignored: clocks differ."""
    text = headers.get("Retry-After", "").strip()
    return min(float(text), _LONGEST_WAIT) if text.isascii() and text.isdigit() else 0.0


def proxy_of(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy for a URL, of the variables that name one everywhere."""
    parts = urlsplit(url)

    def of(name: str) -> str:
        return environment.get(f"{name}_proxy") or environment.get(f"{name.upper()}_PROXY", "")

    host = f".{parts.hostname}"
    direct = [f".{name.strip().lstrip('.')}" for name in of("no").split(",") if name.strip()]
    if ".*" in direct or any(host.endswith(name) for name in direct):
        return None
    return of(parts.scheme) or of("all") or None
