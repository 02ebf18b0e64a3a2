"""Functions of `@triton.heuristics` as a manifest says them: as values, where they follow from constants, and as
facts of run-time arguments, which dispatch checks.

lambda args: 8 if args["BLOCK"] > 1024 else 4        with BLOCK = 2048: 8
lambda args: args["N"] % args["BLOCK"] == 0          with BLOCK = 64: true where N = "% 64", else false
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kbuild.aot.manifest.configs.decorators import heuristic_body
from kbuild.aot.manifest.configs.evaluate import Evaluator, NoValue, last_name
from kbuild.aot.manifest.model import Value

Facts = Mapping[str, str]
"""What has to hold of arguments, as in `when`: `{"N": "% 64"}`."""

_OPERATORS: Mapping[type[ast.cmpop], str] = {
    ast.LtE: "<=",
    ast.Lt: "<",
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_TURNED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "==", "!=": "!="}
_NEGATED = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "==": "!=", "!=": "==", "%": "!%", "!%": "%"}
_MOST_CASES = 8


@dataclass(frozen=True)
class RunTimeChoice:
    """A constexpr parameter with one value where facts of arguments hold, and another elsewhere."""

    cases: tuple[Facts, ...]
    """Where it has the first value: in each of these cases, in which all facts hold."""
    others: tuple[Facts, ...]
    """Where it has the other one."""
    holds: Value
    otherwise: Value


def names_of_arguments(node: ast.expr, evaluator: Evaluator) -> set[str]:
    """The arguments that a heuristic may look at: all texts in it."""
    found: ast.AST = evaluator.functions.get(node.id, node) if isinstance(node, ast.Name) else node
    return {
        inner.value
        for inner in ast.walk(found)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    }


def value_of(
    node: ast.expr, evaluator: Evaluator, known: Mapping[str, Value], integers: Collection[str]
) -> Value | RunTimeChoice:
    """What a heuristic gives for constants that are known, with `integers` as run-time arguments; NoValue where it
    cannot be said."""
    body = heuristic_body(node, evaluator)
    if body is None:
        call = ast.Call(node, [ast.Name("args", ast.Load())], [])
        return evaluator.value(call, {"args": dict(known)})
    parameter, result = body
    reader = _Reader(evaluator, parameter, known, integers)
    try:
        return reader.constant(result)
    except NoValue:
        return reader.choice(result)


@dataclass(frozen=True)
class _Reader:
    """The body of a heuristic."""

    evaluator: Evaluator
    parameter: str
    known: Mapping[str, Value]
    integers: Collection[str]

    def constant(self, node: ast.expr) -> Value:
        return self.evaluator.value(node, {self.parameter: dict(self.known)})

    def choice(self, node: ast.expr) -> RunTimeChoice:
        if isinstance(node, ast.IfExp):
            values = self.constant(node.body), self.constant(node.orelse)
            return self._choice(self.cases(node.test), *values)
        return self._choice(self.cases(node), True, False)

    def _choice(self, cases: list[Facts], holds: Value, otherwise: Value) -> RunTimeChoice:
        return RunTimeChoice(tuple(cases), tuple(self._none(cases)), holds, otherwise)

    def cases(self, node: ast.expr) -> list[Facts]:
        """A condition as a list of cases, of which one has to hold."""
        try:
            return [{}] if self.constant(node) else []
        except NoValue:
            pass
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                return self._all([self.cases(part) for part in parts])
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                return self._all([self.cases(left), self.cases(right)])
            case ast.BoolOp(op=ast.Or(), values=parts):
                return [case for part in parts for case in self.cases(part)]
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return [*self.cases(left), *self.cases(right)]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._none(self.cases(operand))
            case ast.Call(func=ast.Name(id="bool"), args=[operand], keywords=[]):
                return self.cases(operand)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return [self._fact(node, left, _OPERATORS[type(op)], right)]
            case ast.BinOp(op=ast.Mod()):
                return [self._fact(node, node, "!=", ast.Constant(0))]
            case _:
                raise NoValue(f"{ast.unparse(node)[:60]} is no fact about integers")

    def _all(self, parts: list[list[Facts]]) -> list[Facts]:
        """The cases in which one of each part holds."""
        if len(found := [*itertools.product(*parts)]) > _MOST_CASES:
            raise NoValue("it has too many cases")
        return [_joined(cases) for cases in found]

    def _none(self, cases: list[Facts]) -> list[Facts]:
        """The cases in which none of these holds: of each, one fact does not."""
        return self._all(
            [
                [{name: _negated(fact)} for name, facts in case.items() for fact in facts.split(", ")]
                for case in cases
            ]
        )

    def _fact(self, node: ast.expr, left: ast.expr, operator: str, right: ast.expr) -> Facts:
        """A comparison of an argument with a number."""
        try:
            value = self.constant(right)
        except NoValue:
            left, operator, value = right, _TURNED[operator], self.constant(left)
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) and value == 0:
            operator = {"==": "%", "!=": "!%"}.get(operator, "")
            left, value = left.left, self.constant(left.right)
        if not operator or not isinstance(value, int) or (operator in ("%", "!%") and value < 1):
            raise NoValue(f"{ast.unparse(node)[:60]} is no fact about integers")
        return {self._subject(left): f"{operator} {int(value)}"}

    def _subject(self, node: ast.expr) -> str:
        """What facts may be about: an argument, a number of blocks, or a product of such."""
        match node:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str() as name)) if (
                owner == self.parameter and name in self.integers
            ):
                return name
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return f"{self._subject(left)} * {self._subject(right)}"
            case ast.Call(func=function, args=[argument, size], keywords=[]) if last_name(function) == "cdiv":
                name, block = self._subject(argument), self.constant(size)
                if name in self.integers and isinstance(block, int) and block > 0:
                    return f"cdiv({name}, {block})"
            case _:
                pass
        raise NoValue(f"{ast.unparse(node)[:60]} is not a run-time integer of the kernel")


def _joined(cases: tuple[Facts, ...]) -> Facts:
    """All facts of several cases."""
    found: dict[str, str] = {}
    for case in cases:
        for name, fact in case.items():
            found[name] = f"{found[name]}, {fact}" if name in found and fact not in found[name] else fact
    return found


def _negated(fact: str) -> str:
    operator, _, value = fact.partition(" ")
    return f"{_NEGATED[operator]} {value}"
