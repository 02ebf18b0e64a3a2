"""The table of functions that kernels may call: `@builtin` puts one in.

A builtin is written with the signature and the docstring that authors see; before its own parameters it takes
the context in which operations are made.  `kbuild.language` and the frontend read the same table, so nothing
is declared twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Builtin:
    """A function that kernels may call, and how its arguments bind."""

    __slots__ = ("defaults", "function", "gluon", "keyword_only", "method", "name", "parameters", "star")

    def __init__(self, name: str, function: Callable[..., Any], method: bool, gluon: bool = False) -> None:
        code = function.__code__
        names = code.co_varnames
        self.name = name
        self.function = function
        self.method = method
        """Whether tensors have it as a method."""
        self.gluon = gluon
        """Whether only kernels of Gluon have it."""
        self.parameters: tuple[str, ...] = names[1 : code.co_argcount]
        self.keyword_only: tuple[str, ...] = names[
            code.co_argcount : code.co_argcount + code.co_kwonlyargcount
        ]
        self.star: str | None = (
            names[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & 4 else None
        )
        self.defaults = len(function.__defaults__ or ())

    def __repr__(self) -> str:
        return self.name

    @property
    def required(self) -> tuple[str, ...]:
        return self.parameters[: len(self.parameters) - self.defaults]


TABLES: dict[str, dict[str, Builtin]] = {}
"""Functions by table and name: `tl`, `libdevice`, `cuda` (`tl.extra.cuda`), `triton`, `python`; of Gluon `gl`, and
a table for each module below it, such as `gl.nvidia.hopper.tma`; the methods of values, such as
`shared_memory`."""
MEMBERS: dict[str, dict[str, Any]] = {}
"""What such modules hold besides functions, classes above all, by table and name."""


def member(table: str, name: str = "") -> Callable[[Any], Any]:
    """Put a class into a module of Gluon, under its own name or under `name`."""

    def register(value: Any) -> Any:
        MEMBERS.setdefault(table, {})[name or value.__name__] = value
        return value

    return register


def builtin(
    table: str = "tl", name: str = "", method: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a function into a table, under its own name without a final underscore, or under `name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        key = name or function.__name__.rstrip("_")
        known = TABLES.setdefault(table, {})
        assert key not in known, f"{table}.{key} is declared twice"
        gluon = table.split(".")[0] == "gl"
        owner = table.rpartition(".")[2] if gluon else table
        shown = f"{owner}.{key}" if gluon or table in ("tl", "libdevice", "triton") else key
        known[key] = Builtin(shown, function, method, gluon)
        return function

    return register
