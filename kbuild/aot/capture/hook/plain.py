"""Values of a captured process as JSON can have them.

Flags, whole numbers, strings, None and finite numbers with a point are themselves; all else is an object with one key:
`float` (inf and nan), `dtype`, `tuple`, `function` (as `module:name`), or `other`, which no manifest can say.
"""

from __future__ import annotations

import math
from typing import Any

_LONGEST = 200


def plain(value: Any) -> Any:
    """A compile-time value."""
    while type(value).__name__ == "constexpr":  # tl.constexpr
        value = value.value
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)  # Also of an enumeration.
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple | list):
        return {"tuple": [plain(item) for item in value]}
    kind = type(value)
    if kind.__name__ == "dtype":
        return {"dtype": str(getattr(value, "name", value)).removeprefix("torch.")}
    function = getattr(value, "fn", None)
    if function is not None:
        return {"function": f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"}
    return {"other": f"{kind.__module__}.{kind.__qualname__}: {value!r}"[:_LONGEST]}


def constant(value: Any) -> bool:
    """Whether a value that a kernel takes from outside of itself is a constant that can be said in text."""
    return not isinstance(value, list) and "other" not in _keys(plain(value))


def _keys(value: Any) -> set[str]:
    if not isinstance(value, dict):
        return set()
    return {*value, *(key for item in value.get("tuple", ()) for key in _keys(item))}
