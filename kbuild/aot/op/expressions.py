"""Expressions of operators: integers as those of grids, and numbers for scalars such as `D ** -0.5`.

    cdiv(N, 128)      stride(q, H)      given(bias)      aligned(x)      1 / (D * temperature)      sqrt(D) if causal else 1.0

`stride(q, H)` is the stride of a tensor along a dimension, in elements; `given(bias)` is 1 where an optional tensor
is there, `aligned(x)` where an address is a multiple of 16.  They become plain names, so that the integers are those
of `manifest/expressions.py`.  An expression is a number where it has `/`, `**`, a number with a point, or the name of
one; exponents are whole numbers, 0.5 or -0.5.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from kbuild.aot.manifest import expressions
from kbuild.errors import ManifestError

MAX_DEPTH = 50
"""Operations of an expression, each an operand of the next."""
_NUMBER_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_ROOTS = (0.5, -0.5)


@dataclass(frozen=True)
class OpScope:
    """What an expression may name."""

    dims: Collection[str]
    scalars: Mapping[str, str] = field(default_factory=dict)
    """Their kinds, by name."""
    tensors: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The dimensions of each tensor."""
    optional: Collection[str] = ()
    """Tensors that may be None."""
    constants: Collection[str] = ()
    """Compile-time integers of the kernel."""
    unsure: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Dimensions that optional tensors alone have, and those tensors: they are known where one is given."""
    values: Collection[str] = ()
    """Whole numbers that the operator computes first."""

    @property
    def names(self) -> tuple[str, ...]:
        """What an argument of the same name is bound to: dimensions, scalars and values."""
        return (*self.dims, *self.scalars, *self.values)

    def of(self, tensors: Collection[str]) -> OpScope:
        """The same, of these tensors alone."""
        known = {name: self.tensors[name] for name in tensors}
        return replace(self, tensors=known, optional=[name for name in self.optional if name in known])


@dataclass(frozen=True)
class OpExpression:
    """A checked expression of an operator."""

    text: str
    """As the manifest has it."""
    kind: str
    """`int`, `float` or `str`; of a single name or constant also `bool`."""
    plain: str
    """The text with plain names for strides and the presence of tensors."""
    strides: tuple[tuple[str, str], ...] = ()
    """Tensors and dimensions whose strides it names."""
    constants: tuple[str, ...] = ()
    """Compile-time integers that it names."""

    @property
    def tree(self) -> ast.expr:
        """The syntax tree of `plain`."""
        return ast.parse(self.plain, mode="eval").body


def stride_name(tensor: str, dim: str) -> str:
    """The plain name of a stride."""
    return f"stride__{tensor}__{dim}"


def given_name(tensor: str) -> str:
    """The plain name of the presence of a tensor."""
    return f"given__{tensor}"


def aligned_name(tensor: str) -> str:
    """The plain name of the alignment of a tensor's address."""
    return f"aligned__{tensor}"


def parse(text: str, scope: OpScope, where: str) -> OpExpression:
    """Check an expression; a ManifestError begins with `where`, the manifest's key."""
    tree = _tree(text, where)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        return OpExpression(text, "str", ast.unparse(tree))
    if isinstance(tree, ast.Name) and scope.scalars.get(tree.id) in ("str", "bool"):
        return OpExpression(text, scope.scalars[tree.id], tree.id)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, bool):
        return OpExpression(text, "bool", ast.unparse(tree))
    renamer = _Renamer(scope, text, where)
    plain = ast.unparse(renamer.visit(tree))
    names = [
        *scope.dims,
        *scope.values,
        *(name for name, kind in scope.scalars.items() if kind in ("int", "bool")),
        *(stride_name(*stride) for stride in renamer.strides),
        *(given_name(name) for name in scope.optional),
        *(aligned_name(name) for name in scope.tensors),
        *(name for name in scope.constants if name not in {*scope.dims, *scope.scalars, *scope.values}),
        expressions.NUM_SMS,
    ]
    renamer.check_known()
    strides = tuple(dict.fromkeys(renamer.strides))
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    own -= {*scope.dims, *scope.scalars, *scope.values}
    constants = tuple(sorted(own & {*scope.constants}))
    if not _is_number(tree, scope):
        expressions.parse(plain, names, where)
        return OpExpression(text, "int", plain, strides, constants)
    _check_number(ast.parse(plain, mode="eval").body, scope, names, text, where)
    return OpExpression(text, "float", plain, strides, constants)


