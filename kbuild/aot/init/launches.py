"""The calls `kernel[grid](…)` of a file: what wrappers pass, and their grids in the manifest's terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kbuild.aot.init.guesses import AXES
from kbuild.aot.init.source import KernelSource, SourceFile
from kbuild.aot.manifest.configs.evaluate import Evaluator, NoValue, last_name
from kbuild.aot.manifest.expressions import NUM_SMS
from kbuild.aot.manifest.kinds import ConstexprKind, Name, is_layout

_CALLS = {"cdiv": "cdiv", "ceil_div": "cdiv", "ceildiv": "cdiv", "next_power_of_2": "next_power_of_2"}
_DEEPEST = 12


def layout_text(node: ast.expr) -> str:
    """A layout of Gluon as the manifest has it; empty for other expressions."""
    text = re.sub(r"\bttgl\.", "gl.", ast.unparse(node)) if isinstance(node, ast.Call) else ""
    return text if is_layout(text) and ConstexprKind().takes(text) else ""


class NoExpression(Exception):
    """A Python expression that the manifest's language has no words for; the text shows it."""


@dataclass(eq=False)
class Launch:
    """One call of a kernel."""

    kernel: KernelSource
    grid: ast.expr
    passed: dict[str, ast.expr]
    """What is passed for each parameter."""
    options: dict[str, ast.expr]
    """Keywords that are not parameters, such as `num_warps`."""
    scope: dict[str, ast.expr]
    """Names that the wrapper assigns once."""
    unsure: dict[str, list[ast.expr]]
    """Names that it assigns several times."""
    defaults: dict[str, ast.expr]
    """The wrapper's parameters with defaults."""
    annotations: dict[str, str]
    """The wrapper's parameters with annotations."""
    evaluator: Evaluator
    grid_names: dict[str, str] = field(default_factory=dict)
    """Integers that the grid needs and the kernel does not take, with what they stand for."""

    def literal(self, node: ast.expr) -> object:
        """The value of an expression that needs literals alone; raises NoValue."""
        if isinstance(node, ast.Name) and node.id in self.scope:
            return self.literal(self.scope[node.id])
        if isinstance(node, ast.Name) and node.id in self.annotations | self.defaults | self.unsure:
            raise NoValue(f"{node.id} is an argument of the wrapper")
        return layout_text(node) or self.evaluator.value(node)

    def resolved(self, node: ast.expr) -> ast.expr:
        """An expression behind the names that are assigned once."""
        for _ in range(_DEEPEST):
            if not (isinstance(node, ast.Name) and node.id in self.scope):
                break
            node = self.scope[node.id]
        return node

    def expression(self, node: ast.expr, meta: str = "", new_names: bool = False, parameter: str = "") -> str:
        """An integer expression in the manifest's language, over the kernel's parameters, but for the one that it
        is for; `meta` is the parameter of a grid's lambda, and with `new_names` other integers of the wrapper
        become names of their own."""
        # Of parameters that get the same value, run-time arguments come before constants.
        order = [
            one.name for one in (*self.kernel.run_time, *self.kernel.constexprs) if one.name != parameter
        ]
        passed = [(name, self.passed[name]) for name in order if name in self.passed]
        known: dict[str, str] = {}
        for name, value in passed:
            if not isinstance(value, ast.Constant):
                known.setdefault(ast.dump(value), name)
        for name, value in passed:
            if not isinstance(resolved := self.resolved(value), ast.Constant):
                known.setdefault(ast.dump(resolved), name)
        translated = _Translation(self, known, meta, new_names).of(node, 0)
        return ast.unparse(ast.fix_missing_locations(ast.Expression(translated)))

    def grid_axes(self) -> list[str]:
        """The grid; raises NoExpression."""
        node, meta = self.resolved(self.grid), ""
        if isinstance(node, ast.Lambda) and node.args.args:
            node, meta = node.body, node.args.args[0].arg
        node = self.resolved(node)
        axes = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        if not 1 <= len(axes) <= 3:
            raise NoExpression(ast.unparse(node))
        return [self.expression(axis, meta, new_names=True) for axis in axes]


