"""A function of the author's: its syntax tree, and where its free names are looked up."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbuild.errors import Loc


class Unresolved(Exception):
    """A name that means nothing, or nothing that can be known while compiling; the text says why."""


GLUON_JIT = "gluon.jit"


class UnresolvedModule(Unresolved):
    """A module that is neither one of the language nor among the project's files."""

    def __init__(self, module: str) -> None:
        super().__init__(f"module {module} is not among the project's files")
        self.module = module


@dataclass(frozen=True)
class Plain:
    """A module's variable that is not a `tl.constexpr`: a kernel may not use it, defaults and other constants
    may."""

    value: Any
    loc: Loc | None

    def advice(self, name: str) -> str:
        """What to write instead of using the variable `name` in a kernel."""
        if isinstance(self.value, type) or hasattr(self.value, "members"):
            return f"declare what is needed of it as a constant: SIZE = tl.constexpr({name}.SIZE)"
        return f"declare it as a constant: {name} = tl.constexpr({self.value!r})"


class Namespace(Protocol):
    """Where the names that a function does not bind itself are found."""

    def resolve(self, name: str) -> Any:
        """What the name stands for; raises `Unresolved`, or KeyError when it is not there."""

    def names(self) -> list[str]:
        """All names, for suggestions."""
        ...


@dataclass(frozen=True)
class SourceParameter:
    """A parameter of a function."""

    name: str
    node: ast.arg
    default: ast.expr | None
    keyword_only: bool
    constexpr: bool
    """Whether it is annotated with `tl.constexpr`."""


@dataclass(frozen=True, eq=False, repr=False)
class SourceFunction:
    """A function that a kernel is or calls."""

    name: str
    node: ast.FunctionDef
    file: str
    namespace: Namespace
    kind: str
    """`jit`; `constexpr` for functions that run while compiling; `plain` for those not marked."""
    noinline: bool = False
    debug: bool = False
    """Whether its decorator enables assertions, whatever the options say."""
    explicit_layouts: bool = False
    """Whether its author chooses the layouts of tensors: `@gluon.jit`."""
    library: bool = False
    """Whether it belongs to kbuild: messages then point at its caller."""
    parameters: tuple[SourceParameter, ...] = field(default=())

    def __repr__(self) -> str:
        return self.name

    @property
    def variadic(self) -> str | None:
        return self.node.args.vararg.arg if self.node.args.vararg else None

    @property
    def loc(self) -> Loc:
        return Loc(self.file, self.node.lineno, self.node.col_offset + 1, function=self.name)


def make_function(
    node: ast.FunctionDef,
    file: str,
    namespace: Namespace,
    library: bool = False,
    kind: str = "",
    gluon: bool = False,
) -> SourceFunction:
    """A function from its definition; its decorators say what it is unless `kind` and `gluon` do."""
    found, options, is_marked = _decorated(node, namespace)
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(
        arguments.defaults
    )
    parameters = [
        SourceParameter(arg.arg, arg, default, False, is_constexpr_annotation(arg.annotation))
        for arg, default in zip(positional, defaults)
    ]
    parameters += [
        SourceParameter(arg.arg, arg, default, True, is_constexpr_annotation(arg.annotation))
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
    ]
    noinline, debug = "noinline" in options, "debug" in options
    return SourceFunction(
        node.name,
        node,
        file,
        namespace,
        kind or found,
        noinline,
        debug,
        gluon or is_marked,
        library,
        tuple(parameters),
    )


def _decorated(node: ast.FunctionDef, namespace: Namespace) -> tuple[str, set[str], bool]:
    """The kind of a function, the options that its decorators set, as `noinline=True`, and whether its author
    chooses layouts.  Decorators that are not known (tuners, registries) are looked through."""
    kind, options, gluon = "plain", set[str](), False
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        target = call.func if call else decorator
        name = (
            target.attr
            if isinstance(target, ast.Attribute)
            else target.id
            if isinstance(target, ast.Name)
            else ""
        )
        if name == "jit":
            kind, gluon = "jit", gluon or is_gluon(target, namespace)
        elif name in ("constexpr_function", "constexpr"):
            kind = "constexpr"
        for keyword in call.keywords if call else ():
            if keyword.arg and isinstance(keyword.value, ast.Constant) and keyword.value.value:
                options.add(keyword.arg)
    return kind, options, gluon


def is_gluon(decorator: ast.expr, namespace: Namespace) -> bool:
    """Whether `gluon.jit`, or `jit` imported from there, is what a decorator names."""
    try:
        if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name):
            return str(getattr(namespace.resolve(decorator.value.id), "name", "")).endswith(".gluon")
        found = namespace.resolve(decorator.id) if isinstance(decorator, ast.Name) else None
    except (Unresolved, KeyError):
        return False
    return getattr(found, "name", "") == GLUON_JIT


def is_constexpr_annotation(annotation: ast.expr | None) -> bool:
    """Whether an annotation is `tl.constexpr`, under any name that the module has for it, or as a string."""
    if isinstance(annotation, ast.Attribute):
        return annotation.attr == "constexpr"
    if isinstance(annotation, ast.Name):
        return annotation.id == "constexpr"
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rsplit(".", 1)[-1] == "constexpr"
    return False
