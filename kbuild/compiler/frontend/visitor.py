"""Reads a function statement by statement, and makes operations of it.

`Visitor` holds what one compilation shares; how each kind of statement and expression is read stands in
`statements`, `control`, `expressions` and `calls`, in tables by the class of the syntax node.

An error ends only its statement: it is recorded, the names that the statement would have assigned are
poisoned, and reading goes on, so that all errors of a kernel are reported at once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kbuild.compiler.frontend.constexpr import MAX_ITEMS
from kbuild.compiler.frontend.evaluate import limits_of
from kbuild.compiler.frontend.scope import POISON, Frame, Poisoned, assigned_names
from kbuild.compiler.frontend.sources.functions import SourceFunction, Unresolved, UnresolvedModule
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Module, Value
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.registry import Builtin
from kbuild.compiler.semantic.values import Tensor
from kbuild.errors import CompileError, ErrorGroup, KbuildError, Loc

MAX_DEPTH = 48
"""Calls inside calls; deeper ones are taken for endless recursion."""
MAX_ERRORS = 20


@dataclass(frozen=True)
class Returned:
    """The state after a list of statements that ended in `return`."""

    value: Any
    node: ast.AST | None = None


@dataclass(frozen=True)
class MaybeReturned:
    """The state after a list of statements that returned where `flag` (i1) holds, and goes on elsewhere."""

    flag: Value
    value: Any
    node: ast.AST | None = None


State = Returned | MaybeReturned | None
Item = ast.stmt | Callable[[], None]
"""A statement, or something to do between statements."""
StatementHandler = Callable[["Visitor", Any, "Sequence[Item]"], State]
ExpressionHandler = Callable[["Visitor", Any], Any]

STATEMENTS: dict[type[ast.stmt], StatementHandler] = {}
EXPRESSIONS: dict[type[ast.expr], ExpressionHandler] = {}


def reads(*classes: type[Any]) -> Callable[[Any], Any]:
    """Put a function into the tables as the reader of some classes of syntax nodes.  Readers of statements
    also take the statements that follow; returning a state other than None means that they have been dealt
    with."""

    def register(handler: Any) -> Any:
        for cls in classes:
            table: dict[Any, Any] = STATEMENTS if issubclass(cls, ast.stmt) else EXPRESSIONS
            table[cls] = handler
        return handler

    return register


@dataclass
class CallSite:
    """The call or operator being executed, so that messages can point at its arguments."""

    node: ast.AST
    frame: Frame
    builtin: Builtin | None = None
    owner: ast.expr | None = None
    """For a method, the expression before the dot."""

    def argument(self, name: str) -> ast.expr | None:
        node = self.node
        if isinstance(node, ast.BinOp):
            return {"x": node.left, "y": node.right}.get(name)
        if isinstance(node, ast.AugAssign):
            return {"x": node.target, "y": node.value}.get(name)  # type: ignore[return-value]
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return {"x": node.left, "y": node.comparators[0]}.get(name)
        if isinstance(node, ast.Call) and self.builtin is not None:
            return self._call_argument(node, self.builtin, name)
        return None

    def _call_argument(self, node: ast.Call, builtin: Builtin, name: str) -> ast.expr | None:
        for keyword in node.keywords:
            if keyword.arg == name:
                return keyword.value
        given = ([self.owner] if self.owner is not None else []) + list(node.args)
        if name in builtin.parameters:
            position = builtin.parameters.index(name)
        else:
            position = len(builtin.parameters) if name == builtin.star else len(given)
        return given[position] if position < len(given) else None


class Visitor:
    """One compilation: the operations made, the functions open, the errors found."""

    def __init__(
        self,
        module: Module,
        block: Block,
        num_warps: int,
        debug: bool = False,
        explicit_layouts: bool = False,
    ) -> None:
        self.module = module
        self.builder = Builder(block)
        self.ctx = BuildContext(self.builder, self, num_warps, debug, explicit_layouts)
        self.errors: dict[tuple[Any, ...], KbuildError] = {}
        self.frames: list[Frame] = []
        self.outlined: dict[tuple[Any, ...], tuple[str, Any]] = {}
        """Functions that stay calls, by what they were made for: their names, and the forms of their results."""
        self.site: CallSite | None = None
        self.steps = 0
        self.tail = False
        """Whether falling off the end of the present statements ends the function."""

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    # Errors

    def locate(self, node: ast.AST) -> None:
        """Give the operations that follow this place."""
        self.builder.loc = self.frame.loc(node)

    def fail(self, node: ast.AST, message: str, help: str = "") -> NoReturn:
        raise CompileError(self.ctx.in_dialect(message), self.frame.loc(node), self.ctx.in_dialect(help))

    def record(self, error: KbuildError) -> None:
        """Record an error, once per place and text."""
        for single in error.errors():
            place = (single.loc.file, single.loc.line, single.loc.column) if single.loc else None
            self.errors.setdefault((place, single.message), single)

    def raise_errors(self) -> None:
        """Raise all recorded errors, if there are any."""
        found = list(self.errors.values())[:MAX_ERRORS]
        if len(found) == 1:
            raise found[0]
        if found:
            raise ErrorGroup(found)

    # What builtins need (`Frontend`)

    def argument_loc(self, name: str) -> Loc | None:
        found = self._argument(name)
        return found[1].loc(found[0]) if found else None

    def argument_text(self, name: str) -> str:
        found = self._argument(name)
        return ast.unparse(found[0]) if found else ""

    def compared(self, name: str) -> tuple[Any, Any] | None:
        found = self._argument(name)
        node = found[0] if found and found[1] is self.frame else None
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        return self.expression(node.left), self.expression(node.comparators[0])

    def _argument(self, name: str) -> tuple[ast.expr, Frame] | None:
        """The expression given for a parameter; from inside the library, what the user gave."""
        site = self.site
        node = site.argument(name) if site else None
        if node is None or site is None:
            return None
        frame = site.frame
        while frame.function.library:
            if not isinstance(node, ast.Name) or node.id not in frame.bound:
                return None
            node, frame = frame.bound[node.id]
        return node, frame

    def call(self, function: Any, args: list[Any]) -> Any:
        """The result of a function of the author's; the reader that knows calls says how."""
        raise NotImplementedError

    def attribute(self, value: Any, name: str) -> Any:
        """`value.name`; the reader that knows calls says how."""
        raise NotImplementedError

    # Reading

    def expression(self, node: ast.expr) -> Any:
        """The value of an expression."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            self.fail(node, *unsupported(node))
        return handler(self, node)

    def run(self, items: Sequence[Item]) -> State:
        """Execute statements until one of them returns."""
        for position, item in enumerate(items):
            if not isinstance(item, ast.stmt):
                item()
                continue
            if self.frame.pure:
                self.count_step(item)
            try:
                handler = STATEMENTS.get(type(item))
                if handler is None:
                    self.fail(item, *unsupported(item))
                state = handler(self, item, items[position + 1 :])
            except CompileError as error:
                if self.frame.pure:
                    raise  # Whoever called it cannot go on either, or has a `try`.
                self.record(error)
            except Poisoned:
                pass
            else:
                if state is not None:
                    return state
                continue
            if any(
                isinstance(part, ast.Return) for part in ast.walk(item)
            ):  # What is returned depends on the error.
                return Returned(POISON, item)
            for name in assigned_names(item):
                self.frame.values[name] = POISON
        return Returned(None) if self.tail else None

    def count_step(self, node: ast.AST) -> None:
        """Count a step of code that runs while compiling; raises CompileError after too many."""
        self.steps += 1
        if self.steps > MAX_ITEMS:
            self.fail(node, f"what runs while compiling does not end within {MAX_ITEMS} steps")

    def run_nested(self, items: Sequence[Item], tail: bool) -> State:
        """Execute statements of an inner block, whose end is or is not the function's."""
        saved, self.tail = self.tail, tail
        try:
            return self.run(items)
        finally:
            self.tail = saved

    def constant_value(self, node: ast.expr, what: str) -> Any:
        """The value of an expression that must be known while compiling."""
        value = self.expression(node)
        if isinstance(value, Tensor):
            self.fail(node, f"{what} is a value of run time, {value.type}", "annotate it with tl.constexpr")
        return value

    def resolve(self, function: SourceFunction, name: str, node: ast.AST) -> Any:
        """A name that a function does not bind itself; raises KeyError when there is none."""
        try:
            return function.namespace.resolve(name)
        except Unresolved as error:
            if (
                self.frame.pure
                and isinstance(error, UnresolvedModule)
                and (limits := limits_of(error.module))
            ):
                return limits
            help = _FOREIGN if "is not among" in str(error) else ""
            self.fail(node, f"`{name}` is not available while compiling: {error}", help)


