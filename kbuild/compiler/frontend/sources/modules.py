"""The modules that kernels name and that are never imported: `triton`, `triton.language`, `kbuild.language`,
and Python's own `math`.  What they hold comes from the semantic table and the library."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from kbuild.compiler import library
from kbuild.compiler.frontend.sources.functions import GLUON_JIT, SourceFunction, Unresolved, make_function
from kbuild.compiler.layout.gluon import PUBLIC
from kbuild.compiler.semantic import MEMBERS, TABLES
from kbuild.compiler.semantic.types import BY_TL_NAME, INT32, PointerDtype
from kbuild.compiler.semantic.values import ClassMarker


@dataclass(frozen=True)
class PythonModule:
    """A module by its full name."""

    name: str

    def __str__(self) -> str:
        return f"module {self.name}"


_LANGUAGE = frozenset(
    f"{package}.language{part}"
    for package in ("triton", "kbuild")
    for part in ("", ".core", ".math", ".standard", ".random", ".semantic")
)
_EXTRA = frozenset(("triton.language.extra", "kbuild.language.extra"))
_INDUCTOR = frozenset(("torch._inductor", "torch._inductor.runtime"))
"""The packages of torch with a module `triton_helpers`, which the kernels that torch.compile writes import."""
_HELPERS = frozenset(f"{package}.triton_helpers" for package in _INDUCTOR)
_TARGET_INFO = frozenset(("triton.language.target_info", "kbuild.language.target_info"))
_CUDA = frozenset(
    ("triton.language.extra.cuda", "kbuild.language.extra.cuda", "triton.language.extra.cuda.utils")
)
_LIBDEVICE = frozenset(
    (
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda.libdevice",
        "kbuild.language.extra.libdevice",
        "kbuild.language.extra.cuda.libdevice",
        "triton.language.libdevice",
        *(f"{helpers}.libdevice" for helpers in _HELPERS),
    )
)
_PACKAGES = frozenset(("triton", "kbuild"))
_GLUON = {"triton.experimental.gluon": "triton", "kbuild.language.gluon": "kbuild"}
"""The packages of Gluon."""
_GLUON_PARTS = frozenset(("", "._core", "._layouts", "._standard", "._math", "._semantic"))

CLASSES = {
    name: ClassMarker(name)
    for name in (
        "constexpr",
        "tensor",
        "dtype",
        "pointer_type",
        "block_type",
        "const",
        "tuple",
        "tensor_descriptor",
        "constexpr_type",
        "tensor_descriptor_type",
        "slice",
        "jit",
    )
}
_GLUON_CLASSES = {
    "jit": ClassMarker(GLUON_JIT),
    "constexpr_function": CLASSES["jit"],
    "aggregate": ClassMarker("aggregate"),
}
_GLUON_VALUES = {name: ClassMarker(name) for name in ("shared_memory_descriptor",)}
NOT_IN_GLUON = frozenset(
    (
        "dot",
        "dot_scaled",
        "cat",
        "make_block_ptr",
        "advance",
        "make_tensor_descriptor",
        "load_tensor_descriptor",
    )
)
"""Names of `tl` that `gl` does not have."""
_CONSTANTS = {"TRITON_MAX_TENSOR_NUMEL": 1 << 20, "pi32_t": PointerDtype(INT32)}


ABSENT = {
    "float8e4b8": "it is a type of AMD's hardware",
    "float8e5b16": "it is a type of AMD's hardware",
}
"""Names of Triton's that mean nothing here, and what to do instead."""


@dataclass(frozen=True)
class PropagateNan:
    """`tl.PropagateNan`: its members are what the builtins take."""

    NONE: str = "none"
    ALL: str = "all"


def _shared_with_gluon(name: str) -> str:
    """A module of `tl` that Gluon has under a name of its own, such as `gl.extra.libdevice`, by that of `tl`."""
    for package, root in _GLUON.items():
        if name.startswith(f"{package}.language.extra"):
            return f"{root}.language{name.removeprefix(f'{package}.language')}"
    return name


def is_known(name: str) -> bool:
    """Whether a module is one of those that are never read from disk."""
    name = _shared_with_gluon(name)
    return (
        name in _LANGUAGE
        or name in _EXTRA
        or name in _CUDA
        or name in _TARGET_INFO
        or name in _LIBDEVICE
        or name in _PACKAGES
        or name in _INDUCTOR
        or name in _HELPERS
        or name in ("math", "triton.experimental")
        or _gluon_table(name) is not None
    )


def _gluon_table(name: str) -> str | None:
    """The table of a module of Gluon, `gl.nvidia.hopper` for `triton.experimental.gluon.language.nvidia.hopper`;
    "" for Gluon itself; None for other modules."""
    package = next((p for p in _GLUON if name == p or name.startswith(f"{p}.")), None)
    if package is None:
        return None
    rest = name[len(package) :]
    if not rest.startswith(".language"):
        return "" if rest in ("", "._runtime") else None
    rest = rest.removeprefix(".language")
    if rest in _GLUON_PARTS:
        return "gl"
    return (
        f"gl{rest}"
        if any(key == f"gl{rest}" or key.startswith(f"gl{rest}.") for key in _gluon_tables())
        else None
    )


def _gluon_tables() -> list[str]:
    """The tables of Gluon.  What Ampere has, Hopper has too."""
    names = [key for key in (*TABLES, *MEMBERS) if key.startswith("gl.")]
    return [*names, *(name.replace(".ampere", ".hopper") for name in names)]


def find_member(module: str, name: str) -> Any:
    """A module inside a known module, or its member; raises `Unresolved`."""
    full = f"{module}.{name}"
    return PythonModule(full) if is_known(full) else member(module, name)


