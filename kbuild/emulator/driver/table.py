"""The table of the driver's functions: each is a Python function here, and its C prototype follows from its
annotations.

    @call(2000)
    def cuDeviceGet(driver: Driver, device: Pointer, ordinal: Int) -> None: ...

becomes `int cuDeviceGet(void *device, int ordinal)` in the library, which passes the arguments as 64-bit
words. A function returns for success, and raises `Refused` for everything else.

Versions are those of cudaTypedefs.h: `PFN_cuMemAlloc_v3020` is the type of `cuMemAlloc_v2`, the form that cuMemAlloc has had
since CUDA 3.2.  Programs that ask for a function by name and version, as cuda.bindings does, rely on them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
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
    before_init: bool = False
    """Whether it may be called before cuInit."""
    unsafe_in_capture: bool = False
    """Whether it is refused while a stream is captured."""
    is_per_thread: bool = False
    """Whether stream 0 is the calling thread's default stream, instead of the legacy one."""

    @property
    def family(self) -> str:
        """The name that all forms of it have in common, such as cuModuleLoadData for cuModuleLoadDataEx."""
        return family_of(self.name)

    @property
    def base(self) -> str:
        """The name by which programs ask for it, such as cuMemAlloc for cuMemAlloc_v2."""
        return _FORM.sub("", self.name)

    @property
    def entry(self) -> str:
        """Its C text."""
        declared = ", ".join(f"{_C_TYPES[type_]}{name}" for name, type_ in self.parameters) or "void"
        words = ", ".join(f"(int64_t){name}" for name, _ in self.parameters) or "0"
        how = (
            "give_back"
            if re.search("Free|Destroy|Unload|Release|CtxGetCurrent|CtxSetCurrent", self.name)
            else "call"
        )
        return f'EXPORT int {self.name}({declared}) {{ int64_t words[] = {{ {words} }}; return {how}("{self.name}", words); }}'


FUNCTIONS: dict[str, DriverFunction] = {}
"""All functions by symbol."""
_BY_BASE: dict[str, list[DriverFunction]] = {}
_FORM = re.compile(r"(_v\d)?(_ptsz|_ptds)?$")


def call(
    since: int,
    *,
    before_init: bool = False,
    unsafe_in_capture: bool = False,
    ptsz: int = 0,
    ptds: int = 0,
    aliases: Mapping[str, int] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put a function into the table, under its own name and others.

    `since` is the first driver that has it, `aliases` are other forms that do the same, with theirs.  `ptsz`, or `ptds`, is the
    first driver with the form of that ending, whose default stream is that of the calling thread.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *parameters = inspect.signature(function).parameters.values()
        typed = tuple((parameter.name, str(parameter.annotation)) for parameter in parameters)
        name = function.__name__
        forms = [(name, since, False), *((alias, first, False) for alias, first in (aliases or {}).items())]
        forms += [
            (name + ending, first, True) for ending, first in (("_ptsz", ptsz), ("_ptds", ptds)) if first
        ]
        for form, first, is_per_thread in forms:
            FUNCTIONS[form] = made = DriverFunction(
                form, function, typed, first, before_init, unsafe_in_capture, is_per_thread
            )
            _BY_BASE.setdefault(made.base, []).append(made)
        return function

    return register


def family_of(name: str) -> str:
    """A symbol without the endings of its forms: `_v2`, `_ptsz`, `Ex`."""
    return _FORM.sub("", name).removesuffix("Ex")


def form_of(base: str, version: int, is_per_thread: bool = False) -> DriverFunction | None:
    """The form of a function that programs for a version of CUDA mean by its name; None if there is none.

    A form with the thread's default stream is preferred where that is asked for.
    """
    forms = [one for one in _BY_BASE.get(base, ()) if one.since <= version]
    wanted = [one for one in forms if one.is_per_thread and is_per_thread] or [
        one for one in forms if not one.is_per_thread
    ]
    return max(wanted, key=lambda one: (one.since, one.name), default=None)


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
