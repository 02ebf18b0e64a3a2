"""Steps executed by a service of the Remote Execution API: each variant is an action.

    <input root>/
      run.py            on_worker.py
      action.json       the job, the key of its entry, digests of the tools
      kbuild.zip        the sources of kbuild, for machines that have another one or none
      project/          the kernel's file, and all that it imports or includes below the project

The command is `python3 run.py`, its output the file `entry`.  What comes back is used only if it is an entry of the key
that was asked for.
"""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from kbuild.aot.artifact.sources import reached
from kbuild.aot.build.cache import decode
from kbuild.aot.build.plan import Job
from kbuild.aot.environment import Remote
from kbuild.aot.identity import canonical_json, kbuild_identity
from kbuild.aot.remote import protos
from kbuild.aot.remote.action import COMPILE_ERROR
from kbuild.aot.remote.address import Address
from kbuild.aot.remote.protos import Blob, digest, make
from kbuild.aot.remote.reapi import Client, check
from kbuild.aot.remote.shared import Gate, attempted
from kbuild.aot.remote.store import Fault, StoreError

_LONGEST_STEP = 900
"""Seconds that the command itself may take."""
_LONGEST_TEXT = 300
_TRIES = 2
"""Each of them takes as long as a step."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
_KBUILD = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Request:
    """What the actions of one build have in common."""

    project: Path
    compiler: str
    """The function that compiles, as `module:function`."""
    source_digest: str
    """The function that gives the digest of a kernel's source."""
    tools: Mapping[str, str]
    """sha256 of the tools, by name."""


