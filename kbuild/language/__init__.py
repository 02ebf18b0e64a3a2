"""The language as authors of kernels import it: `import kbuild.language as tl`.

The names are those of `triton.language`.  Functions come from the compiler's own table, so that what is here
is what compiles; outside of kernels they say so when called.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

from kbuild.compiler import library
from kbuild.compiler.semantic import TABLES
from kbuild.compiler.semantic.registry import Builtin
from kbuild.compiler.semantic.types import BY_TL_NAME, BlockType, ConstexprType, DType, PointerDtype
from kbuild.errors import UsageError
from kbuild.language.constant import ConstexprValue
from kbuild.language.jit import JITFunction, constexpr_function, jit

__all__ = [
    "BlockType",
    "ConstexprType",
    "DType",
    "JITFunction",
    "PointerDtype",
    "constexpr",  # pyright: ignore[reportUnsupportedDunderAll]  below, hidden from checkers
    "constexpr_function",
    "jit",
    "tensor",
]

if not TYPE_CHECKING:
    # A checker of types takes the Any of `__getattr__`: an annotation that every value fits, as in a kernel, and
    # for constants of a module something to call.
    constexpr = ConstexprValue

dtype = DType
pointer_type = PointerDtype
block_type = BlockType
constexpr_type = ConstexprType


class tensor:
    """A value of run time, for annotations and `isinstance` in kernels."""


class tensor_descriptor_type:
    """The type of a tensor descriptor, for `isinstance` in kernels."""


class slice:
    """A range of places in a tuple, for kernels."""


class LanguageFunction:
    """A function of the language, which has a meaning only in kernels."""

    def __init__(
        self, name: str, module: str = "kbuild.language", shown: str = "tl", found: Builtin | None = None
    ) -> None:
        self.__name__ = name
        self.__module__ = module
        self._shown = shown
        self._builtin = TABLES["tl"].get(name) if found is None else found

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        found = self._builtin
        if found is not None:
            return found.function.__doc__
        return ast.get_docstring(_library_definition(self.__name__))

    @property
    def __signature__(self) -> inspect.Signature:
        found = self._builtin
        if found is not None:
            _, *parameters = inspect.signature(found.function).parameters.values()
        else:
            arguments = _library_definition(self.__name__).args
            first = len(arguments.args) - len(arguments.defaults)
            kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
            parameters = [
                inspect.Parameter(
                    argument.arg,
                    kind,
                    default=ast.literal_eval(arguments.defaults[place - first]) if place >= first else empty,
                )
                for place, argument in enumerate(arguments.args)
            ]
        return inspect.Signature(
            [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"{self._shown}.{self.__name__} has a meaning only inside kernels",
            help=f"call it in a function decorated with @{'kbuild' if self._shown == 'tl' else 'gluon'}.jit",
        )

    def __repr__(self) -> str:
        return f"<function {self._shown}.{self.__name__}>"


def _library_definition(name: str) -> ast.FunctionDef:
    node = ast.parse(library.index()[name][2]).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def __getattr__(name: str) -> Any:
    """The functions and dtypes of the language, made at their first use."""
    if name in BY_TL_NAME:
        value: Any = BY_TL_NAME[name]
    elif name == "pi32_t":
        value = PointerDtype(BY_TL_NAME["int32"])
    elif name in ("math", "extra", "core"):
        value = _Namespace(name)
    elif not name.startswith("_") and (name in TABLES["tl"] or name in library.index()):
        value = LanguageFunction(name)
    else:
        raise AttributeError(f"module 'kbuild.language' has no attribute {name!r}")
    globals()[name] = value
    return value


class _Namespace:
    """`tl.math`, `tl.extra.cuda.libdevice`: places that kernels name and that hold functions of kernels."""

    def __init__(self, path: str) -> None:
        self.name = f"kbuild.language.{path}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("cuda", "libdevice"):
            return _Namespace(f"{self.name.removeprefix('kbuild.language.')}.{name}")
        return LanguageFunction(name, self.name)


def __dir__() -> list[str]:
    return sorted([*globals(), *BY_TL_NAME, *TABLES["tl"], *library.public_names()])
