"""Plain values as YAML: mappings and lists in blocks, strings in quotes where YAML would read them as something else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./ ${}()@*=+-]*[A-Za-z0-9_/}*)]|[A-Za-z]")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
_WIDTH = 100
"""Characters of a mapping that still stands on one line."""


def yaml_text(value: Mapping[str, Any]) -> str:
    """The text of a document, with an empty line before each entry but the first."""
    blocks = ["\n".join(_lines({name: item})) for name, item in value.items()]
    return "\n\n".join(blocks) + "\n"


def _lines(value: Any) -> Iterator[str]:
    """A mapping or list in block style."""
    items = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
    for name, item in items:
        head = "- " if name is None else f"{_scalar(name)}: "
        if not isinstance(item, Mapping | list) or not item or _is_short(item):
            yield head + _flow(item)
        elif name is None:
            first, *rest = _lines(item)
            yield head + first
            yield from (f"  {line}" for line in rest)
        else:
            yield head.rstrip()
            yield from (f"  {line}" for line in _lines(item))


def _is_short(value: Mapping[str, Any] | Sequence[Any]) -> bool:
    """Whether a value is written on one line: it has nothing within it, and is neither a single pair nor a list of
    commands."""
    if isinstance(value, Mapping):
        is_plain, inner = len(value) > 1, list(value.values())
    else:
        is_plain, inner = len(value) == 1 or not any(" " in str(item) for item in value), list(value)
    return (
        is_plain
        and not any(isinstance(item, Mapping | list) for item in inner)
        and len(_flow(value)) <= _WIDTH
    )


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        pairs = [f"{_scalar(name)}: {_scalar(item, True)}" for name, item in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_scalar(item, True) for item in value)}]"
    return _scalar(value)


def _scalar(value: Any, within: bool = False) -> str:
    """A string, number or truth value; within `{}` and `[]` fewer strings do without quotes."""
    if not isinstance(value, str):
        return json.dumps(value)
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    if plain and not (within and set("{}[],") & set(value)):
        return value
    return json.dumps(value, ensure_ascii=False)