def _tree(text: str, where: str) -> ast.expr:
    """The syntax tree of an expression, which is not too deep for what walks it."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    if len(text) > expressions.MAX_LENGTH:
        raise ManifestError(
            f"{where}: the expression has {len(text)} characters; {expressions.MAX_LENGTH} are allowed"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ManifestError(
            f'{where}: "{shown}" is not an expression', help="write for example stride(x, N) or D ** -0.5"
        ) from error
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if depth > MAX_DEPTH:
        raise ManifestError(
            f'{where}: the operations of "{shown[:60]}…" are nested {depth} deep; {MAX_DEPTH} are allowed'
        )
    for node in ast.walk(tree):
        match node:
            case (
                ast.BinOp(op=ast.FloorDiv() | ast.Mod() | ast.Div(), right=ast.Constant(value=0))
                | ast.Call(func=ast.Name(id="cdiv"), args=[_, ast.Constant(value=0)])
            ):
                raise ManifestError(f'{where}: "{ast.unparse(node)}" divides by zero')
    return tree


class _Renamer(ast.NodeTransformer):
    """Replaces `stride(q, H)`, `given(bias)` and `aligned(x)` by plain names, and looks at all other names."""

    def __init__(self, scope: OpScope, text: str, where: str) -> None:
        self.scope, self.text, self.where = scope, text, where
        self.strides: list[tuple[str, str]] = []
        self.given: list[str] = []
        self.names: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        scope, name = self.scope, node.id
        if scope.scalars.get(name) == "str":
            raise self._fail(f'"{name}" is a word', "words are bound to axes of the matrix, by themselves")
        if not any(
            name in known
            for known in (scope.dims, scope.scalars, scope.values, scope.constants, [expressions.NUM_SMS])
        ):
            known = [*scope.dims, *(name for name, kind in scope.scalars.items() if kind != "str")]
            known += scope.values
            known += [name for name in sorted(scope.constants) if name not in known]
            raise self._fail(
                f'unknown name "{name}"',
                f"the names known here are {', '.join([*known, expressions.NUM_SMS])}",
            )
        self.names.append(name)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        words = [argument.id for argument in node.args if isinstance(argument, ast.Name)]
        words = words if len(words) == len(node.args) and not node.keywords else []
        match node.func, words:
            case ast.Name(id="stride"), [tensor, dim] if tensor in self.scope.tensors:
                return self._stride(tensor, dim)
            case ast.Name(id="stride"), _:
                known = ", ".join(self.scope.tensors)
                raise self._fail(
                    "stride takes a tensor and one of its dimensions", f"the tensors are {known}"
                )
            case ast.Name(id="given"), [tensor] if tensor in self.scope.optional:
                self.given.append(tensor)
                return ast.Name(given_name(tensor), ast.Load())
            case ast.Name(id="aligned"), [tensor] if tensor in self.scope.tensors:
                return ast.Name(aligned_name(tensor), ast.Load())
            case ast.Name(id="aligned"), _:
                raise self._fail("aligned takes a tensor", f"the tensors are {', '.join(self.scope.tensors)}")
            case ast.Name(id="given"), _:
                known = ", ".join(self.scope.optional) or "none"
                raise self._fail("given takes an optional tensor", f"the optional tensors are {known}")
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def check_known(self) -> None:
        """Dimensions that may not be known are not named without a look at their tensors."""
        for name in self.names:
            tensors = self.scope.unsure.get(name, ())
            if tensors and not {*tensors} & {*self.given}:
                raise self._fail(
                    f"{name} is known only where {' or '.join(tensors)} is given",
                    f'write "… if given({next(iter(tensors))}) else …"',
                )

    def _stride(self, tensor: str, dim: str) -> ast.expr:
        known = list(self.scope.tensors[tensor])
        if dim not in known:
            raise self._fail(f"{tensor} has no dimension {dim}", f"it has {', '.join(known)}")
        if known.count(dim) > 1:
            raise self._fail(
                f"{tensor} has {known.count(dim)} dimensions {dim}",
                "give them names of their own, and require that they are equal",
            )
        self.strides.append((tensor, dim))
        return ast.Name(stride_name(tensor, dim), ast.Load())

    def _fail(self, message: str, help: str) -> ManifestError:
        return ManifestError(f'{self.where}: {message} in "{self.text}"', help=help)


def _is_number(tree: ast.expr, scope: OpScope) -> bool:
    """Whether an expression is a number with a fraction."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=float()) | ast.BinOp(op=ast.Div() | ast.Pow()):
                return True
            case ast.Name(id=name) if scope.scalars.get(name) == "float":
                return True
            case ast.Call(func=ast.Name(id="sqrt")):
                return True
    return False


