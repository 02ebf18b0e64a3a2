"""A server of the Remote Execution API: its blobs and its results of actions.

`Client` moves blobs and calls methods, for the cache here and for `engine.py`; `Reapi` is a shared cache on top of it.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import zstandard

from kbuild import __version__
from kbuild.aot.build.cache import LARGEST_ENTRY
from kbuild.aot.environment import Remote
from kbuild.aot.remote import protos
from kbuild.aot.remote.address import Address, authorization
from kbuild.aot.remote.protos import Blob, digest, make
from kbuild.aot.remote.store import Fault, Found, StoreError, Traffic

_BATCH = 4_000_000
"""Bytes of one message, which gRPC limits to 4 MiB unless both sides agree on more."""
_PIECE = 1 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.primary_user_agent", f"kbuild/{__version__}"),
    (
        "grpc.keepalive_time_ms",
        300_000,
    ),  # One that has gone without a word is noticed; servers allow no more.
)
_CODE = grpc.StatusCode
_FAULTS = {
    **dict.fromkeys((_CODE.UNAVAILABLE, _CODE.DEADLINE_EXCEEDED), Fault.UNREACHABLE),
    **dict.fromkeys((_CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED, _CODE.UNIMPLEMENTED), Fault.REFUSED),
    **dict.fromkeys(
        (_CODE.INVALID_ARGUMENT, _CODE.OUT_OF_RANGE, _CODE.NOT_FOUND),
        Fault.REJECTED,
    ),
}
"""What a code means; any other that the server is busy."""
_WRITES = ("BatchUpdateBlobs", "UpdateActionResult")
_NOT_FOUND = 5
"""As a number, in the status of one of several blobs."""
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Capabilities:
    """What a server can do, as far as it matters."""

    may_update: bool
    """Whether it takes results of actions."""
    executes: bool
    batch: int
    """Bytes of blobs that it takes in one message."""
    packs: bool
    """Whether it takes and gives blobs in pieces that are compressed."""
    packs_batches: bool
    """Whether it takes compressed blobs in one message."""


class NotFound(StoreError):
    """What was asked for is not there."""


class Client:
    """A connection to one instance of a server.  All methods raise `StoreError`."""

    def __init__(self, address: Address, remote: Remote) -> None:
        self.name = address.shown
        self.traffic = Traffic()
        self.instance = address.path
        self._address = address
        self._metadata = _metadata(address, remote)
        self._channel: grpc.aio.Channel | None = None
        self._capabilities: Capabilities | None = None

    async def call(self, method: str, request: Any) -> Any:
        """The answer of a method that takes one message and gives one; None for NOT_FOUND."""
        path, answer = protos.METHODS[method]
        call = self._open().unary_unary(
            path, request_serializer=_written, response_deserializer=protos.MESSAGES[answer].FromString
        )
        try:
            return await call(request, metadata=self._metadata)
        except grpc.RpcError as error:
            failed = failure(error, method in _WRITES)
            if isinstance(failed, NotFound):
                return None
            raise failed from None

    async def stream(self, method: str, request: Any) -> AsyncIterator[Any]:
        """The messages that a method gives for one."""
        path, answer = protos.METHODS[method]
        call = self._open().unary_stream(
            path, request_serializer=_written, response_deserializer=protos.MESSAGES[answer].FromString
        )
        try:
            async for message in call(request, metadata=self._metadata):
                yield message
        except grpc.RpcError as error:
            raise failure(error) from None

    async def capabilities(self) -> Capabilities:
        """What the server can do, which is asked once."""
        if self._capabilities is None:
            said = await self.call(
                "GetCapabilities", make("GetCapabilitiesRequest", instance_name=self.instance)
            )
            if said is None:
                raise StoreError(f"it has no instance {self.instance!r}", Fault.REFUSED)
            cache = said.cache_capabilities
            if cache.digest_functions and protos.SHA256 not in cache.digest_functions:
                raise StoreError("it does not know blobs by their sha256", Fault.REFUSED)
            self._capabilities = Capabilities(
                cache.action_cache_update_capabilities.update_enabled,
                said.execution_capabilities.exec_enabled,
                min(cache.max_batch_total_size_bytes or _BATCH, _BATCH),
                protos.ZSTD in cache.supported_compressors,
                protos.ZSTD in cache.supported_batch_update_compressors,
            )
        return self._capabilities

    async def result(self, action: Blob) -> bytes | None:
        """The encoded result of an action; None where it has none."""
        request = make(
            "GetActionResultRequest",
            instance_name=self.instance,
            action_digest=digest(action),
            inline_output_files=[protos.OUTPUT],
        )
        answer = await self.call("GetActionResult", request)
        if answer is None:
            return None
        data = answer.SerializeToString()
        self.traffic.received += len(data)
        return data

    async def read(self, hash: str, size: int) -> bytes | None:
        """The bytes of a blob, unchecked; None where it is not there."""
        capabilities = await self.capabilities()
        return await (self._read_one if size <= capabilities.batch else self._read_pieces)(hash, size)

    async def missing(self, sizes: Mapping[str, int]) -> set[str]:
        """Which blobs are not there, of some with these sha256s and sizes."""
        digests = [make("Digest", hash=hash, size_bytes=size) for hash, size in sizes.items()]
        request = make("FindMissingBlobsRequest", instance_name=self.instance, blob_digests=digests)
        answer = await self.call("FindMissingBlobs", request)
        return {found.hash for found in answer.missing_blob_digests} if answer is not None else set(sizes)

    async def upload(self, blobs: Collection[Blob]) -> None:
        """Brings blobs there that are missing, and only those."""
        capabilities = await self.capabilities()
        by_hash = {blob.hash: blob for blob in blobs if blob.data}
        missing = await self.missing({hash: len(blob.data) for hash, blob in by_hash.items()})
        wanted = [blob for hash, blob in by_hash.items() if hash in missing]
        for batch in _batches(
            [blob for blob in wanted if len(blob.data) <= capabilities.batch], capabilities.batch
        ):
            await self._write_batch(batch, capabilities)
        for blob in wanted:
            if len(blob.data) > capabilities.batch:
                await self._write_pieces(blob, capabilities)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def _read_one(self, hash: str, size: int) -> bytes | None:
        wanted = make("Digest", hash=hash, size_bytes=size)
        request = make(
            "BatchReadBlobsRequest",
            instance_name=self.instance,
            digests=[wanted],
            acceptable_compressors=[protos.ZSTD] if (await self.capabilities()).packs else [],
        )
        answer = await self.call("BatchReadBlobs", request)
        for read in answer.responses if answer is not None else ():
            if read.digest.hash == hash and read.status.code != _NOT_FOUND:
                check(read.status)
                self.traffic.received += len(read.data)
                return _unpacked(read.data, size) if read.compressor == protos.ZSTD else read.data
        return None

    async def _read_pieces(self, hash: str, size: int) -> bytes | None:
        packs = (await self.capabilities()).packs
        name = self._resource(f"{'compressed-blobs/zstd' if packs else 'blobs'}/{hash}/{size}")
        pieces: list[bytes] = []
        received = 0
        try:
            async for piece in self.stream("Read", make("ReadRequest", resource_name=name)):
                pieces.append(piece.data)
                received += len(piece.data)
                if received > size + _PIECE:
                    raise StoreError("it sends more than what was asked for", Fault.WRONG)
        except NotFound:
            return None
        self.traffic.received += received
        return _unpacked(b"".join(pieces), size) if packs else b"".join(pieces)

    async def _write_batch(self, blobs: Sequence[Blob], capabilities: Capabilities) -> None:
        packs = capabilities.packs_batches
        requests = [
            make(
                "UpdateBlob",
                digest=digest(blob),
                data=_packed(blob.data) if packs else blob.data,
                compressor=protos.ZSTD if packs else 0,
            )
            for blob in blobs
        ]
        answer = await self.call(
            "BatchUpdateBlobs",
            make("BatchUpdateBlobsRequest", instance_name=self.instance, requests=requests),
        )
        for response in answer.responses if answer is not None else ():
            check(response.status, is_write=True)
        self.traffic.sent += sum(len(request.data) for request in requests)

    async def _write_pieces(self, blob: Blob, capabilities: Capabilities) -> None:
        data = _packed(blob.data) if capabilities.packs else blob.data
        kind = "compressed-blobs/zstd" if capabilities.packs else "blobs"
        name = self._resource(f"uploads/{uuid.uuid4()}/{kind}/{blob.hash}/{len(blob.data)}")

        async def pieces() -> AsyncIterator[Any]:
            for start in range(0, len(data), _PIECE):
                piece, is_last = data[start : start + _PIECE], start + _PIECE >= len(data)
                yield make(
                    "WriteRequest", resource_name=name, write_offset=start, data=piece, finish_write=is_last
                )

        path, answer = protos.METHODS["Write"]
        call = self._open().stream_unary(
            path, request_serializer=_written, response_deserializer=protos.MESSAGES[answer].FromString
        )
        try:
            done = await call(pieces(), metadata=self._metadata)
        except grpc.RpcError as error:
            raise failure(error, is_write=True) from None
        if done.committed_size not in (len(data), len(blob.data), -1):  # -1: it had it all along.
            raise StoreError("it took only a part of a blob", Fault.BUSY)
        self.traffic.sent += len(data)

    def _resource(self, path: str) -> str:
        return f"{self.instance}/{path}" if self.instance else path

    def _open(self) -> grpc.aio.Channel:
        """The channel, made where its event loop runs."""
        if self._channel is None:
            target = self._address.netloc
            if self._address.scheme == "grpcs":
                target = target if ":" in target.rpartition("]")[2] else f"{target}:443"
                credentials = grpc.ssl_channel_credentials()
                self._channel = grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
            else:
                self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        return self._channel


class Reapi:
    """Entries on a server of the Remote Execution API."""

    def __init__(self, address: Address, remote: Remote) -> None:
        self._client = Client(address, remote)
        self.name = self._client.name
        self.traffic = self._client.traffic

    async def find(self, key: str) -> Found | None:
        action, _ = protos.action_of_entry(key)
        data = await self._client.result(action)
        return None if data is None else protos.found_in(data)

    async def holds(self, found: Found) -> bool:
        return not await self._client.missing({found.hash: found.size})

    async def read(self, key: str, found: Found) -> bytes | None:
        return await self._client.read(found.hash, found.size)

    async def write(self, key: str, entry: bytes) -> None:
        if not (await self._client.capabilities()).may_update:
            raise StoreError("it takes no results from builds", Fault.REFUSED)
        blob = protos.blob(entry)
        action, command = protos.action_of_entry(key)
        await self._client.upload([blob, action, command])
        request = make(
            "UpdateActionResultRequest",
            instance_name=self._client.instance,
            action_digest=digest(action),
            action_result=protos.result_of_entry(blob),
        )
        if await self._client.call("UpdateActionResult", request) is None:
            raise StoreError("it lost what was just sent", Fault.BUSY)

    async def describe(self) -> dict[str, str]:
        capabilities = await self._client.capabilities()
        return {
            "takes results": "yes" if capabilities.may_update else "no",
            "executes": "yes" if capabilities.executes else "no",
            "zstd": "yes" if capabilities.packs else "no",
        }

    async def close(self) -> None:
        await self._client.close()


def failure(error: grpc.RpcError, is_write: bool = False) -> StoreError:
    """The error of a call that failed."""
    code = getattr(error, "code", lambda: _CODE.UNKNOWN)()
    return _error(code, getattr(error, "details", lambda: "")() or "", is_write)


def check(status: Any, is_write: bool = False) -> None:
    """Raises `StoreError` for a status that is not OK."""
    if status.code:
        code = next((code for code in _CODE if code.value[0] == status.code), _CODE.UNKNOWN)
        raise _error(code, status.message, is_write)


def _error(code: grpc.StatusCode, details: str, is_write: bool) -> StoreError:
    text = details.splitlines()[0][:_LONGEST_TEXT] if details else ""
    fault = _FAULTS.get(code, Fault.BUSY)
    if is_write and code is _CODE.RESOURCE_EXHAUSTED:
        fault = Fault.FULL
    kind = NotFound if code is _CODE.NOT_FOUND else StoreError
    return kind(f"{code.name}: {text}".removesuffix(": "), fault)


def _metadata(address: Address, remote: Remote) -> tuple[tuple[str, str | bytes], ...]:
    """What goes with each call: who asks, and the credentials."""
    tool = make("ToolDetails", tool_name="kbuild", tool_version=__version__)
    asking = make("RequestMetadata", tool_details=tool, tool_invocation_id=str(uuid.uuid4()))
    given = (*authorization(address, remote).items(), *remote.headers)
    return (protos.METADATA, asking.SerializeToString()), *((name.lower(), value) for name, value in given)


def _written(message: Any) -> bytes:
    return message.SerializeToString()


def _batches(blobs: Sequence[Blob], limit: int) -> list[list[Blob]]:
    """Blobs in messages of limited size."""
    batches: list[list[Blob]] = []
    room = 0
    for blob in blobs:
        size = len(blob.data) + len(blob.hash) + 32
        if size > room or not batches:
            batches.append([])
            room = limit
        batches[-1].append(blob)
        room -= size
    return batches


def _packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def _unpacked(data: bytes, size: int) -> bytes:
    """Bytes of at most this size; what is damaged comes back as it is, and is found out by its digest."""
    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(min(size, LARGEST_ENTRY) + 1)
    except zstandard.ZstdError:
        return data