def member(module: str, name: str) -> Any:
    """`module.name` of a known module; raises `Unresolved`."""
    module = _shared_with_gluon(module)
    if module in _LANGUAGE:
        return _language(module, name)
    if module in _PACKAGES:
        return _package(module, name)
    if module in _EXTRA:
        return _first(
            TABLES["cuda"].get(name),
            PythonModule(f"{module}.{name}") if name in ("cuda", "libdevice") else None,
            module=module,
            name=name,
        )
    if module in _CUDA:
        return _first(
            TABLES["cuda"].get(name),
            PythonModule(f"{module}.{name}") if name in ("libdevice", "utils") else None,
            module=module,
            name=name,
        )
    if module in _TARGET_INFO:
        return _first(TABLES["target_info"].get(name), module=module, name=name)
    if module in _HELPERS:
        return _helper(module, name)
    if module in _INDUCTOR:
        found = PythonModule(f"{module}.{name}")
        return _first(found if is_known(found.name) else None, module=module, name=name)
    if (table := _gluon_table(module)) is not None:
        return _gluon(module, table, name)
    if module == "triton.experimental":
        raise Unresolved(f"{module} has no {name}")
    if module in _LIBDEVICE:
        return _first(_of_libdevice(name), module=module, name=name)
    assert module == "math"
    return _first(getattr(math, name, None), module=module, name=name)


def _first(*candidates: Any, module: str, name: str) -> Any:
    for candidate in candidates:
        if candidate is not None:
            return candidate
    raise Unresolved(f"{module} has no {name}")


def _language(module: str, name: str) -> Any:
    found = TABLES["tl"].get(name)
    if found is not None:
        return found
    found = BY_TL_NAME.get(name) or CLASSES.get(name) or _CONSTANTS.get(name)
    if found is not None:
        return found
    if name in library.index():
        return library_function(name)
    if name in ("core", "math", "standard", "random", "extra", "target_info"):
        return PythonModule(f"{module.split('.language')[0]}.language.{name}")
    if name == "libdevice":
        return PythonModule("triton.language.extra.libdevice")
    if name == "PropagateNan":
        return PropagateNan()
    # tl.math once held what libdevice holds.
    if module.endswith(".math") and (found := _of_libdevice(name)) is not None:
        return found
    raise Unresolved(
        f"tl.{name} is not available: {ABSENT[name]}" if name in ABSENT else f"{module} has no {name}"
    )


def _of_libdevice(name: str) -> Any:
    """A function of libdevice: a builtin, or one of the library; None where there is none."""
    found = TABLES["libdevice"].get(name)
    if found is None and name in library.index(library.LIBDEVICE):
        return library_function(name, library.LIBDEVICE)
    return found


def _helper(module: str, name: str) -> Any:
    """A member of `triton_helpers`: a function of the library, or what it has of Triton's modules."""
    if name in library.public_names(library.INDUCTOR):
        return library_function(name, library.INDUCTOR)
    if name == "math":
        return PythonModule("triton.language.math")
    if name in ("tl", "libdevice", "triton"):
        return PythonModule(
            "triton.language" if name == "tl" else f"{module}.{name}" if name[0] == "l" else name
        )
    raise Unresolved(f"{module}.{name} is not among the functions that kbuild knows of that module")


def _gluon(module: str, table: str, name: str) -> Any:
    """A member of a module of Gluon: its own, or for `gl` also what `tl` has."""
    if not table:
        return _first(_GLUON_CLASSES.get(name), module=module, name=name)
    for key in dict.fromkeys((table, table.replace(".hopper", ".ampere"))):
        found = TABLES.get(key, {}).get(name) or MEMBERS.get(key, {}).get(name)
        if found is not None:
            return found
    if table != "gl" or name in NOT_IN_GLUON:
        raise Unresolved(f"gl{table[2:]} has no {name}")
    return PUBLIC.get(name) or _GLUON_VALUES.get(name) or _language("kbuild.language", name)


def _package(module: str, name: str) -> Any:
    if name == "language":
        return PythonModule(f"{module}.language")
    if name == "__version__":
        return "3.6.0"
    if name == "experimental":
        return PythonModule(f"{module}.experimental")
    if name in TABLES["triton"]:
        return TABLES["triton"][name]
    raise Unresolved(f"{module}.{name} has no meaning in a kernel")


def language_names() -> list[str]:
    """The names of `tl`, for suggestions."""
    return [*TABLES["tl"], *library.public_names(), *BY_TL_NAME, *CLASSES]


class _LibraryNamespace:
    """The names that a function of one of the library's modules sees: its neighbours, and `tl`."""

    def __init__(self, module: str) -> None:
        self.module = module

    def resolve(self, name: str) -> Any:
        if name in library.index(self.module):
            return library_function(name, self.module)
        if name in ("tl", "kbuild"):
            return PythonModule("kbuild.language" if name == "tl" else "kbuild")
        raise KeyError(name)

    def names(self) -> list[str]:
        return list(library.index(self.module))


_NAMESPACES = {module: _LibraryNamespace(module) for module in library.FILES}
_LIBRARY_FUNCTIONS: dict[tuple[str, str], SourceFunction] = {}


def library_function(name: str, module: str = library.TL) -> SourceFunction:
    """A function of the library, parsed at its first use."""
    known = _LIBRARY_FUNCTIONS.get((module, name))
    if known is None:
        path, line, text = library.index(module)[name]
        node = ast.parse(text, path).body[0]
        assert isinstance(node, ast.FunctionDef)
        ast.increment_lineno(node, line - 1)
        known = _LIBRARY_FUNCTIONS[module, name] = make_function(
            node, path, _NAMESPACES[module], library=True
        )
    return known