class ReapiEngine:
    """A service that executes steps."""

    def __init__(
        self, address: Address, remote: Remote, request: Request, warn: Callable[[str], None]
    ) -> None:
        self.client = Client(address, remote)
        self.name, self.traffic = self.client.name, self.client.traffic
        self._remote, self._request = remote, request
        self._gate = Gate(self.name, "steps run on this machine", warn)
        self._files: dict[tuple[str, tuple[str, ...]], dict[str, Blob]] = {}
        self._sent: set[str] = set()
        self._sending = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether it works, or is to be tried again."""
        return self._gate.is_open

    def enters(self) -> bool:
        """Whether one more step may be executed now."""
        return self._gate.enters()

    async def execute(self, job: Job, key: str, is_portable: bool) -> bytes | None:
        """The entry of a job, or of its PTX for newer GPUs; None where that failed."""
        try:
            blobs, action = self._action(job, key, is_portable)
        except OSError:
            return None  # A source has gone; the step says so.
        skip = False

        async def once() -> bytes | None:
            nonlocal skip
            try:
                await self._upload(blobs)
                data = await self._result(action, skip)
            except StoreError:
                self._sent.clear()  # It may have lost what it had.
                raise
            finally:
                skip = True  # If this is repeated, then because the result was not to be had.
            if data is not None and decode(key, data) is None:
                raise StoreError(
                    f"it made something else than entry {key[:12]}, which is not used", Fault.WRONG
                )
            return data

        try:
            data = await attempted(self._remote.job_timeout, once, _TRIES)
        except StoreError as error:
            self._gate.failed(error)
            return None
        self._gate.passed()
        return data

    async def close(self) -> None:
        await self.client.close()

    async def _upload(self, blobs: Sequence[Blob]) -> None:
        """Brings what is missing there; the first action alone, for it has what all others have as well."""
        if not self._sent:
            async with self._sending:
                if not self._sent:
                    await self._send(blobs)
        await self._send(blobs)

    async def _send(self, blobs: Sequence[Blob]) -> None:
        if fresh := [blob for blob in blobs if blob.hash not in self._sent]:
            await self.client.upload(fresh)
            self._sent.update(blob.hash for blob in fresh)

    async def _result(self, action: Blob, skips_cache: bool) -> bytes | None:
        """The file that an action made; None where its command says that the kernel is wrong."""
        request = make(
            "ExecuteRequest",
            instance_name=self.client.instance,
            action_digest=digest(action),
            skip_cache_lookup=skips_cache,
        )
        response = None
        async for operation in self.client.stream("Execute", request):
            if operation.done:
                check(operation.error)
                response = protos.parse("ExecuteResponse", operation.response.value)
        if response is None:
            raise StoreError("it broke off before the step was done", Fault.BUSY)
        check(response.status)
        if response.result.exit_code == COMPILE_ERROR:
            return None
        if response.result.exit_code:
            said = await self._said(response.result)
            raise StoreError(f"a machine there could not do a step: {said}", Fault.REJECTED)
        found = protos.found_in(response.result.SerializeToString())
        data = found.contents or await self.client.read(found.hash, found.size)
        if data is None:
            raise StoreError("it has lost what a step made", Fault.BUSY)
        return data

    async def _said(self, result: Any) -> str:
        """What a command that failed wrote, or else its exit code."""
        text = result.stderr_raw
        if not text and result.stderr_digest.size_bytes:
            text = await self.client.read(result.stderr_digest.hash, result.stderr_digest.size_bytes) or b""
        lines = text.decode(errors="replace").strip().splitlines()
        # Of a traceback the last line, of kbuild's own messages the first, without what they advise.
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines[-1:] or [f"exit code {result.exit_code}"])[0][:_LONGEST_TEXT]

    def _action(self, job: Job, key: str, is_portable: bool) -> tuple[list[Blob], Blob]:
        """All blobs of an action, and the action itself."""
        fields = {
            "compiler": self._request.compiler,
            "is_portable": is_portable,
            "job": json.loads(job.encode()),
            "kbuild": self._kbuild,
            "key": key,
            "source_digest": self._request.source_digest,
            "tools": dict(self._request.tools),
        }
        files = {
            "action.json": protos.blob(canonical_json(fields)),
            "kbuild.zip": kbuild_archive(),
            "run.py": protos.blob(Path(__file__).with_name("on_worker.py").read_bytes()),
            **self._sources(job),
        }
        root, directories = _tree(files)
        action, command = self._command(root)
        return [*files.values(), *directories, command, action], action

    def _command(self, root: Blob) -> tuple[Blob, Blob]:
        properties = [
            make("Property", name=name, value=value) for name, value in sorted(self._remote.platform)
        ]
        platform = {"platform": make("Platform", properties=properties)} if properties else {}
        variables = {"PATH": _PATH, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        command = protos.encode(
            make(
                "Command",
                arguments=[self._remote.python, "run.py"],
                environment_variables=[
                    make("Property", name=name, value=value) for name, value in variables.items()
                ],
                output_files=[
                    protos.OUTPUT
                ],  # For services of before version 2.1, which know no `output_paths`.
                output_paths=[protos.OUTPUT],
                **platform,
            )
        )
        action = make(
            "Action",
            command_digest=digest(command),
            input_root_digest=digest(root),
            timeout=make("Duration", seconds=_LONGEST_STEP),
            **platform,
        )
        return protos.encode(action), command

    def _sources(self, job: Job) -> dict[str, Blob]:
        """The files that a kernel needs, by their names in the input root."""
        include = tuple(entry for entry in (job.variant.options.include or "").split(",") if entry)
        if (job.source, include) not in self._files:
            root = self._request.project.absolute()
            self._files[job.source, include] = {
                f"project/{path.relative_to(root).as_posix()}": protos.blob(path.read_bytes())
                for path in reached([root / job.source], root, include)
            }
        return self._files[job.source, include]

    @cached_property
    def _kbuild(self) -> str:
        return kbuild_identity()["digest"]


@lru_cache(maxsize=1)
def kbuild_archive() -> Blob:
    """The sources of this kbuild as an archive, whose bytes are the same wherever it is made."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in sorted(_KBUILD.rglob("*.py")):
            name = path.relative_to(_KBUILD.parent).as_posix()
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.external_attr = 0o644 << 16
            archive.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return protos.blob(packed.getvalue())


def _tree(files: Mapping[str, Blob]) -> tuple[Blob, list[Blob]]:
    """The directories that hold files of these names: the root, and all of them."""
    below: dict[str, dict[str, Blob]] = {}
    own: list[tuple[str, Blob]] = []
    for name, blob in files.items():
        first, _, rest = name.partition("/")
        if rest:
            below.setdefault(first, {})[rest] = blob
        else:
            own.append((first, blob))
    nodes, all_ = [], list[Blob]()
    for name, inner in sorted(below.items()):
        root, directories = _tree(inner)
        nodes.append(make("DirectoryNode", name=name, digest=digest(root)))
        all_ += directories
    leaves = [make("FileNode", name=name, digest=digest(blob)) for name, blob in sorted(own)]
    root = protos.encode(make("Directory", files=leaves, directories=nodes))
    return root, [*all_, root]
