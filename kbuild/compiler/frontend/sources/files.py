"""Modules read from disk without being run: the values of their names that kernels can use.

A module's top level is read as a list of bindings.  Where a name is bound under a condition that cannot be
decided (or in a `try`), all its bindings are kept in the order of preference, and the first that resolves is
taken.  Conditions on variables of the environment hold as where these are not set.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from kbuild.compiler.frontend.evaluate import ConditionEvaluator, Evaluator
from kbuild.compiler.frontend.sources import lookup, modules
from kbuild.compiler.frontend.sources.aggregates import AggregateClass, is_aggregate
from kbuild.compiler.frontend.sources.classes import ConstantClass, constant_class
from kbuild.compiler.frontend.sources.functions import (
    Namespace,
    Plain,
    SourceFunction,
    Unresolved,
    UnresolvedModule,
    is_constexpr_annotation,
    is_gluon,
    make_function,
)
from kbuild.compiler.frontend.sources.modules import PythonModule
from kbuild.compiler.semantic.values import NamedTuple
from kbuild.errors import CompileError, Loc, UsageError, nearest, shown_path

Binding = ast.stmt | tuple[ast.stmt, ast.alias]
_RESOLVING = object()
_NESTED = ("body", "handlers", "orelse", "finalbody", "cases")
"""The fields of statements that hold statements."""


class NamedTupleClass:
    """A class that derives from `NamedTuple`, or what `namedtuple(...)` makes."""

    def __init__(
        self,
        name: str,
        fields: tuple[str, ...],
        annotations: tuple[ast.expr, ...] = (),
        namespace: Namespace | None = None,
    ) -> None:
        self.name = name
        self.fields = fields
        self.annotations = annotations
        """Those of the fields, in whose place the class stands in `namespace`; none where only names are known."""
        self.namespace = namespace

    def make(self, items: tuple[Any, ...]) -> NamedTuple:
        return NamedTuple.make(self.fields, items)


class SourceModule:
    """One module's names."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.tree = parse(path, text)
        self.bindings: dict[str, list[Binding]] = {}
        self._hidden: dict[int, list[Binding]] = {}
        """By the identity of an assignment, what its name was bound to before: `f = jit(f)` is made of that."""
        self.stars: list[ast.ImportFrom] = []
        self.cache: dict[str, Any] = {}
        self.evaluator = Evaluator(self, attribute, path)
        self._collect(self.tree.body, conditional=False)

    @cached_property
    def functions(self) -> dict[tuple[str, int], ast.FunctionDef]:
        """All functions, inner ones too, by name and first line, as Python's code objects have them: that of the first
        decorator."""
        found: dict[tuple[str, int], ast.FunctionDef] = {}
        for node in _statements(self.tree):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                found.setdefault((node.name, first), node)
        return found

    def _collect(self, body: list[ast.stmt], conditional: bool) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self._bind(statement.name, statement, conditional)
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    self._bind(alias.asname or alias.name.split(".")[0], (statement, alias), conditional)
            elif isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if alias.name == "*":
                        self.stars.append(statement)
                    else:
                        self._bind(alias.asname or alias.name, (statement, alias), conditional)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        self._bind(target.id, statement, conditional)
            elif isinstance(statement, ast.AnnAssign):
                if isinstance(statement.target, ast.Name) and statement.value is not None:
                    self._bind(statement.target.id, statement, conditional)
            elif isinstance(statement, ast.If):
                self._collect_if(statement, conditional)
            elif isinstance(statement, ast.Try):
                self._collect(statement.body, True)
                self._collect(statement.orelse, True)
                for handler in statement.handlers:
                    self._collect(handler.body, True)
                self._collect(statement.finalbody, conditional)
            elif isinstance(statement, ast.With):
                self._collect(statement.body, conditional)

    def _collect_if(self, statement: ast.If, conditional: bool) -> None:
        try:
            holds = bool(ConditionEvaluator(self, attribute, self.path).value(statement.test))
        except Unresolved:
            self._collect(statement.body, True)
            self._collect(statement.orelse, True)
        else:
            self._collect(statement.body if holds else statement.orelse, conditional)

    def _bind(self, name: str, binding: Binding, conditional: bool) -> None:
        if isinstance(binding, ast.Assign):
            self._hidden[id(binding)] = [*self.bindings.get(name, ())]
        if conditional:
            self.bindings.setdefault(name, []).append(binding)
        else:
            self.bindings[name] = [binding]

    def names(self) -> list[str]:
        return list(self.bindings)

    def resolve(self, name: str) -> Any:
        known = self.cache.get(name)
        if known is _RESOLVING:
            raise Unresolved(f"{name} is defined by itself")
        if known is not None:
            return known
        candidates = self.bindings.get(name)
        if candidates is None:
            return self._from_stars(name)
        self.cache[name] = _RESOLVING
        try:
            found = self._first(name, candidates)
            if found is not None:
                self.cache[name] = found
            return found
        finally:
            if self.cache.get(name) is _RESOLVING:
                del self.cache[name]

    def _first(self, name: str, candidates: Sequence[Binding]) -> Any:
        """The value of the first of a name's bindings that has one."""
        first: Unresolved | None = None
        for candidate in candidates:
            try:
                return self._value(name, candidate)
            except Unresolved as error:
                first = first or error
        raise first or Unresolved(name)

    def _from_stars(self, name: str) -> Any:
        for statement in reversed(self.stars):
            try:
                return self._imported(statement, name)
            except (Unresolved, KeyError):
                continue
        raise KeyError(name)

    def _value(self, name: str, binding: Binding) -> Any:
        if isinstance(binding, tuple):
            statement, alias = binding
            if isinstance(statement, ast.ImportFrom):
                return self._imported(statement, alias.name)
            return self.module(alias.name if alias.asname else alias.name.split(".")[0])
        if isinstance(binding, ast.FunctionDef):
            return make_function(binding, self.path, self)
        if isinstance(binding, ast.ClassDef):
            if is_aggregate(binding):
                return AggregateClass(binding, self.path, self)
            if _is_named_tuple(binding):
                return _named_tuple_class(binding, self)
            found = constant_class(binding, self.evaluator.computed)
            return Plain(found, Loc(self.path, binding.lineno, binding.col_offset + 1))
        return self._assigned(name, binding)

    def _assigned(self, name: str, statement: ast.stmt) -> Any:
        assert isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        value = statement.value
        if isinstance(value, ast.Call):
            found = self._called(name, value, self._hidden.get(id(statement), []))
            if found is not None:
                return found
        if isinstance(value, ast.Name | ast.Attribute):
            return self.evaluator.named(value)  # another name of the same thing
        constant = self.evaluator.computed(value)
        if isinstance(statement, ast.AnnAssign) and is_constexpr_annotation(statement.annotation):
            return constant
        if self.evaluator.is_constexpr_call(value):
            return constant
        return Plain(constant, Loc(self.path, statement.lineno, statement.col_offset + 1))

    def _called(self, name: str, call: ast.Call, before: Sequence[Binding]) -> Any:
        """`f = jit(g)`, `f = autotune(...)(g)`, `Pair = namedtuple("Pair", "a b")`, `m = import_module("m")`; where g is f, it
        is what that was bound to before."""
        last = _last(call.func)
        if last == "import_module" and len(call.args) == 1 and isinstance(call.args[0], ast.Constant):
            return self.module(str(call.args[0].value))
        if last == "namedtuple" and len(call.args) == 2:
            fields = self.evaluator.value(call.args[1])
            return NamedTupleClass(
                name, tuple(fields.replace(",", " ").split() if isinstance(fields, str) else fields)
            )
        return self._decorated(name, call, before)

    def _decorated(self, name: str, value: ast.expr, before: Sequence[Binding]) -> Any:
        """The function that an expression names, or makes of one by calling decorators; None where it does neither.  Those that
        are not known (tuners, registries) are looked through, if they are made by a call."""
        if isinstance(value, ast.Name | ast.Attribute):
            is_hidden = isinstance(value, ast.Name) and value.id == name
            return self._first(name, before) if is_hidden else self.evaluator.named(value)
        if not isinstance(value, ast.Call) or len(value.args) != 1:
            return None
        function = value.func.func if isinstance(value.func, ast.Call) else value.func
        last = _last(function)
        is_marking = last in ("jit", "constexpr_function")
        if not is_marking and not isinstance(value.func, ast.Call):
            return None
        inner = self._decorated(name, value.args[0], before)
        if not isinstance(inner, SourceFunction):
            return inner if is_marking else None
        if not is_marking:
            return inner
        kind = "jit" if last == "jit" else "constexpr"
        gluon = last == "jit" and is_gluon(function, self)
        return make_function(inner.node, inner.file, inner.namespace, kind=kind, gluon=gluon)

    def _imported(self, statement: ast.ImportFrom, name: str) -> Any:
        base = self._absolute(statement)
        if isinstance(base, str):
            found = self.module(base)
        else:
            found = base
        return attribute(found, name)

    def _absolute(self, statement: ast.ImportFrom) -> Any:
        """The module that a `from` names: its full name, or for a relative import the module itself."""
        if not statement.level:
            return statement.module or ""
        place = lookup.relative(os.path.dirname(self.path), statement.level, statement.module or "")
        return _on_disk(place, "." * statement.level + (statement.module or ""))

    def module(self, name: str) -> Any:
        """A module by its full name: a known one, or one found beside or above this file."""
        if modules.is_known(name):
            return PythonModule(name)
        place = lookup.absolute(os.path.dirname(self.path), name)
        if place is None:
            raise UnresolvedModule(name)
        return _on_disk(place, name)


