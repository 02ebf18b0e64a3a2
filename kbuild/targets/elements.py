"""Element types of tensor-core instructions, by their names in the IR: `f16`, `f8E4M3FN`, `i8`."""

from __future__ import annotations

ELEMENT_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f8E4M3FN": 8, "f8E5M2": 8, "i8": 8, "i32": 32}
"""Bits of each."""


def is_integer(element: str) -> bool:
    return element.startswith("i")


def is_fp8(element: str) -> bool:
    return element.startswith("f8")