@dataclass
class _Translation:
    """From a wrapper's expression to the manifest's."""

    launch: Launch
    known: Mapping[str, str]
    meta: str
    new_names: bool

    def of(self, node: ast.expr, depth: int) -> ast.expr:
        if depth > _DEEPEST * 4:
            raise NoExpression(ast.unparse(node))
        if name := self.known.get(ast.dump(node)):
            return ast.Name(name, ast.Load())
        match node:
            case ast.Constant(value=bool() | int()):
                return node
            case ast.Name(id=name) if name in self.launch.scope:
                return self._assigned(name, depth)
            case ast.BinOp(
                left=left,
                op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod() as op,
                right=right,
            ):
                return ast.BinOp(self.of(left, depth + 1), op, self.of(right, depth + 1))
            case ast.UnaryOp(op=ast.USub() | ast.Not() as op, operand=operand):
                return ast.UnaryOp(op, self.of(operand, depth + 1))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ast.IfExp(*(self.of(part, depth + 1) for part in (test, body, orelse)))
            case ast.Compare(
                left=left,
                ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq() | ast.NotEq() as op],
                comparators=[right],
            ):
                return ast.Compare(self.of(left, depth + 1), [op], [self.of(right, depth + 1)])
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str() as key)) if (
                owner == self.meta
            ):
                return ast.Name(key, ast.Load())
            case ast.Attribute(attr="multi_processor_count"):
                return ast.Name(NUM_SMS, ast.Load())
            case ast.Call():
                return self._called(node, depth)
            case _:
                return self._leaf(node)

    def _assigned(self, name: str, depth: int) -> ast.expr:
        """What a name is assigned, or the name itself as an argument of the grid's own."""
        value = self.launch.scope[name]
        if ast.dump(value) not in self.known and isinstance(value, ast.Subscript | ast.Attribute | ast.Call):
            with suppress(NoExpression):
                return _Translation(self.launch, self.known, self.meta, new_names=False).of(value, depth + 1)
            if _is_size(value):
                return self._new(name, ast.unparse(value))
        try:
            return self.of(value, depth + 1)
        except NoExpression:
            return self._new(name, ast.unparse(value))

    def _called(self, call: ast.Call, depth: int) -> ast.expr:
        name = last_name(call.func)
        if name == "int" and len(call.args) == 1:
            return self.of(call.args[0], depth + 1)
        if name == "ceil" and len(call.args) == 1 and isinstance(call.args[0], ast.BinOp):
            inner = call.args[0]
            if isinstance(inner.op, ast.Div):
                return _call("cdiv", self.of(inner.left, depth + 1), self.of(inner.right, depth + 1))
        if (
            name == "get"
            and isinstance(call.func, ast.Attribute)
            and ast.unparse(call.func.value) == self.meta
        ):
            return self.of(ast.Subscript(call.func.value, call.args[0], ast.Load()), depth + 1)
        if name in _CALLS and not call.keywords:
            return _call(_CALLS[name], *(self.of(given, depth + 1) for given in call.args))
        if (
            name in ("min", "max", "abs")
            and isinstance(call.func, ast.Name)
            and len(call.args) > (name != "abs")
        ):
            return _call(name, *(self.of(given, depth + 1) for given in call.args))
        return self._leaf(call)

    def _leaf(self, node: ast.expr) -> ast.expr:
        """A name, or a size of a tensor: an integer of the wrapper."""
        match node:
            case ast.Name(id=name):
                try:
                    value = self.launch.literal(node)
                except NoValue:
                    return self._new(name, name)
                if isinstance(value, int):
                    return ast.Constant(value)
                raise NoExpression(name)
            case (
                ast.Subscript(value=ast.Attribute(value=ast.Name(id=owner), attr="shape"), slice=index)
                | ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="size"), args=[index])
            ):
                return self._new(
                    f"{owner}_shape_{ast.unparse(index).replace('-', 'minus_')}", ast.unparse(node)
                )
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="numel" | "nelement"), args=[]):
                return self._new(f"{owner}_numel", ast.unparse(node))
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=owner)]):
                return self._new(f"{owner}_len", ast.unparse(node))
            case _:
                raise NoExpression(ast.unparse(node))

    def _new(self, name: str, meaning: str) -> ast.expr:
        if not self.new_names or not (name.isidentifier() and name.isascii() and len(name) < 100):
            raise NoExpression(meaning)
        taken = {NUM_SMS, *AXES, *(parameter.name for parameter in self.launch.kernel.parameters)}
        while name in taken or not Name().takes(name):
            name = f"grid_{name}"
        self.launch.grid_names[name] = meaning
        return ast.Name(name, ast.Load())


