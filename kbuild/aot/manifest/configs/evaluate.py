"""Values of Python expressions that need nothing but literals: the lists of configurations of `@triton.autotune`,
module constants, and the functions and comprehensions that make them.  Nothing is executed: what is not
understood here has no value."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.aot.syntax import module_functions, module_statements

_STEPS = 200_000
_LARGEST = 1 << 64
_LONGEST = 10_000
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "range": range,
    "len": len,
    "list": lambda items=(): list(items),
    "tuple": lambda items=(): tuple(items),
    "dict": dict,
    "min": min,
    "max": max,
    "int": int,
    "float": float,
    "bool": bool,
    "sorted": sorted,
    "product": lambda *lists: list(itertools.product(*lists)),
    "cdiv": lambda a, b: -(-a // b),
    "next_power_of_2": lambda n: 1 << (n - 1).bit_length() if n > 1 else 1,
    # A package of kbuild's is for NVIDIA's GPUs.
    "is_cuda": lambda: True,
    "is_hip": lambda: False,
    "is_xpu": lambda: False,
}


class NoValue(Exception):
    """The value of an expression cannot be known from the source alone; the text says why."""


@dataclass(frozen=True)
class TritonConfig:
    """What `triton.Config(kwargs, num_warps=…)` says."""

    kwargs: Mapping[str, Any]
    """Values of constexpr parameters."""
    options: Mapping[str, Any]
    """The keywords beside them, such as `num_warps`; those without a value here are None."""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@dataclass
class Evaluator:
    """The expressions of one module, whose top-level assignments and functions they may name."""

    constants: Mapping[str, ast.expr]
    """Names that the module assigns once."""
    functions: Mapping[str, ast.FunctionDef]
    steps: int = 0

    def value(self, node: ast.expr, names: Mapping[str, Any] | None = None) -> Any:
        """The value of an expression; raises NoValue."""
        self.steps = 0
        try:
            return self._value(node, dict(names or {}))
        except NoValue:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise NoValue(f"{type(error).__name__}: {error}") from None

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        self.steps += 1
        if self.steps > _STEPS:
            raise NoValue("it takes too long to work out")

        def of(child: ast.expr) -> Any:
            return self._value(child, names)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._named(name, names)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                values = self._items(items, names)
                return values if isinstance(node, ast.List) else tuple(values)
            case ast.Dict(keys=keys, values=values):
                return self._mapping(keys, values, names)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not of(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -of(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _bounded(type(op), of(left), of(right))
            case ast.BoolOp(op=op, values=parts):
                return all(map(of, parts)) if isinstance(op, ast.And) else any(map(of, parts))
            case ast.Compare(left=left, ops=ops, comparators=others):
                operands = [of(left), *map(of, others)]
                return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, operands, operands[1:]))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return of(body) if of(test) else of(orelse)
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return of(value)[of(index)]
            case (
                ast.ListComp(elt=element, generators=generators)
                | ast.GeneratorExp(elt=element, generators=generators)
            ):
                return [self._value(element, inner) for inner in self._rounds(generators, names)]
            case ast.Attribute(value=value, attr=attribute):
                return _attribute(of(value), attribute)
            case ast.Lambda():
                return node
            case ast.Call():
                return self._called(node, names)
            case _:
                raise NoValue(f"{ast.unparse(node)[:60]} is not a literal")

    def _named(self, name: str, names: dict[str, Any]) -> Any:
        if name in names:
            return names[name]
        if name in self.functions:
            return self.functions[name]
        if name in self.constants:
            return self._value(self.constants[name], {})
        raise NoValue(f"{name} is not known from the source alone")

    def _items(self, items: Sequence[ast.expr], names: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if isinstance(item, ast.Starred):
                found.extend(self._value(item.value, names))
            else:
                found.append(self._value(item, names))
        return found

    def _mapping(
        self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], names: dict[str, Any]
    ) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(keys, values):
            if key is None:
                found.update(self._value(value, names))
            else:
                found[self._value(key, names)] = self._value(value, names)
        return found

    def _rounds(self, generators: Sequence[ast.comprehension], names: dict[str, Any]) -> list[dict[str, Any]]:
        """The names in each round of a comprehension."""
        rounds = [names]
        for generator in generators:
            following: list[dict[str, Any]] = []
            for outer in rounds:
                for item in self._value(generator.iter, outer):
                    inner = {**outer}
                    _bind(generator.target, item, inner)
                    if all(self._value(test, inner) for test in generator.ifs):
                        following.append(inner)
                    if len(following) > _LONGEST:
                        raise NoValue(f"more than {_LONGEST:,} values")
            rounds = following
        return rounds

    def _called(self, call: ast.Call, names: dict[str, Any]) -> Any:
        name = last_name(call.func)
        if name == "Config":
            return self._config(call, names)
        if name == "append" and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            self._value(call.func.value, names).append(self._value(call.args[0], names))
            return None
        arguments = self._items(call.args, names)
        keywords = {keyword.arg: self._value(keyword.value, names) for keyword in call.keywords}
        if None in keywords:
            raise NoValue(f"{ast.unparse(call)[:60]} spreads keywords")
        given = {str(key): value for key, value in keywords.items()}
        if name in ("items", "keys", "values") and isinstance(call.func, ast.Attribute) and not arguments:
            table = self._value(call.func.value, names)
            if isinstance(table, dict):
                return list(getattr(table, name)())
        if name == "filter" and len(arguments) == 2:
            return [item for item in arguments[1] if self._applied(arguments[0], [item], {})]
        known = names.get(name, self.functions.get(name)) if isinstance(call.func, ast.Name) else None
        if isinstance(known, ast.FunctionDef | ast.Lambda) and name not in _FUNCTIONS:
            return self._applied(known, arguments, given)
        if name in _FUNCTIONS:
            found = _FUNCTIONS[name](*arguments, **given)
            if hasattr(found, "__len__") and len(found) > _LONGEST:
                raise NoValue(f"more than {_LONGEST:,} values")
            return found
        raise NoValue(f"{ast.unparse(call.func)[:60]}() is not known from the source alone")

    def _config(self, call: ast.Call, names: dict[str, Any]) -> TritonConfig:
        kwargs: dict[str, Any] = {}
        options: dict[str, Any] = {}
        if call.args:
            kwargs = self._value(call.args[0], names)
        options.update(
            zip(("num_warps", "num_stages", "num_ctas"), [self._value(a, names) for a in call.args[1:4]])
        )
        for keyword in call.keywords:
            if keyword.arg is None:
                raise NoValue("triton.Config(**…) spreads keywords")
            if keyword.arg == "kwargs":
                kwargs = self._value(keyword.value, names)
                continue
            try:
                options[keyword.arg] = self._value(keyword.value, names)
            except NoValue:
                options[keyword.arg] = None
        if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
            raise NoValue("triton.Config needs a dictionary of names")
        return TritonConfig(kwargs, options)

    def _applied(self, function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """The result of a function of the module, or of a lambda."""
        if not isinstance(function, ast.FunctionDef | ast.Lambda):
            raise NoValue("what is called is not a function of this file")
        parameters = [parameter.arg for parameter in function.args.args]
        defaults = function.args.defaults
        names = {
            name: self._value(default, {})
            for name, default in zip(parameters[len(parameters) - len(defaults) :], defaults)
        }
        names |= dict(zip(parameters, arguments)) | dict(keywords)
        if isinstance(function, ast.Lambda):
            return self._value(function.body, names)
        try:
            self._run(function.body, names)
        except _Return as result:
            return result.value
        return None

    def _run(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> None:
        for statement in body:
            match statement:
                case ast.Return(value=value):
                    raise _Return(self._value(value, names) if value else None)
                case ast.Assign(targets=[target], value=value):
                    _bind(target, self._value(value, names), names)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    names[name] = _bounded(type(op), names[name], self._value(value, names))
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case ast.Expr(value=value):
                    self._value(value, names)
                case ast.If(test=test, body=then, orelse=otherwise):
                    self._run(then if self._value(test, names) else otherwise, names)
                case ast.For(target=target, iter=iterated, body=inner):
                    for item in self._value(iterated, names):
                        _bind(target, item, names)
                        self._run(inner, names)
                case _:
                    raise NoValue(f"line {statement.lineno} is more than literals")


def module_evaluator(tree: ast.Module, kernels: Collection[str]) -> Evaluator:
    """What gives the values of a module's literals; `kernels` are functions that cannot be called there."""
    constants: dict[str, list[ast.expr]] = {}
    for node, _ in module_statements(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    constants.setdefault(target.id, []).append(node.value)
    return Evaluator(
        {name: values[0] for name, values in constants.items() if len(values) == 1},
        {name: node for name, node in module_functions(tree).items() if name not in kernels},
    )


def last_name(node: ast.expr) -> str:
    """`cdiv`, of `cdiv`, `triton.cdiv` and `triton.language.cdiv`; empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST) -> set[str]:
    """The names in an expression."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _bind(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    match target:
        case ast.Name(id=name):
            names[name] = value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            values = list(value)
            if len(values) != len(items):
                raise NoValue("the number of values is another than that of names")
            for item, part in zip(items, values):
                _bind(item, part, names)
        case _:
            raise NoValue(f"{ast.unparse(target)[:60]} is assigned")


def _attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, TritonConfig):
        return owner.kwargs if name == "kwargs" else owner.options.get(name)
    raise NoValue(f".{name} is not known from the source alone")


def _bounded(kind: type[ast.operator], left: Any, right: Any) -> Any:
    """The result of an operator, unless it would be large."""
    if kind in (ast.Pow, ast.LShift) and not (isinstance(right, int) and 0 <= right <= 64):
        raise NoValue("a large power")
    if kind is ast.Mult and any(isinstance(item, list | tuple | str) for item in (left, right)):
        count = left if isinstance(left, int) else right
        if not isinstance(count, int) or count > _LONGEST:
            raise NoValue("a long list")
    found = _BINARY[kind](left, right)
    if isinstance(found, int) and abs(found) > _LARGEST:
        raise NoValue("a number of more than 64 bits")
    if isinstance(found, list | tuple | str) and len(found) > _LONGEST:
        raise NoValue("a long list")
    return found
