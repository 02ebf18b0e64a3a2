"""The messages of the Remote Execution API that builds and caches exchange, declared field by field.

Numbers and types are those of `build/bazel/remote/execution/v2/remote_execution.proto` (bazelbuild/remote-apis),
`google/bytestream/bytestream.proto`, `google/longrunning/operations.proto` and `google/rpc/status.proto`
(googleapis).  PyPI has no package of the first but those of whole servers.  Fields that kbuild neither reads nor writes
are left out, which the wire format permits; enumerations are declared as their numbers, and well-known types by their
fields.  A test compares all that with the classes that BuildGrid ships.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kbuild.aot.build.cache import LARGEST_ENTRY
from kbuild.aot.remote.store import Fault, Found, StoreError

_MESSAGES = """
Digest: string hash 1, int64 size_bytes 2
Duration: int64 seconds 1, int32 nanos 2
Any: string type_url 1, bytes value 2
Status: int32 code 1, string message 2
Property: string name 1, string value 2
Platform: *Property properties 1
Command: *string arguments 1, *Property environment_variables 2, *string output_files 3, Platform platform 5,
    string working_directory 6, *string output_paths 7
Action: Digest command_digest 1, Digest input_root_digest 2, Duration timeout 6, bool do_not_cache 7, Platform platform 10
FileNode: string name 1, Digest digest 2, bool is_executable 4
DirectoryNode: string name 1, Digest digest 2
Directory: *FileNode files 1, *DirectoryNode directories 2
OutputFile: string path 1, Digest digest 2, bool is_executable 4, bytes contents 5
ActionResult: *OutputFile output_files 2, int32 exit_code 4, bytes stdout_raw 5, Digest stdout_digest 6, bytes stderr_raw 7,
    Digest stderr_digest 8
GetActionResultRequest: string instance_name 1, Digest action_digest 2, *string inline_output_files 5
UpdateActionResultRequest: string instance_name 1, Digest action_digest 2, ActionResult action_result 3
FindMissingBlobsRequest: string instance_name 1, *Digest blob_digests 2
FindMissingBlobsResponse: *Digest missing_blob_digests 2
UpdateBlob: Digest digest 1, bytes data 2, int32 compressor 3
UpdatedBlob: Digest digest 1, Status status 2
BatchUpdateBlobsRequest: string instance_name 1, *UpdateBlob requests 2
BatchUpdateBlobsResponse: *UpdatedBlob responses 1
ReadBlob: Digest digest 1, bytes data 2, Status status 3, int32 compressor 4
BatchReadBlobsRequest: string instance_name 1, *Digest digests 2, *int32 acceptable_compressors 3
BatchReadBlobsResponse: *ReadBlob responses 1
ReadRequest: string resource_name 1, int64 read_offset 2, int64 read_limit 3
ReadResponse: bytes data 10
WriteRequest: string resource_name 1, int64 write_offset 2, bool finish_write 3, bytes data 10
WriteResponse: int64 committed_size 1
GetCapabilitiesRequest: string instance_name 1
ActionCacheUpdateCapabilities: bool update_enabled 1
CacheCapabilities: *int32 digest_functions 1, ActionCacheUpdateCapabilities action_cache_update_capabilities 2,
    int64 max_batch_total_size_bytes 4, *int32 supported_compressors 6, *int32 supported_batch_update_compressors 7