def _is_size(node: ast.expr) -> bool:
    """Whether an expression is one size of a tensor, or another member of something."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("numel", "nelement", "size", "stride", "len")
    return isinstance(node, ast.Subscript | ast.Attribute)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def launches_of(file: SourceFile, kernel: KernelSource) -> list[Launch]:
    """The launches of a kernel in its file, in order."""
    sites = [(grid, call) for name, grid, call in file.launched() if name == kernel.name]
    owners = {
        id(node): function
        for function in ast.walk(file.tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    }  # Of functions within each other the innermost comes last.
    return [
        found
        for grid, call in sites
        if (found := _launch(file, kernel, grid, call, owners.get(id(call)))) is not None
    ]


def stride_axes(launches: Iterable[Launch]) -> dict[str, int]:
    """The parameters for which `x.stride(axis)` is passed, with the axis."""
    found: dict[str, int] = {}
    for launch in launches:
        for name, node in launch.passed.items():
            match launch.resolved(node):
                case ast.Call(
                    func=ast.Attribute(attr="stride"), args=[ast.Constant(value=int() as axis)]
                ) if axis >= 0:
                    found.setdefault(name, axis)
                case _:
                    pass
    return found


def _launch(
    file: SourceFile,
    kernel: KernelSource,
    grid: ast.Subscript,
    call: ast.Call,
    wrapper: ast.FunctionDef | None,
) -> Launch | None:
    names = [parameter.name for parameter in kernel.parameters]
    if any(isinstance(given, ast.Starred) for given in call.args):
        return None
    passed = dict(zip(names, call.args))
    options: dict[str, ast.expr] = {}
    for keyword in call.keywords:
        if keyword.arg in names:
            passed[str(keyword.arg)] = keyword.value
        elif keyword.arg:
            options[keyword.arg] = keyword.value
    assigned: dict[str, list[ast.expr]] = {}
    for name, value in _assignments(wrapper or file.tree):
        assigned.setdefault(name, []).append(value)
    arguments = wrapper.args if wrapper else None
    positional = [*arguments.posonlyargs, *arguments.args] if arguments else []
    every = [*positional, *arguments.kwonlyargs] if arguments else []
    with_default = positional[len(positional) - len(arguments.defaults) :] if arguments else []
    pairs = (
        [*zip(with_default, arguments.defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
        if arguments
        else []
    )
    parameters = {argument.arg for argument in every}
    once = {
        n: v[0] for n, v in assigned.items() if len(v) == 1 and n not in parameters and _is_plain(n, v[0])
    }
    return Launch(
        kernel,
        grid.slice,
        passed,
        options,
        once,
        {name: values for name, values in assigned.items() if name not in once},
        {argument.arg: default for argument, default in pairs if default is not None},
        {argument.arg: ast.unparse(argument.annotation) if argument.annotation else "" for argument in every},
        file.evaluator,
    )


def _is_plain(name: str, value: ast.expr) -> bool:
    """Whether a value does not depend on the name itself."""
    return all(not (isinstance(node, ast.Name) and node.id == name) for node in ast.walk(value))


def _assignments(owner: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they are assigned; of `M, K = a.shape`, `a.shape[0]` and `a.shape[1]`."""
    for node in ast.walk(owner):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _unpacked(target, value)
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                yield name, ast.BinOp(target, op, value)
            case ast.For(target=target, iter=iterated):
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name):
                        yield inner.id, ast.Subscript(iterated, ast.Name(inner.id, ast.Load()), ast.Load())
            case ast.FunctionDef(name=name, args=args, body=[*_, ast.Return(value=ast.expr() as value)]) if (
                node is not owner
            ):
                yield name, ast.Lambda(args, value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else None
        is_sized = parts is not None and len(parts) == len(target.elts)
        for number, item in enumerate(target.elts):
            part = parts[number] if parts and is_sized else _part(value, number)
            yield from _unpacked(item, part)


def _part(value: ast.expr, number: int) -> ast.expr:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
        if value.func.attr == "size":
            value = ast.Attribute(value.func.value, "shape", ast.Load())
        elif value.func.attr == "stride":
            return ast.Call(value.func, [ast.Constant(number)], [])
    return ast.Subscript(value, ast.Constant(number), ast.Load())
