"""Values of manifests as TOML, for those that kbuild writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 120
"""Characters of a line."""


def grouped(table: Mapping[str, Any]) -> dict[str, Any]:
    """Neighbours with the same value under one key, as `"x, y" = "*fp16"`."""
    found: list[tuple[list[str], Any]] = []
    for name, value in table.items():
        if found and found[-1][1] == value and type(found[-1][1]) is type(value):
            found[-1][0].append(name)
        else:
            found.append(([name], value))
    return {", ".join(names): value for names, value in found}


def toml_list(key: str, items: Sequence[str], may_wrap: bool = False) -> list[str]:
    """A list on one line, or with a line for each item."""
    inline = f"{key} = [{', '.join(items)}]"
    if len(inline) <= WIDTH and (len(items) == 1 or not may_wrap):
        return [inline]
    return [f"{key} = [", *(f"  {item}," for item in items), "]"]


def toml_key(name: str) -> str:
    """A key: as it is, or quoted."""
    is_bare = name and name.isascii() and all(c.isalnum() or c in "_-" for c in name)
    return name if is_bare else json.dumps(name)


def toml_value(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_key(name)} = {toml_value(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    return repr(value)