ExecutionCapabilities: int32 digest_function 1, bool exec_enabled 2
ServerCapabilities: CacheCapabilities cache_capabilities 1, ExecutionCapabilities execution_capabilities 2
ExecuteRequest: string instance_name 1, bool skip_cache_lookup 3, Digest action_digest 6
ExecuteResponse: ActionResult result 1, bool cached_result 2, Status status 3, string message 5
Operation: string name 1, Any metadata 2, bool done 3, Status error 4, Any response 5
ToolDetails: string tool_name 1, string tool_version 2
RequestMetadata: ToolDetails tool_details 1, string action_id 2, string tool_invocation_id 3
"""

_API = "build.bazel.remote.execution.v2"
METHODS = {
    "GetCapabilities": (f"/{_API}.Capabilities/GetCapabilities", "ServerCapabilities"),
    "GetActionResult": (f"/{_API}.ActionCache/GetActionResult", "ActionResult"),
    "UpdateActionResult": (f"/{_API}.ActionCache/UpdateActionResult", "ActionResult"),
    "FindMissingBlobs": (f"/{_API}.ContentAddressableStorage/FindMissingBlobs", "FindMissingBlobsResponse"),
    "BatchUpdateBlobs": (f"/{_API}.ContentAddressableStorage/BatchUpdateBlobs", "BatchUpdateBlobsResponse"),
    "BatchReadBlobs": (f"/{_API}.ContentAddressableStorage/BatchReadBlobs", "BatchReadBlobsResponse"),
    "Execute": (f"/{_API}.Execution/Execute", "Operation"),
    "Read": ("/google.bytestream.ByteStream/Read", "ReadResponse"),
    "Write": ("/google.bytestream.ByteStream/Write", "WriteResponse"),
}
"""Path and answer of each method."""
METADATA = f"{_API}.requestmetadata-bin"
"""The header that says who asks: a `RequestMetadata`."""
SHA256 = 1
"""Of `DigestFunction.Value`."""
ZSTD = 1
"""Of `Compressor.Value`."""
OUTPUT = "entry"
"""The name of the one file that an action leaves, which holds an entry of the cache."""


class Blob(NamedTuple):
    """Bytes, and the digest that stands for them."""

    hash: str
    """sha256, in hexadecimal."""
    data: bytes


def blob(data: bytes) -> Blob:
    """Bytes with their digest."""
    return Blob(hashlib.sha256(data).hexdigest(), data)


def _fields(text: str) -> list[tuple[str, str, int, bool]]:
    """Type, name and number of each field of a message, and whether it is repeated."""
    words = [field.split() for field in text.split(",")]
    return [(kind.lstrip("*"), name, int(number), kind.startswith("*")) for kind, name, number in words]


def _declared() -> dict[str, Any]:
    """The classes of all messages, in a pool of their own: another package may declare the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="kbuild/remote.proto", package="kbuild", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        name: getattr(kinds, f"TYPE_{name.upper()}") for name in ("string", "bytes", "bool", "int32", "int64")
    }
    for line in _MESSAGES.replace("\n    ", " ").strip().splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for kind, field, number, is_repeated in _fields(fields):
            added = message.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if is_repeated else kinds.LABEL_OPTIONAL
            added.type = scalars.get(kind, kinds.TYPE_MESSAGE)
            if kind not in scalars:
                added.type_name = f".kbuild.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[attr-defined]
    names = [message.name for message in file.message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kbuild.{name}")) for name in names
    }


MESSAGES = _declared()
"""The class of each message, by its name."""


def make(message: str, **fields: Any) -> Any:
    """A message with these fields."""
    return MESSAGES[message](**fields)


def parse(message: str, data: bytes) -> Any:
    """The message that bytes encode; ValueError where they encode none."""
    try:
        return MESSAGES[message].FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {message}: {error}") from None


def encode(message: Any) -> Blob:
    """A message as a blob: equal messages have equal bytes."""
    return blob(message.SerializeToString(deterministic=True))


def digest(of: Blob) -> Any:
    """The `Digest` of a blob."""
    return make("Digest", hash=of.hash, size_bytes=len(of.data))


def action_of_entry(key: str) -> tuple[Blob, Blob]:
    """The action under which an entry of a cache is found, and its command: nobody executes them."""
    command = encode(make("Command", arguments=["kbuild", "compile", key], output_paths=[OUTPUT]))
    nothing = digest(blob(b""))
    return encode(make("Action", command_digest=digest(command), input_root_digest=nothing)), command


def result_of_entry(entry: Blob) -> Any:
    """The `ActionResult` that stands for an entry."""
    return make("ActionResult", output_files=[make("OutputFile", path=OUTPUT, digest=digest(entry))])


def found_in(result: bytes) -> Found:
    """The entry that an encoded `ActionResult` names; raises `StoreError` where it names none."""
    with suppress(ValueError):
        for file in parse("ActionResult", result).output_files:
            if file.path == OUTPUT and 0 < file.digest.size_bytes <= LARGEST_ENTRY:
                return Found(file.digest.hash, file.digest.size_bytes, file.contents or None)
    raise StoreError("what it has under the name of a result is none", Fault.WRONG)
