"""Constants of modules that take more than an expression over other constants: functions of the module that are
called, comprehensions, and all else that code which runs while compiling may do."""

from __future__ import annotations

import ast
from typing import Any

from kbuild.compiler.frontend.calls import CallVisitor
from kbuild.compiler.frontend.evaluate import Evaluator
from kbuild.compiler.frontend.host import InnerFunction
from kbuild.compiler.frontend.scope import Frame, Poisoned, frozen
from kbuild.compiler.frontend.sources.functions import Namespace, Unresolved, make_function
from kbuild.compiler.ir.core import Block, Module
from kbuild.errors import CompileError

_BUILDS_LAYOUTS_FOR = 4
"""Warps of the kernel that does not exist: nothing of a constant depends on them."""


def evaluated(node: ast.expr, namespace: Namespace, file: str) -> Any:
    """The value of an expression in a module; raises `Unresolved`, whose text names the place."""
    around = ast.copy_location(
        ast.FunctionDef("<module>", ast.arguments([], [], None, [], [], None, []), [], []), node
    )
    function = make_function(around, file, namespace, kind="constexpr")
    visitor = CallVisitor(Module([]), Block([]), _BUILDS_LAYOUTS_FOR)
    visitor.frames.append(Frame(function, {}, pure=True))
    try:
        value = visitor.expression(node)
    except CompileError as error:
        place = f" ({error.loc.file}:{error.loc.line})" if error.loc else ""
        raise Unresolved(f"{error.message}{place}") from None
    except (Poisoned, RecursionError):
        raise Unresolved(f"`{ast.unparse(node)}` nests too deeply to be computed") from None
    if isinstance(value, InnerFunction):
        raise Unresolved(
            f"`{ast.unparse(node)}` is a function, which only code that runs while compiling has"
        )
    return frozen(value)


Evaluator.evaluated = staticmethod(evaluated)