def _last(function: ast.expr) -> str:
    """The last of the names by which a function is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


class NamespacePackage:
    """A directory of modules without `__init__.py`."""

    def __init__(self, path: str) -> None:
        self.path = path


def _on_disk(place: str, name: str) -> Any:
    path = lookup.module_file(place)
    if path:
        return load_module(os.path.abspath(path))
    if os.path.isdir(place):
        return NamespacePackage(place)
    raise UnresolvedModule(name)


def attribute(owner: Any, name: str) -> Any:
    """A member: of a module a name of its own, or a module inside the package; of a constant, Python's
    attribute."""
    if isinstance(owner, PythonModule):
        return modules.find_member(owner.name, name)
    if isinstance(owner, SourceModule):
        try:
            return owner.resolve(name)
        except KeyError:
            if os.path.basename(owner.path) != "__init__.py":
                raise Unresolved(f"{owner.path} has no {name}") from None
            return _on_disk(os.path.join(os.path.dirname(owner.path), name), name)
    if isinstance(owner, NamespacePackage):
        return _on_disk(os.path.join(owner.path, name), name)
    if isinstance(owner, ConstantClass):
        return owner.member(name)
    try:
        return getattr(owner, name)
    except AttributeError:
        raise Unresolved(f"{owner!r} has no attribute {name}") from None


def _is_named_tuple(node: ast.ClassDef) -> bool:
    bases = (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases)
    return "NamedTuple" in bases


def _named_tuple_class(node: ast.ClassDef, namespace: Namespace) -> NamedTupleClass:
    fields = [
        (item.target.id, item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]
    names, annotations = (tuple(part) for part in zip(*fields)) if fields else ((), ())
    return NamedTupleClass(node.name, names, annotations, namespace)


def parse(path: str, text: str) -> ast.Module:
    """The syntax tree of a module, columns counted in characters rather than in bytes."""
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        raise CompileError(f"{error.msg}", Loc(path, error.lineno or 1, error.offset or 0)) from None
    except (RecursionError, MemoryError):  # Python's parser has no line for these.
        raise CompileError("the source nests too deeply to be read", Loc(path, 1)) from None
    except ValueError as error:
        raise CompileError(f"{error}", Loc(path, 1)) from None
    if not text.isascii():
        _count_characters(tree, [line.encode() for line in text.splitlines()])
    return tree


def _count_characters(tree: ast.AST, lines: Sequence[bytes]) -> None:
    """Replace the columns of a tree's nodes, counted in bytes of its lines, by columns in characters."""
    wide = {number for number, line in enumerate(lines, 1) if not line.isascii()}
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.stmt | ast.expr):
            # Decorators stand before the first line of a function.
            decorators = getattr(node, "decorator_list", ())
            first, last = min([node.lineno, *(one.lineno for one in decorators)]), node.end_lineno
            if wide.isdisjoint(range(first, (last or first) + 1)):
                continue  # Most of a module, for whose sake no node inside is looked at.
        for line, column in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
            if (place := getattr(node, line, None)) in wide:
                before = lines[place - 1][: getattr(node, column)]
                setattr(node, column, len(before.decode(errors="ignore")))
        nodes += ast.iter_child_nodes(node)


