"""The value of an expression outside of kernels: module constants, defaults of parameters, conditions of
imports."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, ClassVar

from kbuild.compiler.frontend import constexpr
from kbuild.compiler.frontend.sources import modules
from kbuild.compiler.frontend.sources.functions import (
    Namespace,
    Plain,
    SourceFunction,
    Unresolved,
    UnresolvedModule,
)
from kbuild.compiler.layout.gluon import Layout, NVMMASharedLayout, PaddedSharedLayout
from kbuild.compiler.semantic.registry import Builtin
from kbuild.compiler.semantic.values import ClassMarker

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "list": tuple,
    "max": max,
    "min": min,
    "range": range,
    "round": round,
    "str": str,
    "sum": sum,
    "tuple": tuple,
}
_HOST = {
    "triton.cdiv": lambda x, y: -(-x // y),
    "triton.next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
}


def limits_of(module: str) -> Any:
    """What is known of a foreign module, `torch` or `numpy`: the limits of its types; None for others."""
    from kbuild.compiler.frontend.sources import limits  # Milliseconds, and few modules name it.

    return limits.MODULES.get(module)


def is_layout_maker(function: Any) -> bool:
    """Whether a function is a class of layouts, or a function of one."""
    return (isinstance(function, type) and issubclass(function, Layout)) or function in _LAYOUT_MAKERS


_LAYOUT_MAKERS = (NVMMASharedLayout.get_default_for, PaddedSharedLayout.with_identity_for)


_MORE = (
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Set, ast.JoinedStr, ast.Lambda),
    *(ast.Slice, ast.Starred),
)
"""Expressions that functions have, and constants without any function do not."""


class Evaluator:
    """Evaluates constant expressions over a namespace; raises `Unresolved` for all others."""

    evaluated: ClassVar[Callable[[ast.expr, Namespace, str], Any] | None] = None
    """The value of an expression that takes more than this class knows, in a namespace of a file; `constants` says
    how."""

    def __init__(
        self, namespace: Namespace, member: Callable[[Any, str], Any], file: str | None = None
    ) -> None:
        self.namespace = namespace
        self.member = member
        """`owner.name`; raises `Unresolved`."""
        self.file = file
        """The file of the expressions, where functions of theirs may be run."""

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, with module variables replaced by their values."""
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            raise Unresolved(f"`{ast.unparse(node)}` is not a constant expression")
        found = handler(node)
        return found.value if isinstance(found, Plain) else found

    def computed(self, node: ast.expr) -> Any:
        """The value of an expression, functions of the author's that it calls run for it."""
        if self.file is None or Evaluator.evaluated is None or not any(map(self._takes_more, ast.walk(node))):
            return self.value(node)
        return Evaluator.evaluated(node, self.namespace, self.file)

    def _takes_more(self, node: ast.AST) -> bool:
        """Whether an expression is not one that this class evaluates, but may have a value."""
        if isinstance(node, _MORE):
            return True
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return False
        try:
            function = self.named(node.func)
        except Unresolved:
            return False
        return getattr(function, "kind", "") in ("plain", "constexpr") or hasattr(function, "fields")

    def named(self, node: ast.Name | ast.Attribute) -> Any:
        """What a name stands for, module variables still marked as such."""
        return self._name(node) if isinstance(node, ast.Name) else self._attribute(node)

    def is_constexpr_call(self, node: ast.expr) -> bool:
        """Whether an expression is `tl.constexpr(...)`."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return False
        try:
            return self.named(node.func) == modules.CLASSES["constexpr"]
        except Unresolved:
            return False

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, str) and not constexpr.is_text(node.value):
            raise Unresolved(f"{node.value!r} is not text: it has half of a surrogate pair")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        try:
            return self.namespace.resolve(node.id)
        except UnresolvedModule as error:
            found = limits_of(error.module)
            if found is None:
                raise
            return found
        except KeyError:
            found = _FUNCTIONS.get(node.id)
            if found is None:
                raise Unresolved(f"{node.id} is not defined") from None
            return found

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, SourceFunction | Builtin) or (
            node.attr.startswith("_") and node.attr != "__version__"
        ):
            raise Unresolved(f"`{ast.unparse(node)}` is not a constant expression")
        return self.member(owner, node.attr)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.value(item) for item in node.elts)

    def _list(self, node: ast.List) -> Any:
        return tuple(self.value(item) for item in node.elts)

    def _dict(self, node: ast.Dict) -> Any:
        return {self.value(k): self.value(v) for k, v in zip(node.keys, node.values) if k is not None}

    def _binop(self, node: ast.BinOp) -> Any:
        return self._operate(constexpr.binary, node.op, self.value(node.left), self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        return self._operate(constexpr.unary, node.op, self.value(node.operand))

    def _compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        for op, comparator in zip(node.ops, node.comparators):
            right = self.value(comparator)
            if not self._operate(constexpr.compare, op, left, right):
                return False
            left = right
        return True

    def _boolop(self, node: ast.BoolOp) -> Any:
        result: Any = None
        for item in node.values:
            result = self.value(item)
            if bool(result) != isinstance(node.op, ast.And):
                return result
        return result

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self.value(node.test) else node.orelse)

    def _subscript(self, node: ast.Subscript) -> Any:
        return self._operate(
            lambda _, owner, index: owner[index], None, self.value(node.value), self.value(node.slice)
        )

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "hasattr" and len(node.args) == 2:
            return self._has_member(self.value(node.args[0]), self.value(node.args[1]))
        function = self.value(node.func)
        args = [self.value(item) for item in node.args]
        if any(isinstance(value, range) and len(value) > constexpr.MAX_ITEMS for value in args):
            raise Unresolved(f"`{ast.unparse(node)}` has too many numbers to be counted while compiling")
        if isinstance(function, ClassMarker) and function.name == "constexpr" and len(args) == 1:
            return args[0]
        if callable(function) and is_layout_maker(function):
            named = {item.arg: self.value(item.value) for item in node.keywords if item.arg}
            return self._operate(lambda _, *values: function(*values, **named), None, *args)
        if isinstance(function, Builtin):
            function = _HOST.get(function.name)
        if not callable(function) or node.keywords or isinstance(function, SourceFunction):
            raise Unresolved(f"`{ast.unparse(node)}` is not a constant expression")
        return self._operate(lambda _, *values: function(*values), None, *args)

    def _has_member(self, owner: Any, name: Any) -> bool:
        """`hasattr(tl, "gather")`: of a module that is never read from disk, whether it has a name."""
        if not isinstance(owner, modules.PythonModule) or not isinstance(name, str):
            raise Unresolved("hasattr is known of the language's modules alone")
        try:
            self.member(owner, name)
        except Unresolved:
            return False
        return True

    def _operate(self, function: Callable[..., Any], *operands: Any) -> Any:
        try:
            return function(*operands)
        except (ArithmeticError, TypeError, ValueError, LookupError) as error:
            raise Unresolved(str(error)) from None


class ConditionEvaluator(Evaluator):
    """Evaluates conditions of a module's top level: variables of the environment are not set, since a kernel is to be the same
    wherever it is built."""

    def _call(self, node: ast.Call) -> Any:
        names = ast.unparse(node.func).split(".")
        if names[-1] != "getenv" and names[-2:] != ["environ", "get"]:
            return super()._call(node)
        defaults = [*node.args[1:], *(item.value for item in node.keywords if item.arg == "default")]
        return self.value(defaults[0]) if defaults else None
