"""The tables `[kernel.verify]` and `[kernel.tune]`: launches whose sizes follow from the kernel's addresses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.init.extents import Term, size_of
from kbuild.aot.manifest.expressions import ExpressionFault, evaluate, parse
from kbuild.errors import ManifestError

_SMALL = (5, 37, 50, 19, 3, 2)
_LARGE = (4096, 4096, 4096, 64, 16, 8)
LARGEST_VERIFIED = 1 << 16
"""Elements of an array that the CPU is asked to go through."""
LARGEST_TUNED = 1 << 27


@dataclass
class Launches:
    """Sizes of arrays, and the integers of a launch."""

    sizes: dict[str, str] = field(default_factory=dict)
    sized: list[str] = field(default_factory=list)
    """Arguments that sizes follow from, in order."""
    strides: dict[str, Any] = field(default_factory=dict)
    """Arguments that are strides, each as it is in arrays without gaps."""
    scalars: dict[str, str] = field(default_factory=dict)
    """All arguments that are not pointers, with their types."""

    def values(self, constants: Mapping[str, Any], limit: int, is_large: bool = False) -> dict[str, Any]:
        """A launch whose arrays have at most `limit` elements."""
        numbers = _LARGE if is_large else _SMALL
        sizes = dict.fromkeys(self.sized, 0)
        if len(sizes) == 1:
            numbers = (1 << 22,) if is_large else (1000,)
        sizes = {name: numbers[min(place, len(numbers) - 1)] for place, name in enumerate(sizes)}
        while True:
            found = {name: self._value(name, type_, sizes) for name, type_ in self.scalars.items()}
            if self._elements(found, constants) <= limit or max(sizes.values(), default=1) == 1:
                return found
            widest = max(sizes, key=lambda name: sizes[name])
            sizes[widest] = max(1, sizes[widest] // 2)

    def _value(self, name: str, type_: str, sizes: Mapping[str, int]) -> Any:
        if name in sizes:
            return sizes[name]
        if name in self.strides:
            return self.strides[name]
        return 0.5 if type_.startswith(("fp", "bf")) else 1 if type_ == "i1" else 3

    def _elements(self, values: Mapping[str, Any], constants: Mapping[str, Any]) -> int:
        """The largest of the arrays, as far as it can be worked out."""
        known = {name: value for name, value in {**constants, **values}.items() if isinstance(value, int)}
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        for _ in texts:
            for name, text in texts.items():
                if name not in known and (value := _evaluated(text, known)) is not None:
                    known[name] = value
        return max([0, *(_evaluated(text, known) or 0 for text in self.sizes.values())])


def _evaluated(text: str, known: Mapping[str, int]) -> int | None:
    try:
        return evaluate(parse(text, known, ""), known)
    except (ManifestError, ExpressionFault):
        return None


def launches_for(
    terms: Mapping[str, Sequence[Term]],
    scalars: Mapping[str, str],
    grid_args: Iterable[str],
    axes: Mapping[str, int],
) -> Launches:
    """The launches of a kernel with these addresses; `axes` are those of tensors whose strides wrappers pass."""
    found = Launches({name: size_of(of) for name, of in terms.items()}, scalars=dict(scalars))
    known = {name for name, type_ in scalars.items() if type_[:1] in "iu"}
    strides = {stride for of in terms.values() for term in of for stride in term.strides}
    for of in terms.values():
        _note_strides(of, known, axes, found.strides)
        for term in of:
            for name in _names(term.extent):
                if name in known and name not in strides and name not in found.sized:
                    found.sized.append(name)
    found.sized += [name for name in grid_args if name not in found.sized and name not in found.strides]
    # A size that is a stride too, as the columns of arrays without gaps.
    for name in [
        name for name in found.strides if any(name in _names(t.extent) for of in terms.values() for t in of)
    ]:
        del found.strides[name]
        found.sized.append(name)
    return found


def _note_strides(
    terms: Sequence[Term], known: set[str], axes: Mapping[str, int], strides: dict[str, Any]
) -> None:
    """Strides of an array without gaps: its last axis has 1, and each other one the size of all after it."""
    strided = [term for term in terms if term.strides]
    if all(len(term.strides) == 1 and term.strides[0] in axes for term in strided):
        strided.sort(key=lambda term: axes[term.strides[0]])
    ordered = strided + [term for term in terms if not term.strides]
    after = "1"
    for term in reversed(ordered):
        names = [stride for stride in term.strides if stride in known]
        if len(names) == 1 and len(term.strides) == 1 and names[0] not in strides:
            is_number = after.isdigit()
            strides[names[0]] = int(after) if is_number else after
        extent = f"({term.extent})" if " " in term.extent else term.extent
        after = " * ".join([extent, *(stride for stride in term.strides if strides.get(stride) != 1)])


def _names(text: str) -> list[str]:
    return [node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
