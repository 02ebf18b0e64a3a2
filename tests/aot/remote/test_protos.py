"""The messages are those of the Remote Execution API: field by field as in the classes that BuildGrid ships."""

from __future__ import annotations

from typing import Any

import pytest

from kbuild.aot.remote import protos

pytest.importorskip("buildgrid", reason="pip install 'buildgrid[database]'")

from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as reapi
from buildgrid._protos.google.bytestream import bytestream_pb2
from buildgrid._protos.google.longrunning import operations_pb2
from buildgrid._protos.google.rpc import status_pb2
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.descriptor import FieldDescriptor

NESTED = {
    "UpdateBlob": ("BatchUpdateBlobsRequest", "Request"),
    "UpdatedBlob": ("BatchUpdateBlobsResponse", "Response"),
    "ReadBlob": ("BatchReadBlobsResponse", "Response"),
    "Property": ("Platform", "Property"),
}
"""Messages within messages, which have names of their own here."""
MODULES = (reapi, bytestream_pb2, operations_pb2, status_pb2, any_pb2, duration_pb2)


def theirs(name: str) -> Any:
    outer, *inner = NESTED.get(name, (name,))
    found = next(
        module.DESCRIPTOR.message_types_by_name.get(outer)
        for module in MODULES
        if outer in module.DESCRIPTOR.message_types_by_name
    )
    return found.nested_types_by_name[inner[0]] if inner else found


def shape(field: Any, names: dict[str, str]) -> tuple[Any, ...]:
    """Number, type and repetition of a field; enumerations are as their numbers."""
    kind = FieldDescriptor.TYPE_INT32 if field.type == FieldDescriptor.TYPE_ENUM else field.type
    message = names.get(field.message_type.full_name) if field.message_type else None
    return field.number, kind, field.is_repeated, message


@pytest.mark.parametrize("name", protos.MESSAGES)
def test_fields(name: str) -> None:
    other = theirs(name)
    their_names = {theirs(each).full_name: each for each in protos.MESSAGES}
    # An environment variable has the form of a property.
    their_names[reapi.Command.EnvironmentVariable.DESCRIPTOR.full_name] = "Property"
    our_names = {cls.DESCRIPTOR.full_name: each for each, cls in protos.MESSAGES.items()}
    for field in protos.MESSAGES[name].DESCRIPTOR.fields:
        assert shape(field, our_names) == shape(other.fields_by_name[field.name], their_names), field.name


def test_methods() -> None:
    known = {
        f"/{service.full_name}/{method.name}": method
        for module in (reapi, bytestream_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    for path, answer in protos.METHODS.values():
        assert known[path].output_type.name == answer


def test_numbers() -> None:
    assert (protos.SHA256, protos.ZSTD) == (reapi.DigestFunction.SHA256, reapi.Compressor.ZSTD)


def test_equal_entries_have_equal_actions_and_others_others() -> None:
    first, command = protos.action_of_entry("ab" * 32)
    assert protos.action_of_entry("ab" * 32) == (first, command)
    assert protos.action_of_entry("cd" * 32)[0].hash != first.hash
    assert reapi.Action.FromString(first.data).command_digest.hash == command.hash
    assert reapi.Command.FromString(command.data).arguments == ["kbuild", "compile", "ab" * 32]