def load_module(path: str) -> SourceModule:
    """The module in a file; a file that did not change is parsed once."""
    try:
        facts = os.stat(path)
    except OSError as error:
        raise UsageError(f"cannot read {shown_path(path)}: {error.strerror}") from None
    return _load(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=512)
def _load(path: str, changed: int, size: int) -> SourceModule:
    try:
        with open(path, encoding="utf-8-sig") as stream:  # Some editors begin a file with a byte order mark.
            return SourceModule(path, stream.read())
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown_path(path)} is not UTF-8 text: {error.reason}") from None


def is_ambiguous(path: str, name: str) -> bool:
    """Whether a file binds a name more than once, under conditions that it does not decide."""
    return len(load_module(os.path.abspath(path)).bindings.get(name, ())) > 1


def find_function(path: str, name: str) -> SourceFunction:
    """The function of a file."""
    if not os.path.isfile(path):
        raise UsageError(f"no file {path}")
    module = load_module(os.path.abspath(path))
    try:
        found = module.resolve(name)
    except KeyError:
        functions = [
            key
            for key, values in module.bindings.items()
            if any(isinstance(v, ast.FunctionDef) for v in values)
        ]
        close = nearest(name, functions)
        advice = f"did you mean {close}?" if close else f"it has {', '.join(functions)}" if functions else ""
        raise UsageError(f"{path} has no function {name}", help=advice) from None
    except Unresolved as error:
        raise CompileError(f"{name} of {path} cannot be read: {error}", Loc(path, 1)) from None
    if not isinstance(found, SourceFunction):
        raise UsageError(f"{name} of {path} is not a function", Loc(path, 1))
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements in a tree, and the clauses that hold some.

    A file of thousands of lines has twenty times as many expressions, and no function is in one.
    """
    pending: list[ast.AST] = [tree]
    for node in pending:
        for field in _NESTED:
            pending += getattr(node, field, ())
        yield node