_FOREIGN = "kernels see the project's modules, triton and math; write a type as tl.float16, a number as a constant of your own"

NOT_IN_KERNELS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Break: (
        "`break` is not possible in a kernel",
        "put the condition into a `while`, or mask what is too much",
    ),
    ast.Continue: ("`continue` is not possible in a kernel", "put the rest of the loop's body into an `if`"),
    ast.FunctionDef: (
        "a function inside a kernel is not possible",
        "move it to the module and decorate it with @triton.jit",
    ),
    ast.AsyncFunctionDef: ("a function inside a kernel is not possible", "move it to the module"),
    ast.ClassDef: ("a class inside a kernel is not possible", ""),
    ast.Lambda: (
        "`lambda` is not possible in a kernel",
        "write a function with def and decorate it with @triton.jit",
    ),
    ast.Dict: ("a dict is not possible in a kernel", "use a tuple, or pass arguments by name"),
    ast.Set: ("a set is not possible in a kernel", "use a tuple"),
    ast.DictComp: ("a dict is not possible in a kernel", "use a tuple"),
    ast.SetComp: ("a set is not possible in a kernel", "use a tuple"),
    ast.GeneratorExp: ("a generator is not possible in a kernel", "use a list comprehension over a tuple"),
    ast.Try: ("`try` is not possible in a kernel", ""),
    ast.Raise: ("`raise` is not possible in a kernel", "use tl.static_assert or tl.device_assert"),
    ast.With: ("`with` is not possible in a kernel", ""),
    ast.Delete: ("`del` is not possible in a kernel", ""),
    ast.Global: ("`global` is not possible in a kernel", "pass the value as an argument"),
    ast.Nonlocal: ("`nonlocal` is not possible in a kernel", "pass the value as an argument"),
    ast.Import: ("`import` is not possible in a kernel", "import at the top of the module"),
    ast.ImportFrom: ("`import` is not possible in a kernel", "import at the top of the module"),
    ast.Yield: ("`yield` is not possible in a kernel", ""),
    ast.YieldFrom: ("`yield` is not possible in a kernel", ""),
    ast.Await: ("`await` is not possible in a kernel", ""),
}
"""Syntax that kernels cannot use: message and advice."""


def unsupported(node: ast.AST) -> tuple[str, str]:
    """Message and advice for syntax that kernels cannot use."""
    found = NOT_IN_KERNELS.get(type(node))
    return found or (f"{type(node).__name__.lower()} is not possible in a kernel", "")
