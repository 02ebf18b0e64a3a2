"""What libraries read of `triton.language` when they are imported: types, constants, and names."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any


class Placeholder:
    """A name of the language, which only kernels can use."""

    def __init__(self, name: str) -> None:
        self.__name__ = name.rpartition(".")[2]
        self._place = name

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("_") or name in ("fn", "src", "value", "data_ptr", "dtype"):
            raise AttributeError(f"{self._place} has no {name}")
        return Placeholder(f"{self._place}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"{self._place}() is for kernels, and cannot be called where Triton is not installed"
        )

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<{self._place}, without Triton>"


class LazyModule(ModuleType):
    """A module that has every name, those that it does not know as placeholders."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")


class dtype:
    """The type of an element."""

    def __init__(self, name: str) -> None:
        self.name = name
        digits = "".join(letter for letter in name.partition("e")[0].lstrip("bfpuint") if letter.isdigit())
        self.primitive_bitwidth = int(digits or 0)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.primitive_bitwidth // 8

    @property
    def scalar(self) -> dtype:
        """Itself."""
        return self

    def is_floating(self) -> bool:
        """Whether it has a point."""
        return self.name.startswith(("fp", "bf"))

    def is_int(self) -> bool:
        """Whether it is of whole numbers."""
        return self.name.startswith(("int", "uint"))

    def is_fp8(self) -> bool:
        """Whether it is one of the eight-bit types with a point."""
        return self.name.startswith("fp8")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dtype) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"triton.language.{self.name}"

    def __str__(self) -> str:
        return self.name


TYPES = {
    "void": "void",
    **{f"int{bits}": f"int{bits}" for bits in (1, 8, 16, 32, 64)},
    **{f"uint{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    **{f"float8{form}": f"fp8{form}" for form in ("e5", "e5b16", "e4nv", "e4b8", "e4b15")},
}
"""The types of the language, and what they call themselves."""


class constexpr:
    """A value that is known when a kernel is compiled."""

    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __eq__(self, other: object) -> Any:
        return constexpr(self.value == _plain(other))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


def _both_ways(name: str) -> None:
    """Gives constants an operator of two sides."""
    compute = getattr(operator, f"__{name}__")
    setattr(constexpr, f"__{name}__", lambda left, right: constexpr(compute(left.value, _plain(right))))
    setattr(constexpr, f"__r{name}__", lambda right, left: constexpr(compute(_plain(left), right.value)))


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    _both_ways(_name)
for _name in ("lt", "le", "gt", "ge", "ne"):
    _compute = getattr(operator, _name)
    setattr(
        constexpr,
        f"__{_name}__",
        lambda left, right, _compute=_compute: constexpr(_compute(left.value, _plain(right))),
    )
for _name in ("neg", "invert", "abs"):
    _alone = getattr(operator, _name)
    setattr(constexpr, f"__{_name}__", lambda one, _alone=_alone: constexpr(_alone(one.value)))
