"""A service of the Remote Execution API in this process, with every mistake that one can make."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import zstandard

from kbuild.aot.remote import protos
from kbuild.aot.remote.protos import MESSAGES, make

_REQUESTS = {
    "GetCapabilities": "GetCapabilitiesRequest",
    "GetActionResult": "GetActionResultRequest",
    "UpdateActionResult": "UpdateActionResultRequest",
    "FindMissingBlobs": "FindMissingBlobsRequest",
    "BatchUpdateBlobs": "BatchUpdateBlobsRequest",
    "BatchReadBlobs": "BatchReadBlobsRequest",
    "Execute": "ExecuteRequest",
    "Read": "ReadRequest",
    "Write": "WriteRequest",
}
_NOT_FOUND = 5


class Service:
    """Blobs, results of actions, and actions that are executed."""

    def __init__(self, folder: Path) -> None:
        self.blobs: dict[str, bytes] = {}
        self.results: dict[str, Any] = {}
        self.calls: list[str] = []
        self.actions: list[str] = []
        """What was executed."""
        self.fail: Callable[[str, grpc.ServicerContext], None] = lambda method, context: None
        """Called before each method, and may abort it."""
        self.change_result: Callable[[Any], Any] = lambda result: result
        self.batch = 0
        self.compressors: list[int] = []
        self.may_update = True
        self.is_ending = threading.Event()
        self.environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
        self.target = ""
        self._folder = folder

    def wait(self) -> None:
        """Says nothing until the test is over."""
        self.is_ending.wait(30)

    def add(self, data: bytes) -> Any:
        digest = make("Digest", hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        self.blobs[digest.hash] = data
        return digest

    def GetCapabilities(self, request: Any, context: grpc.ServicerContext) -> Any:
        cache = make(
            "CacheCapabilities",
            digest_functions=[protos.SHA256],
            action_cache_update_capabilities=make(
                "ActionCacheUpdateCapabilities", update_enabled=self.may_update
            ),
            max_batch_total_size_bytes=self.batch,
            supported_compressors=self.compressors,
            supported_batch_update_compressors=self.compressors,
        )
        executes = make("ExecutionCapabilities", digest_function=protos.SHA256, exec_enabled=True)
        return make("ServerCapabilities", cache_capabilities=cache, execution_capabilities=executes)

    def GetActionResult(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.action_digest.hash not in self.results:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such result")
        return self.change_result(self.results[request.action_digest.hash])

    def UpdateActionResult(self, request: Any, context: grpc.ServicerContext) -> Any:
        assert request.action_digest.hash in self.blobs, "the action goes before its result"
        self.results[request.action_digest.hash] = request.action_result
        return request.action_result

    def FindMissingBlobs(self, request: Any, context: grpc.ServicerContext) -> Any:
        missing = [digest for digest in request.blob_digests if digest.hash not in self.blobs]
        return make("FindMissingBlobsResponse", missing_blob_digests=missing)

    def BatchUpdateBlobs(self, request: Any, context: grpc.ServicerContext) -> Any:
        for one in request.requests:
            data = self._unpacked(one.data) if one.compressor else one.data
            assert self.add(data).hash == one.digest.hash
        responses = [
            make("UpdatedBlob", digest=one.digest, status=make("Status")) for one in request.requests
        ]
        return make("BatchUpdateBlobsResponse", responses=responses)

    def BatchReadBlobs(self, request: Any, context: grpc.ServicerContext) -> Any:
        packs = protos.ZSTD in request.acceptable_compressors
        responses = []
        for digest in request.digests:
            data = self.blobs.get(digest.hash)
            status = make("Status", code=0 if data is not None else _NOT_FOUND)
            packed = zstandard.compress(data or b"") if packs else data or b""
            responses.append(
                make("ReadBlob", digest=digest, data=packed, status=status, compressor=int(packs))
            )
        return make("BatchReadBlobsResponse", responses=responses)

    def Read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        *kind, hash_, _ = request.resource_name.split("/")
        data = self.blobs[hash_]
        data = zstandard.compress(data) if "zstd" in kind else data
        for start in range(0, len(data), 100_000):
            yield make("ReadResponse", data=data[start : start + 100_000])

    def Write(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        name, data, is_whole = "", b"", False
        for request in requests:
            assert not is_whole and request.write_offset == len(data)
            name, data, is_whole = name or request.resource_name, data + request.data, request.finish_write
        size = len(data)
        data = self._unpacked(data) if "/zstd/" in name else data
        assert is_whole and self.add(data).hash == name.split("/")[-2]
        return make("WriteResponse", committed_size=size)

    def Execute(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield make("Operation", name="one")
        result = None if request.skip_cache_lookup else self.results.get(request.action_digest.hash)
        response = make("ExecuteResponse", result=result or self._executed(request.action_digest.hash))
        response = make("ExecuteResponse", result=self.change_result(response.result))
        packed = make(
            "Any",
            type_url="type.googleapis.com/build.bazel.remote.execution.v2.ExecuteResponse",
            value=response.SerializeToString(),
        )
        yield make("Operation", name="one", done=True, response=packed)

    def _executed(self, hash_: str) -> Any:
        """Runs an action's command in its input root."""
        action = protos.parse("Action", self.blobs[hash_])
        command = protos.parse("Command", self.blobs[action.command_digest.hash])
        root = self._folder / f"{len(self.actions)}-{hash_[:8]}"
        self.actions.append(hash_)
        self._lay_out(action.input_root_digest.hash, root)
        variables = {variable.name: variable.value for variable in command.environment_variables}
        done = subprocess.run(
            list(command.arguments),
            cwd=root,
            env={**self.environment, **variables},
            capture_output=True,
            check=False,
        )
        result = make("ActionResult", exit_code=done.returncode, stderr_raw=done.stderr)
        for path in command.output_paths:
            if (root / path).is_file():
                result.output_files.add(path=path, digest=self.add((root / path).read_bytes()))
        if not done.returncode:
            self.results[hash_] = result
        return result

    def _lay_out(self, hash_: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        directory = protos.parse("Directory", self.blobs[hash_])
        assert [file.name for file in directory.files] == sorted(file.name for file in directory.files)
        for file in directory.files:
            (folder / file.name).write_bytes(self.blobs[file.digest.hash])
        for inner in directory.directories:
            self._lay_out(inner.digest.hash, folder / inner.name)

    @staticmethod
    def _unpacked(data: bytes) -> bytes:
        return zstandard.ZstdDecompressor().stream_reader(data).read()


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """A service that works within the context."""
    service = Service(folder)
    with ThreadPoolExecutor(40) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_Handlers(service),))
        service.target = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield service
        finally:
            service.is_ending.set()
            server.stop(None).wait()


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, service: Service) -> None:
        self._service = service
        self._methods = {path: method for method, (path, _) in protos.METHODS.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = self._methods.get(handler_call_details.method)  # type: ignore[arg-type]
        if method is None:
            return None
        called = getattr(self._service, method)

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            self._service.calls.append(method)
            self._service.fail(method, context)
            return called(request, context)

        kinds = {
            "Execute": grpc.unary_stream_rpc_method_handler,
            "Read": grpc.unary_stream_rpc_method_handler,
        }
        kinds["Write"] = grpc.stream_unary_rpc_method_handler  # type: ignore[assignment]
        make_handler = kinds.get(method, grpc.unary_unary_rpc_method_handler)
        return make_handler(
            answer,
            request_deserializer=MESSAGES[_REQUESTS[method]].FromString,
            response_serializer=_serialized,
        )


PYTHON = sys.executable
"""Of the machines that execute actions."""
