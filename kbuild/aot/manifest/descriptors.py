"""Tensor descriptors as arguments: one in the manifest, a tensor in a call, and to the cubin its address,
sizes and strides.

x = "tensordesc<{dtype}[BLOCK, 64]>"        in a manifest
x = "tensordesc<{dtype}[BLOCK, 64]:nan>"    the same, with NaN beyond the tensor instead of zero
x = "tensordesc<fp16[128, 64]:swizzle128>"  of a kernel in CUDA C++: rows in shared memory are swizzled by 128 bytes
x = "tensordesc<fp16[64, 64],gl.NVMMASharedLayout(128, 16)>"        for a kernel of Gluon, with a layout
tensordesc<fp16[128x64]>                    of a variant: no commas outside of brackets, which separate arguments
x: *fp16:16,  x_shape_0: i32, x_shape_1: i32, x_stride_0: i64        what the cubin takes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_DESCRIPTOR = re.compile(r"tensordesc<([^\[\]<>]*)\[([^\[\]<>]*)\]((?::\w+)*)(?:, *([^<>]*\)) *)?>")
_ELEMENT_BYTES = re.compile(r"(?:fp|bf|i|u)(\d+)")


class DescriptorExtent(NamedTuple):
    """A parameter that the launcher reads from a tensor."""

    tensor: str
    """The argument that is the tensor."""
    axis: int
    rank: int
    stride_bytes: int
    """Bytes of an element, for the tensor's stride along the axis (in elements); 0 for its size."""


def is_descriptor(type_: str) -> bool:
    return type_.startswith("tensordesc<")


def hint_of(type_: str) -> str:
    """The hint of a type such as `*fp16:16`; none for a descriptor, whose colons say how its map is made."""
    return "" if is_descriptor(type_) else type_.partition(":")[2]


def parts(type_: str) -> tuple[str, tuple[str, ...]] | None:
    """The element type and the sizes of the block, as written; None where a type is not a descriptor."""
    match = _DESCRIPTOR.fullmatch(type_.strip())
    return (match[1].strip(), tuple(re.split(r"\s*[,x]\s*", match[2].strip()))) if match else None


def resolved(type_: str, values: Mapping[str, object]) -> str:
    """The type of a variant: numbers for the names of compile-time values."""
    found, match = parts(type_), _DESCRIPTOR.fullmatch(type_.strip())
    assert found is not None and match is not None
    element, sizes = found
    layout = f",{match[4].replace(' ', '')}" if match[4] else ""
    block = "x".join(str(values.get(size, size)) for size in sizes)
    return f"tensordesc<{element}[{block}]{match[3] or ''}{layout}>"


def expanded(signature: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, DescriptorExtent | None]]:
    """What a cubin takes for the arguments of a variant: name, type, and for an extent, of which tensor;
    extents come last."""
    extents: list[tuple[str, str, DescriptorExtent | None]] = []
    for name, type_ in signature:
        found = parts(type_)
        if found is None:
            yield name, type_, None
            continue
        element, sizes = found
        yield name, f"*{element}:16", None
        rank, bits = len(sizes), _ELEMENT_BYTES.match(element)
        size = int(bits[1]) // 8 if bits else 1
        extents += [
            (f"{name}_shape_{axis}", "i32", DescriptorExtent(name, axis, rank, 0)) for axis in range(rank)
        ]
        extents += [
            (f"{name}_stride_{axis}", "i64", DescriptorExtent(name, axis, rank, size))
            for axis in range(rank - 1)
        ]
    yield from extents
