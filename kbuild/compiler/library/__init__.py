"""Finds the functions written in the language itself, without parsing those that are not used."""

from __future__ import annotations

import os
from functools import lru_cache

DIRECTORY = os.path.dirname(os.path.abspath(__file__))
TL, LIBDEVICE, INDUCTOR = "tl", "libdevice", "inductor"
FILES = {
    TL: ("standard.py", "random.py", "scaled.py"),
    LIBDEVICE: ("libdevice.py", "special.py", "bessel.py"),
    INDUCTOR: ("inductor.py",),
}
"""The files of each of the modules that the library holds."""
METHODS = frozenset(
    (
        "argmax",
        "argmin",
        "cdiv",
        "cumprod",
        "cumsum",
        "flip",
        "max",
        "min",
        "ravel",
        "reduce_or",
        "sigmoid",
        "softmax",
        "sort",
        "sum",
        "xor_sum",
    )
)
"""Library functions that tensors have as methods."""


@lru_cache(maxsize=3)
def index(module: str = TL) -> dict[str, tuple[str, int, str]]:
    """The functions of one of the library's modules by name: file, number of the first line (the decorator's), and
    text."""
    found: dict[str, tuple[str, int, str]] = {}
    for file in FILES[module]:
        path = os.path.join(DIRECTORY, file)
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().splitlines(keepends=True)
        starts = [number for number, line in enumerate(lines) if line.startswith("@")]
        for start, end in zip(starts, [*starts[1:], len(lines)]):
            name = lines[start + 1].removeprefix("def ").split("(", 1)[0]
            found[name] = (path, start + 1, "".join(lines[start:end]))
    return found


def public_names(module: str = TL) -> list[str]:
    """The library functions that authors may call."""
    return [name for name in index(module) if not name.startswith("_")]
