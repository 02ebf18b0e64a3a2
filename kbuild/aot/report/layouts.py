"""The layouts in a text of ttgir, as the bases that the page draws them from.

#blocked = blocked{…}                                alias
%x: tensor<128x64xf16, #blocked> = …                 shape and alias: what is drawn
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kbuild.compiler.layout import parse_layout
from kbuild.errors import KbuildError

_ALIAS = re.compile(r"(#\w+) = (.+)")
_TENSOR = re.compile(r"(?:tensor|memdesc)<(?:\d+ x )?((?:\d+x)+)([^<>,]*(?:<[^<>]*>)?[^<>,]*), (#\w+)>")


def layouts_in(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Every tensor's layout: `bases`, for each kind of hardware bit its name and the coordinates that each bit adds,
    `shape`, and `bytes` of an element of the first such tensor; the keys are shape and text, as `128x64 blocked{…}`."""
    aliases: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if match := _ALIAS.fullmatch(line):
            aliases[match[1]] = match[2]
            continue
        for sizes, element, alias in _TENSOR.findall(line):
            shape = tuple(int(size) for size in sizes.rstrip("x").split("x"))
            key = f"{'x'.join(map(str, shape))} {aliases.get(alias, '')}"
            if key not in found and alias in aliases:
                try:
                    layout = parse_layout(aliases[alias], shape)
                except KbuildError:  # One that has no text as a linear layout.
                    continue
                bases = [
                    [dim, [list(layout.unflatten(basis)) for basis in bases]] for dim, bases in layout.bases
                ]
                found[key] = {"shape": list(shape), "bases": bases, "bytes": _bytes(element)}
    return found


def _bytes(element: str) -> int:
    """Bytes of an element in memory: 2 of `bf16`, 1 of `f8E4M3FN`, 8 of a pointer."""
    bits = re.search(r"\d+", element)
    return 8 if bits is None or "ptr" in element else max(1, int(bits[0]) // 8)


def merged(texts: Iterable[Iterable[str]]) -> Mapping[str, dict[str, Any]]:
    """The layouts in several texts."""
    found: dict[str, dict[str, Any]] = {}
    for lines in texts:
        found |= layouts_in(lines)
    return found
