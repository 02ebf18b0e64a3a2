"""Machines that execute steps: a small adapter of the Remote Workers API, through which BuildGrid gives out actions.

BuildGrid's own worker is a program in C++.  This one does what it does without a sandbox: it takes a lease, lays out the
input root, runs the command there, and brings the output files to the store of blobs.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as reapi
from buildgrid._protos.build.bazel.remote.execution.v2.remote_execution_pb2_grpc import (
    ContentAddressableStorageStub,
)
from buildgrid._protos.google.devtools.remoteworkers.v1test2 import bots_pb2, worker_pb2
from buildgrid._protos.google.devtools.remoteworkers.v1test2.bots_pb2_grpc import BotsStub

_LONGEST_POLL = 5.0
"""Seconds."""


class Bots:
    """Several machines, each of which executes one action at a time; they work within the context."""

    def __init__(self, target: str, folder: Path, count: int, environment: Mapping[str, str]) -> None:
        """`environment` is what their commands start with, before the variables of an action."""
        self.actions: list[list[str]] = []
        """The commands that were run."""
        self._target, self._folder, self._environment = target, folder, environment
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(count)]

    def __enter__(self) -> Bots:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        with grpc.insecure_channel(self._target) as channel:
            bots, store = BotsStub(channel), _Store(channel)
            session = bots_pb2.BotSession(
                bot_id=f"bot-{number}-{uuid.uuid4()}",
                status=bots_pb2.BotStatus.OK,
                worker=worker_pb2.Worker(devices=[worker_pb2.Device(handle="host")]),
            )
            session = bots.CreateBotSession(
                bots_pb2.CreateBotSessionRequest(parent="", bot_session=session), timeout=_LONGEST_POLL
            )
            while not self._is_over.is_set():
                for lease in session.leases:
                    if lease.state == bots_pb2.LeaseState.PENDING:
                        lease.state = bots_pb2.LeaseState.ACTIVE
                    elif lease.state == bots_pb2.LeaseState.ACTIVE:
                        lease.result.Pack(self._result(store, lease.payload))
                        lease.state = bots_pb2.LeaseState.COMPLETED
                request = bots_pb2.UpdateBotSessionRequest(name=session.name, bot_session=session)
                with suppress(grpc.RpcError):  # It had nothing to do, for as long as it may wait.
                    session = bots.UpdateBotSession(request, timeout=_LONGEST_POLL)

    def _result(self, store: _Store, payload: Any) -> Any:
        """The result of an action."""
        action, digest = reapi.Action(), reapi.Digest()
        if not payload.Unpack(action):
            payload.Unpack(digest)
            action.ParseFromString(store.read(digest))
        command = reapi.Command.FromString(store.read(action.command_digest))
        root = self._folder / uuid.uuid4().hex
        store.lay_out(action.input_root_digest, root)
        variables = {variable.name: variable.value for variable in command.environment_variables}
        done = subprocess.run(
            list(command.arguments),
            cwd=root / command.working_directory,
            env={**self._environment, **variables},
            capture_output=True,
            timeout=action.timeout.seconds or None,
            check=False,
        )
        result = reapi.ActionResult(exit_code=done.returncode, stdout_raw=done.stdout, stderr_raw=done.stderr)
        for path in command.output_paths:
            if (root / path).is_file():
                result.output_files.add(path=path, digest=store.write((root / path).read_bytes()))
        shutil.rmtree(root)
        self.actions.append(list(command.arguments))
        return result


class _Store:
    """The store of blobs; it remembers what it has read."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = ContentAddressableStorageStub(channel)
        self._known: dict[str, bytes] = {}

    def read(self, digest: Any) -> bytes:
        if digest.hash not in self._known:
            answer = self._stub.BatchReadBlobs(reapi.BatchReadBlobsRequest(digests=[digest]))
            self._known[digest.hash] = answer.responses[0].data
            assert hashlib.sha256(self._known[digest.hash]).hexdigest() == digest.hash
        return self._known[digest.hash]

    def write(self, data: bytes) -> Any:
        digest = reapi.Digest(hash=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        request = reapi.BatchUpdateBlobsRequest.Request(digest=digest, data=data)
        self._stub.BatchUpdateBlobs(reapi.BatchUpdateBlobsRequest(requests=[request]))
        return digest

    def lay_out(self, digest: Any, folder: Path) -> None:
        """Makes a folder with the files and folders of a directory."""
        folder.mkdir(parents=True)
        directory = reapi.Directory.FromString(self.read(digest)) if digest.size_bytes else reapi.Directory()
        for file in directory.files:
            (folder / file.name).write_bytes(self.read(file.digest))
        for inner in directory.directories:
            self.lay_out(inner.digest, folder / inner.name)
