"""What the driver calls the elements and swizzles of tensor maps, by the words in the compiler's types of
parameters."""

from __future__ import annotations

_ELEMENTS = {
    "f16": (6, 2),
    "bf16": (9, 2),
    "f32": (7, 4),
    "tf32": (11, 4),
    "i16": (1, 2),
    "i32": (2, 4),
    "s32": (3, 4),
    "i64": (4, 8),
    "s64": (5, 8),
    "f64": (8, 8),
}

SWIZZLES = {"0": 0, "32": 1, "64": 2, "128": 3}
"""CUtensorMapSwizzle by its bytes."""


def element_type(name: str) -> tuple[int, int]:
    """CUtensorMapDataType and bytes of an element, by its name in the compiler; all that are not named here
    are single bytes."""
    return _ELEMENTS.get(name.partition(":")[0], (0, 1))


def fill_of(name: str) -> int:
    """CUtensorMapFloatOOBfill by the name of an element: zeros, or NaN for `f16:nan`."""
    return int(name.endswith(":nan"))
