"""The layouts in a text of ttgir, as the bases that the page draws them from.

#blocked = blocked{…}                                alias
%x: tensor<128x64xf16, #blocked> = …                 shape and alias: what is drawn
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kbuild.compiler.layout import LinearLayout, gaps_of, parse_layout
from kbuild.compiler.views.facts import facts_of
from kbuild.compiler.views.sources import ShownLayout
from kbuild.errors import KbuildError
from kbuild.targets import ARCHS, find_target

_ALIAS = re.compile(r"(#\w+) = (.+)")
_TENSOR = re.compile(r"(?:tensor|memdesc)<(?:\d+ x )?((?:\d+x)+)([^<>,]*(?:<[^<>]*>)?[^<>,]*), (#\w+)>")


def layouts_in(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Every tensor's layout: `bases`, for each kind of hardware bit its name and the coordinates that each bit adds,
    `shape`, `gaps` of shared memory, and `facts` and `bytes` of an element of the first such tensor; the keys are shape
    and text, as `128x64 blocked{…}`."""
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
                found[key] = {
                    "shape": list(shape),
                    "bases": bases,
                    "bytes": _bits(element) // 8,
                    "gaps": [list(gap) for gap in gaps_of(layout)],
                    "facts": _facts(layout, element),
                }
    return found


def _facts(layout: LinearLayout, element: str) -> list[list[str]]:
    """What `kbuild layout` says of it besides its shape and text."""
    facts = facts_of(ShownLayout("", layout, _bits(element), element), find_target(ARCHS[0]))
    return [[name, text] for name, text in facts.items() if name not in ("layout", "shape", "elements")]


def _bits(element: str) -> int:
    """Bits of an element in memory: 16 of `bf16`, 8 of `f8E4M3FN` and of `i1`, 64 of a pointer."""
    bits = re.search(r"\d+", element)
    return 64 if bits is None or "ptr" in element else max(8, int(bits[0]))


def merged(texts: Iterable[Iterable[str]]) -> Mapping[str, dict[str, Any]]:
    """The layouts in several texts."""
    found: dict[str, dict[str, Any]] = {}
    for lines in texts:
        found |= layouts_in(lines)
    return found
