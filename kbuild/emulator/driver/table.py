"""The table of the driver's functions: each is a Python function here, and its C prototype follows from its
annotations.

    @call(since=2000)
    def cuDeviceGet(driver: Driver, device: Pointer, ordinal: Int) -> None: ...

becomes `int cuDeviceGet(void *device, int ordinal)` in the library, which passes the arguments as 64-bit
words. A function returns for success, and raises `Refused` for everything else.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kbuild.errors import UsageError

Pointer: TypeAlias = int
"""An address in the process, or a handle."""
Int: TypeAlias = int
Unsigned: TypeAlias = int
Size: TypeAlias = int
Word: TypeAlias = int
"""64 bits: an address on the device, or flags."""
Byte: TypeAlias = int
Short: TypeAlias = int

_C_TYPES = {
    "Pointer": "void *",
    "Int": "int ",
    "Unsigned": "unsigned int ",
    "Size": "size_t ",
    "Word": "uint64_t ",
    "Byte": "unsigned char ",
    "Short": "unsigned short ",
}


@dataclass(frozen=True)
class DriverFunction:
    """One function of the driver."""

    name: str
    """Its symbol, such as `cuMemAlloc_v2`."""
    function: Callable[..., None]
    parameters: tuple[tuple[str, str], ...]
    """Names and types, one of those above, without the driver itself."""
    since: int
    """The first driver that has it: 1000 * major + 10 * minor."""
    before_init: bool
    """Whether it may be called before cuInit."""
    unsafe_in_capture: bool
    """Whether it is refused while a stream is captured."""

    @property
    def family(self) -> str:
        """The name that all forms of it have in common, such as cuModuleLoadData for cuModuleLoadDataEx."""
        return family_of(self.name)

    @property
    def entry(self) -> str:
        """Its C text."""
        declared = ", ".join(f"{_C_TYPES[type_]}{name}" for name, type_ in self.parameters) or "void"
        words = ", ".join(f"(int64_t){name}" for name, _ in self.parameters) or "0"
        return f'EXPORT int {self.name}({declared}) {{ int64_t words[] = {{ {words} }}; return call("{self.name}", words); }}'


FUNCTIONS: dict[str, DriverFunction] = {}
"""All functions by symbol."""


def call(
    since: int = 4000,
    *,
    before_init: bool = False,
    unsafe_in_capture: bool = False,
    aliases: Iterable[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put a function into the table, under its own name and others."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *parameters = inspect.signature(function).parameters.values()
        typed = tuple((parameter.name, str(parameter.annotation)) for parameter in parameters)
        for name in (function.__name__, *aliases):
            FUNCTIONS[name] = DriverFunction(name, function, typed, since, before_init, unsafe_in_capture)
        return function

    return register


def family_of(name: str) -> str:
    """A symbol without the endings of its forms: `_v2`, `_ptsz`, `Ex`."""
    return re.sub(r"(Ex)?(_v\d)?(_ptsz|_ptds)?$", "", name)


def exported(version: int, without: Iterable[str] = ()) -> list[DriverFunction]:
    """The functions of a driver of that version, but for some.  UsageError for names that are none."""
    left_out = set(without)
    for name in left_out - set(FUNCTIONS):
        raise UsageError(
            f"the driver has no function {name}", help=f"known are {', '.join(sorted(FUNCTIONS))}"
        )
    return [
        function
        for name, function in sorted(FUNCTIONS.items())
        if function.since <= version and name not in left_out
    ]
