"""Tensors, custom calls of XLA and arguments of TVM as the library for C takes them, by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CUDA, CPU = 2, 1
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_XLA_TYPES = {"float16": 10, "float32": 11, "int32": 4}
XLA_S64, XLA_F64 = 5, 12


class DLTensor(ctypes.Structure):
    """DLPack's."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def integers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def view(
    array: Any, shape: Sequence[int] | None = None, strides: Sequence[int] | None = None, **fields
) -> DLTensor:
    """An array of the fake driver's; `fields` are others of the DLTensor."""
    interface = array.__cuda_array_interface__
    sizes: Sequence[int] = interface["shape"] if shape is None else shape
    dtype = np.dtype(interface["typestr"])
    made = DLTensor(
        interface["data"][0], CUDA, 0, len(sizes), _CODES[dtype.kind], 8 * dtype.itemsize, 1, integers(sizes)
    )
    if strides is not None:
        made.strides = integers(strides)
    for name, value in fields.items():
        setattr(made, name, value)
    made.array = array  # which frees its memory when it goes
    return made


class Struct(ctypes.Structure):
    """One of XLA's, which begins with its size and a list of extensions."""

    _fields_ = [("size", ctypes.c_size_t), ("extensions", ctypes.c_void_p)]


class XlaBuffer(Struct):
    _fields_ = [
        ("type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
    ]


class XlaValues(Struct):
    _fields_ = [
        ("count", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    ]


class XlaText(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class XlaScalar(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("value", ctypes.c_void_p)]


class XlaAttributes(Struct):
    _fields_ = [
        ("count", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.POINTER(ctypes.POINTER(XlaText))),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    ]


class XlaVersion(Struct):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int)]


class XlaError(Struct):
    _fields_ = [("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class XlaStream(Struct):
    _fields_ = [("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


CreateError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(XlaError))
GetStream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(XlaStream))


class XlaApi(Struct):
    _fields_ = [
        ("version", XlaVersion),
        ("internal", ctypes.c_void_p),
        ("create_error", CreateError),
        ("message_of_error", ctypes.c_void_p),
        ("destroy_error", ctypes.c_void_p),
        ("register_handler", ctypes.c_void_p),
        ("stream", GetStream),
    ]


class XlaCallFrame(Struct):
    _fields_ = [
        ("api", ctypes.POINTER(XlaApi)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("operands", XlaValues),
        ("results", XlaValues),
        ("attributes", XlaAttributes),
        ("future", ctypes.c_void_p),
    ]


class XlaMetadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", XlaVersion), ("traits", ctypes.c_uint32)]


class XlaMetadataExtension(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(XlaMetadata)),
    ]


def _pointers(objects: Sequence[Any]) -> Any:
    return (ctypes.c_void_p * max(len(objects), 1))(*(ctypes.addressof(each) for each in objects))


def _buffers(arrays: Sequence[Any]) -> tuple[XlaValues, list[Any]]:
    made = []
    for array in arrays:
        interface = array.__cuda_array_interface__
        dtype = np.dtype(interface["typestr"]).name
        shape = integers(interface["shape"])
        made.append(
            XlaBuffer(0, None, _XLA_TYPES[dtype], interface["data"][0], len(interface["shape"]), shape)
        )
    types, values = (ctypes.c_int * max(len(made), 1))(*([1] * len(made))), _pointers(made)
    found = XlaValues(0, None, len(made), types, ctypes.cast(values, ctypes.POINTER(ctypes.c_void_p)))
    return found, [made, types, values]


def _attributes(named: dict[str, int | float | str]) -> tuple[XlaAttributes, list[Any]]:
    kept: list[Any] = []
    types, names, values = [], [], []
    for name, value in named.items():
        names.append(XlaText(name.encode(), len(name)))
        if isinstance(value, str):
            types.append(4)
            values.append(XlaText(value.encode(), len(value)))
            continue
        number = ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value)
        kept.append(number)
        types.append(3)
        values.append(XlaScalar(XLA_F64 if isinstance(value, float) else XLA_S64, ctypes.addressof(number)))
    types_, names_, values_ = (ctypes.c_int * max(len(types), 1))(*types), _pointers(names), _pointers(values)
    found = XlaAttributes(
        0,
        None,
        len(types),
        types_,
        ctypes.cast(names_, ctypes.POINTER(ctypes.POINTER(XlaText))),
        ctypes.cast(values_, ctypes.POINTER(ctypes.c_void_p)),
    )
    return found, [kept, names, values, types_, names_, values_]


def call_as_xla(
    handler: Callable[[Any], Any],
    operands: Sequence[Any],
    results: Sequence[Any],
    **attributes: int | float | str,
) -> str:
    """Calls a handler as XLA executes a custom call; gives the message of its error, or nothing."""
    messages: list[str] = []

    @CreateError
    def create(arguments: Any) -> int:
        messages.append(arguments.contents.message.decode())
        return 1

    @GetStream
    def stream(arguments: Any) -> None:
        arguments.contents.stream = None

    api = XlaApi(create_error=create, stream=stream)
    (given, kept), (made, kept_too) = _buffers(operands), _buffers(results)
    named, kept_as_well = _attributes(attributes)
    frame = XlaCallFrame(
        0, None, ctypes.pointer(api), None, 3, operands=given, results=made, attributes=named, future=None
    )
    handler.restype = ctypes.c_void_p  # type: ignore[attr-defined]
    error = handler(ctypes.byref(frame))
    assert bool(error) == bool(messages) and kept and kept_too and kept_as_well
    return messages[0] if messages else ""


def version_of(handler: Callable[[Any], Any]) -> tuple[int, int]:
    """What a handler says of itself when it is registered."""
    metadata = XlaMetadata(ctypes.sizeof(XlaMetadata))
    extension = XlaMetadataExtension(0, 1, None, ctypes.pointer(metadata))
    frame = XlaCallFrame(extensions=ctypes.addressof(extension))
    handler.restype = ctypes.c_void_p  # type: ignore[attr-defined]
    assert handler(ctypes.byref(frame)) is None
    return metadata.version.major, metadata.version.minor


class TvmAny(ctypes.Structure):
    """An argument of TVM's; `of` makes one."""

    _fields_ = [("type", ctypes.c_int32), ("length", ctypes.c_uint32), ("value", ctypes.c_uint64)]

    @classmethod
    def of(cls, value: DLTensor | bool | int | float | str | None) -> TvmAny:
        if isinstance(value, DLTensor):
            return cls(7, 0, ctypes.addressof(value))
        if isinstance(value, str):
            return cls(11, len(value), int.from_bytes(value.encode().ljust(8, b"\0"), "little"))
        if isinstance(value, float):
            return cls(3, 0, ctypes.c_uint64.from_buffer(ctypes.c_double(value)).value)
        return cls(0, 0, 0) if value is None else cls(2 if isinstance(value, bool) else 1, 0, value)
