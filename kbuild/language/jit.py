"""`@kbuild.jit`: marks a function as one of the language, and lets its author run it on numpy arrays."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from kbuild.errors import UsageError
from kbuild.options import DEFAULTS, by_name


class JITFunction:
    """A function written in the language: a kernel, or a function that kernels call."""

    kind = "jit"

    def __init__(self, fn: Callable[..., Any], noinline: bool = False, debug: bool = False) -> None:
        self.fn = fn
        self.noinline = noinline
        self.debug = debug
        functools.update_wrapper(self, fn)

    @property
    def interpret(self) -> _Interpreted:
        """`kernel.interpret[grid](...)` runs the kernel in numpy: slowly, with every access to memory
        checked."""
        return _Interpreted(self)

    def __getitem__(self, grid: Any) -> Any:
        raise UsageError(
            f"{self.fn.__name__}[grid](...) would compile while running, which kbuild does not do",
            help="build the kernel into a package with `kbuild build`, or run it in numpy with "
            f"{self.fn.__name__}.interpret[grid](...)",
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"{self.fn.__name__} is a kernel or a function of one, and cannot be called from Python",
            help=f"run it in numpy with {self.fn.__name__}.interpret[grid](...)",
        )


class ConstexprFunction(JITFunction):
    """A function that runs while kernels are compiled; from Python it is called as usual."""

    kind = "constexpr"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


class _Interpreted:
    """A kernel, and then its grid, on the way to being run."""

    def __init__(self, kernel: JITFunction, grid: Sequence[int] = (1,)) -> None:
        self.kernel = kernel
        self.grid = grid

    def __getitem__(self, grid: int | Sequence[int]) -> _Interpreted:
        return _Interpreted(self.kernel, (grid,) if isinstance(grid, int) else tuple(grid))

    def __call__(self, *args: Any, types: dict[str, str] | None = None, **kwargs: Any) -> None:
        """Run all programs of the grid.  Arrays are changed in place; `types` gives the types of arguments
        that numpy cannot express, as in `types={"x": "*bf16"}`.  Keywords that are not parameters of the
        kernel are options, as of `kbuild.compile`.  With `debug`, here or in the decorator, an assertion that
        fails and an integer that overflows raise `InterpretError`."""
        # Here to keep `import kbuild.language` fast: kernels are mostly built, not run.
        from kbuild.compiler.frontend import build_module
        from kbuild.compiler.interp import interpret

        signature = inspect.signature(self.kernel.fn)
        options = {
            name: kwargs.pop(name)
            for name in list(kwargs)
            if by_name(name) and name not in signature.parameters
        }
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"{self.kernel.fn.__name__}: {error}") from None
        bound.apply_defaults()
        constexprs = {
            name: value for name, value in bound.arguments.items() if self._is_constant(name, value)
        }
        arguments = {name: value for name, value in bound.arguments.items() if name not in constexprs}
        interpret(
            build_module, self.kernel, self.grid, arguments, constexprs, types, DEFAULTS.changed(options)
        )

    def _is_constant(self, name: str, value: Any) -> bool:
        annotation = inspect.signature(self.kernel.fn).parameters[name].annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if isinstance(value, tuple | list) and _has_array(value):
            return False  # Arrays are of run time, and so are the numbers in a tuple with them.
        return (
            text.rsplit(".", 1)[-1] == "constexpr" or value is None or isinstance(value, str | tuple | list)
        )


def _has_array(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_array, value))
    return hasattr(value, "dtype")


def jit(fn: Callable[..., Any] | None = None, *, noinline: bool = False, debug: bool = False) -> Any:
    """Marks a function as one of the language.  With `noinline`, calls of it stay calls in the machine code;
    a kernel with `debug` has its assertions wherever it is compiled or run."""
    if fn is None:
        return lambda function: JITFunction(function, noinline, debug)
    return JITFunction(fn, noinline, debug)


class GluonJITFunction(JITFunction):
    """A function of Gluon, whose author chooses the layouts of tensors."""


def gluon_jit(fn: Callable[..., Any] | None = None, *, noinline: bool = False, debug: bool = False) -> Any:
    """Marks a function as one of Gluon: a kernel, or a function that kernels call.  The options are those of
    `jit`."""
    if fn is None:
        return lambda function: GluonJITFunction(function, noinline, debug)
    return GluonJITFunction(fn, noinline, debug)


def jit_aggregate(cls: type) -> type:
    """Marks a class whose objects kernels make and pass on: fields with types, functions of Gluon."""
    return cls


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Marks a function that kernels call with values known while compiling, and that runs then."""
    return ConstexprFunction(fn)
