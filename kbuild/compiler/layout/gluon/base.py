"""What all layouts of Gluon have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from kbuild.compiler.layout.linear import LinearLayout

Shape = tuple[int, ...]
Numbers = Sequence[int]
"""A field of integers: authors write lists, which are kept as tuples."""
Bases = Sequence[Sequence[int]]


class Layout:
    """Any layout that an author writes."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, frozen(getattr(self, field.name)))
        if getattr(self, "cga_layout", ()):
            raise ValueError("cga_layout is for tensors of several programs; a tensor belongs to one here")
        self.check()

    def check(self) -> None:
        """Raise ValueError where the fields contradict each other."""

    @property
    def rank(self) -> int:
        """Dimensions of the tensors that have it."""
        raise NotImplementedError

    def __str__(self) -> str:
        shown = [
            f"{field.name}={text(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.name != "cga_layout"
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    __repr__ = __str__


class DistributedLayout(Layout):
    """A layout of tensors: which register of which thread holds what."""

    def linear(self, shape: Shape) -> LinearLayout:
        """The linear layout of a tensor of a shape, without registers that repeat others of the same thread."""
        return self.whole(shape).remove_zero_bases("register")

    def whole(self, shape: Shape) -> LinearLayout:
        """The same with such registers."""
        raise NotImplementedError

    @property
    def warps(self) -> int | None:
        """Warps that it is for; None where it fits any."""
        return None


class SharedLayout(Layout):
    """A layout of tiles in shared memory."""

    def linear(self, shape: Shape) -> LinearLayout:
        """The linear layout of a tile of a shape."""
        raise NotImplementedError


def frozen(value: Any) -> Any:
    """An argument without the wrapper of constants, and sequences as tuples."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value


def text(value: Any) -> str:
    """An argument as an author writes it."""
    return f"[{', '.join(map(text, value))}]" if isinstance(value, tuple) else str(value)


def check_numbers(name: str, values: Any, count: int, powers: bool) -> None:
    """Raise ValueError unless an argument is a list of so many integers; powers of two, where they have to be."""
    if not isinstance(values, tuple) or any(not isinstance(value, int) for value in values):
        raise ValueError(f"{name} is {text(values)}; it is a list of integers")
    if len(values) != count:
        raise ValueError(
            f"{name} {list(values)} has {len(values)} numbers, the layout has {count} dimensions"
        )
    if powers and any(value < 1 or value & (value - 1) for value in values):
        raise ValueError(f"{name} is {text(values if count > 1 else values[0])}; it must be of powers of two")


def check_bases(name: str, bases: Bases, shape: Numbers) -> None:
    """Raise ValueError unless bases are coordinates inside a shape."""
    for basis in bases:
        if len(basis) != len(shape):
            raise ValueError(f"{name} has {list(basis)}, the shape {list(shape)} has {len(shape)} dimensions")
        if any(not 0 <= coordinate < size for coordinate, size in zip(basis, shape)):
            raise ValueError(f"{name} has {list(basis)}, which lies outside of the shape {list(shape)}")
