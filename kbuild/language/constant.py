"""`tl.constexpr`: a value known while compiling."""

from __future__ import annotations

from typing import Any


class ConstexprValue:
    """A value known while compiling: as an annotation of parameters, and around constants of a module."""

    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, ConstexprValue) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, ConstexprValue) else other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return self.value.__index__()

    def __bool__(self) -> bool:
        return bool(self.value)


ConstexprValue.__name__ = ConstexprValue.__qualname__ = "constexpr"  # what authors know it by
