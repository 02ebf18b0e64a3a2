"""Probes of tensor maps: which fields the driver takes."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.emulator.driver.cuda import Cuda
from tests.emulator.driver.probes.table import PROBES


def encode(cuda: Cuda, **changed: Any) -> None:
    """A map of 72 x 64 elements of fp16 in boxes of 8 x 64, with these changes."""
    room = ctypes.create_string_buffer(192)
    target = -(-ctypes.addressof(room) // 64) * 64 + changed.pop("skew", 0)
    fields: dict[str, Any] = {
        "element": 6,
        "rank": 2,
        "address": 1 << 40,
        "sizes": [64, 72, 8, 8, 8],
        "strides": [128, 16384, 1 << 20, 1 << 30],
        "box": [64, 8, 1, 1, 1],
        "steps": [1] * 5,
        "interleave": 0,
        "swizzle": 3,
        "promotion": 2,
        "fill": 0,
    } | changed
    words = [(ctypes.c_uint64 * 5)(*fields[name]) for name in ("sizes", "strides")]
    halves = [(ctypes.c_uint32 * 5)(*fields[name]) for name in ("box", "steps")]
    last = [fields[name] for name in ("interleave", "swizzle", "promotion", "fill")]
    cuda(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(target),
        fields["element"],
        fields["rank"],
        ctypes.c_void_p(fields["address"]),
        *words,
        *halves,
        *last,
    )


MAPS: dict[str, dict[str, Any]] = {
    "a plain map": {},
    **{f"rank {rank}": {"rank": rank} for rank in (0, 1, 3, 4, 5, 6)},
    **{f"element {element}": {"element": element, "box": [16, 8, 1, 1, 1]} for element in range(16)},
    **{
        f"swizzle {swizzle} of {inner}": {"swizzle": swizzle, "box": [inner, 8, 1, 1, 1]}
        for swizzle in range(6)
        for inner in (8, 16, 32, 64, 128)
    },
    **{f"interleave {number}": {"interleave": number} for number in range(4)},
    **{f"promotion {number}": {"promotion": number} for number in (0, 1, 3, 4)},
    **{
        f"fill {number} of element {element}": {"fill": number, "element": element, "box": [16, 8, 1, 1, 1]}
        for number in (1, 2)
        for element in (0, 2, 6, 7, 8, 9)
    },
    "an address of 8": {"address": (1 << 40) + 8},
    "no address": {"address": 0},
    "a map at 16": {"skew": 16},
    "size 0": {"sizes": [64, 0, 1, 1, 1]},
    "size 2^32": {"sizes": [64, 1 << 32, 1, 1, 1]},
    "size 2^32 + 1": {"sizes": [64, (1 << 32) + 1, 1, 1, 1]},
    "inner size 0": {"sizes": [0, 8, 1, 1, 1]},
    "stride 8": {"strides": [8, 0, 0, 0]},
    "stride 0": {"strides": [0, 0, 0, 0]},
    "stride 16": {"strides": [16, 0, 0, 0]},
    "stride 2^40": {"strides": [1 << 40, 0, 0, 0]},
    "stride below 2^40": {"strides": [(1 << 40) - 16, 0, 0, 0]},
    "box 0": {"box": [64, 0, 1, 1, 1]},
    "box 256": {"box": [64, 256, 1, 1, 1]},
    "box 257": {"box": [64, 257, 1, 1, 1]},
    "inner box of 12": {"box": [12, 8, 1, 1, 1]},
    "inner box of 256 bytes, plain": {"box": [128, 8, 1, 1, 1], "swizzle": 0},
    "inner box of 512 bytes, plain": {"box": [256, 8, 1, 1, 1], "swizzle": 0},
    "box beyond the tensor": {"box": [64, 128, 1, 1, 1]},
    "box of 64 kB": {"box": [64, 256, 2, 1, 1], "rank": 3},
    **{
        f"box of {size} kB": {"box": [64, 8, size, 1, 1], "rank": 3}
        for size in (128, 160, 192, 224, 226, 227, 228, 229, 256)
    },
    "box of 256 kB of 4 bytes": {"box": [32, 8, 256, 1, 1], "rank": 3, "element": 7},
    "box of 128 k bytes": {"box": [128, 8, 128, 1, 1], "rank": 3, "element": 0},
    "box of 256 k bytes": {"box": [128, 8, 256, 1, 1], "rank": 3, "element": 0},
    "step 0": {"steps": [1, 0, 1, 1, 1]},
    "step 8": {"steps": [1, 8, 1, 1, 1]},
    "step 9": {"steps": [1, 9, 1, 1, 1]},
    "inner step 2": {"steps": [2, 1, 1, 1, 1]},
    "inner step 0": {"steps": [0, 1, 1, 1, 1]},
    "inner step 9": {"steps": [9, 1, 1, 1, 1]},
}


def map_probe(name: str, changed: dict[str, Any]) -> None:
    PROBES[f"map: {name}"] = lambda cuda, images: encode(cuda, **changed)


for one, what in MAPS.items():
    map_probe(one, what)
