"""What a package knows of the functions of libraries that it serves: the data of `triton.py` in the package."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | float | str | None


@dataclass(frozen=True)
class ServedArgument:
    """A run-time argument of a call, and what a launch of the package takes for it."""

    name: str
    kinds: tuple[str, ...]
    """`pointer`, `float`, `integer` or `bool`; of a tuple that of each element."""
    is_tuple: bool = False
    block: tuple[str, ...] = ()
    """Of a tensor descriptor, the sizes of its block: numbers, or names of compile-time values."""
    padding: str = "zero"
    """What the kernel reads beyond its tensor: `zero` or `nan`."""


@dataclass(frozen=True)
class ServedLaunch:
    """A launch of the package, for calls that have the same arguments."""

    name: str
    """Its function in the package."""
    arguments: tuple[ServedArgument, ...]
    """In the order in which it takes them; all other run-time arguments are None in the calls that it is for."""
    axes: tuple[str, ...]
    """Compile-time parameters that it takes as keywords."""
    columns: tuple[str, ...]
    """Compile-time parameters and options whose values `configs` have."""
    configs: tuple[tuple[Value, ...], ...]
    """Each distinct row of values."""
    rows: tuple[int, ...]
    """For each row of the dispatch table, in its order, the index in `configs`."""
    keys: tuple[str, ...]
    """The parameters by which the function's tuner chooses."""
    seen: tuple[tuple[Value, ...], ...]
    """The values of these for which it did."""
    types: tuple[tuple[str, str], ...]
    """Axes that are no parameters, each with an argument whose type implies it."""
    listed: str = ""
    """The file with the list of its variants; empty where these multiply, in the manifest."""
    header: tuple[tuple[str, ...], ...] = ()
    """The columns of that list: axes, arguments with hints, and meta-parameters and options."""


@dataclass(frozen=True)
class ServedFunction:
    """A function of a library."""

    module: str
    name: str
    """Its qualified name."""
    digest: str
    """That of its text, of the functions that it reaches and of the constants that they take, as `origin.py` makes it."""
    parameters: tuple[tuple[str, bool, bool, Value], ...]
    """In order: name, whether it is a constexpr, whether it has a plain default, and that default."""
    launches: tuple[ServedLaunch, ...]