def _check_number(node: ast.expr, scope: OpScope, names: Collection[str], text: str, where: str) -> None:
    def fail(message: str, help: str = "") -> ManifestError:
        return ManifestError(f'{where}: {message} in "{text}"', help=help)

    if not _is_number(node, scope):
        expressions.parse(ast.unparse(node), names, where)
        return
    match node:
        case ast.Constant(value=value):
            if not math.isfinite(value):  # type: ignore[arg-type]
                raise fail(f"{value} is not a finite number")
        case ast.Name():
            pass
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check_number(operand, scope, names, text, where)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _exponent(right)
            if exponent is None:
                raise fail(
                    f'unknown exponent "{ast.unparse(right)}"',
                    "exponents are whole numbers from -8 to 8, 0.5 and -0.5",
                )
            _check_number(left, scope, names, text, where)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _NUMBER_OPERATORS:
            _check_number(left, scope, names, text, where)
            _check_number(right, scope, names, text, where)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            if _is_number(test, scope):
                raise fail(f'"{ast.unparse(test)}" is no condition', "conditions are of whole numbers")
            expressions.parse(ast.unparse(test), names, where)
            _check_number(body, scope, names, text, where)
            _check_number(orelse, scope, names, text, where)
        case ast.Call(func=ast.Name(id="sqrt"), args=[operand], keywords=[]):
            _check_number(operand, scope, names, text, where)
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp():
            raise fail(f'"{ast.unparse(node)}" is no condition', "conditions are of whole numbers")
        case _:
            raise fail(
                f'"{ast.unparse(node)}" is not a number',
                "write numbers, names, + - * / **, sqrt, … if … else …",
            )


def _exponent(node: ast.expr) -> int | float | None:
    """The value of an exponent that is allowed."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            value = -value
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            pass
        case _:
            return None
    return value if value in _ROOTS or (abs(value) <= 8 and value == int(value)) else None


def to_c(expression: OpExpression, integer: Callable[[str], str], number: Callable[[str], str | None]) -> str:
    """The expression in C: an `int64_t`, or a `double` where its kind is `float`.

    `integer` prints a name as an int64_t, `number` one that is a double, and gives None for others; faults are added
    to an `int *fault` in scope.
    """
    tree = expression.tree
    if expression.kind != "float":
        return _integer_c(tree, integer)
    return _number_c(tree, integer, number)


def _integer_c(node: ast.expr, integer: Callable[[str], str]) -> str:
    text = ast.unparse(node)
    return expressions.to_c(expressions.Expression(text, ()), integer)


def _number_c(node: ast.expr, integer: Callable[[str], str], number: Callable[[str], str | None]) -> str:
    def of(child: ast.expr) -> str:
        return _number_c(child, integer, number)

    match node:
        case ast.Constant(value=float() as value):
            return f"({value!r})"
        case ast.Name(id=name) if found := number(name):
            return found
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{of(operand)})"
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return of(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _exponent(right)
            if exponent in _ROOTS:
                root = f"__builtin_sqrt({of(left)})"
                return root if exponent == 0.5 else f"(1.0 / {root})"
            return f"power({of(left)}, {exponent})"
        case ast.BinOp(left=left, op=op, right=right) if _has_number(node, number):
            return f"({of(left)} {_NUMBER_OPERATORS[type(op)]} {of(right)})"
        case ast.IfExp(test=test, body=body, orelse=orelse) if _has_number(node, number):
            return f"({_integer_c(test, integer)} != 0 ? {of(body)} : {of(orelse)})"
        case ast.Call(func=ast.Name(id="sqrt"), args=[operand]):
            return f"__builtin_sqrt({of(operand)})"
    return f"(double)({_integer_c(node, integer)})"


def _has_number(node: ast.expr, number: Callable[[str], str | None]) -> bool:
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    scope = OpScope((), {name: "float" for name in names if number(name)})
    return _is_number(node, scope)


def to_python(expression: OpExpression) -> str:
    """An integer expression in Python, over `_cdiv`, `_min` and so on, and a name for each dimension and scalar."""
    return ast.unparse(_PythonMaker().visit(expression.tree))


def to_conditions(expression: OpExpression) -> list[str]:
    """What has to hold for a condition to hold, in Python as `to_python`; comparisons stay what they are, since sizes
    may be symbols, of which no number can be made."""
    parts = [expression.tree]
    while any(isinstance(part, ast.BoolOp) and isinstance(part.op, ast.And) for part in parts):
        parts = [
            operand
            for part in parts
            for operand in (
                part.values if isinstance(part, ast.BoolOp) and isinstance(part.op, ast.And) else [part]
            )
        ]
    maker = _PythonMaker()
    return [
        ast.unparse(maker.generic_visit(part))
        if isinstance(part, ast.Compare) and len(part.ops) == 1
        else f"({ast.unparse(maker.visit(part))}) != 0"
        for part in parts
    ]


class _PythonMaker(ast.NodeTransformer):
    """Makes integers of truth, as they are in C: in Python `N or 1` would be N.  Functions have a `_` in front, since
    arguments and dimensions may have their names."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        return ast.Call(ast.Name(f"_{name}", ast.Load()), [self.visit(each) for each in node.args], [])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return self._integer(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return self._integer(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self._integer(node) if isinstance(node.op, ast.Not) else self.generic_visit(node)  # type: ignore[return-value]

    def _integer(self, node: ast.expr) -> ast.expr:
        return ast.IfExp(self.generic_visit(node), ast.Constant(1), ast.Constant(0))  # type: ignore[arg-type]
