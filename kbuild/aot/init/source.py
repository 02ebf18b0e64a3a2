"""The kernels of a Python file, found in its syntax tree."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kbuild.aot.manifest.configs.evaluate import Evaluator, last_name, module_evaluator
from kbuild.aot.manifest.functions.kernel_function import KernelParameter
from kbuild.aot.manifest.functions.python import python_functions
from kbuild.aot.syntax import module_functions
from kbuild.compiler.frontend.sources.files import parse
from kbuild.errors import Loc, UsageError, nearest, shown_path

_GLUON = ("triton.experimental.gluon", "kbuild.language.gluon")
_JIT_MODULES = ("triton", "triton.language", "kbuild", "kbuild.language", *_GLUON)


@dataclass(frozen=True, eq=False)
class KernelSource:
    """A function decorated with `triton.jit` or `gluon.jit`."""

    node: ast.FunctionDef
    parameters: tuple[KernelParameter, ...]
    is_gluon: bool = False

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def run_time(self) -> tuple[KernelParameter, ...]:
        """The parameters that a call gives at run time."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_constexpr)

    @property
    def constexprs(self) -> tuple[KernelParameter, ...]:
        return tuple(parameter for parameter in self.parameters if parameter.is_constexpr)

    @property
    def returns_value(self) -> bool:
        """Whether it returns something, which a function that is launched cannot."""
        return any(isinstance(node, ast.Return) and node.value for node in ast.walk(self.node))


@dataclass(frozen=True, eq=False)
class SourceFile:
    """A file with kernels."""

    path: Path
    tree: ast.Module

    @cached_property
    def jitted(self) -> dict[str, KernelSource]:
        """All functions decorated with jit, by name."""
        declared = python_functions(Path(os.path.realpath(self.path)))
        found = {}
        for node in module_functions(self.tree).values():
            modules = [module for one in node.decorator_list if (module := self._jit_module(one))]
            if modules:
                parameters = declared[node.name].parameters
                found[node.name] = KernelSource(node, parameters, modules[0] in _GLUON)
        return found

    @cached_property
    def evaluator(self) -> Evaluator:
        """What gives the values of this file's literals."""
        return module_evaluator(self.tree, self.jitted)

    def launched(self) -> Iterator[tuple[str, ast.Subscript, ast.Call]]:
        """The calls `kernel[grid](…)` in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                name = last_name(node.func.value)
                if name in self.jitted:
                    yield name, node.func, node

    def kernels(self) -> list[KernelSource]:
        """The kernels that are launched in the file, or that no other kernel calls and that return nothing."""
        launched = {name for name, _, _ in self.launched()}
        helpers = {
            node.id
            for kernel in self.jitted.values()
            for node in ast.walk(kernel.node)
            if isinstance(node, ast.Name) and node.id != kernel.name
        }
        return [
            kernel
            for name, kernel in self.jitted.items()
            if name in launched or not (name in helpers or kernel.returns_value)
        ]

    @cached_property
    def _imported(self) -> dict[str, str]:
        """The modules and members that names of the file stand for."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
        return found

    def _jit_module(self, decorator: ast.expr) -> str:
        """The module whose `jit` a decorator is; empty for other decorators."""
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        module = ""
        if isinstance(target, ast.Attribute) and target.attr == "jit":
            first, dot, rest = ast.unparse(target.value).partition(".")
            module = self._imported.get(first, {"tl": "triton.language"}.get(first, first)) + dot + rest
        elif isinstance(target, ast.Name):
            known = self._imported.get(target.id, "triton.jit" if target.id == "jit" else "")
            module = known.rpartition(".")[0] if known.rpartition(".")[2] == "jit" else ""
        return module if module in _JIT_MODULES else ""


def read_source(path: Path) -> SourceFile:
    """A file's syntax tree; UsageError or CompileError where there is none."""
    shown = shown_path(str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig") if path.is_file() else None
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 text: {error.reason}") from None
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {error.strerror}") from None
    if text is None:
        similar = nearest(path.name, [other.name for other in path.parent.glob("*.py") if other.is_file()])
        raise UsageError(f"no file {shown}", help=f"did you mean {similar}?" if similar else "")
    return SourceFile(path, parse(str(path), text))


def chosen_kernels(file: SourceFile, names: Sequence[str]) -> list[KernelSource]:
    """The kernels of these names, or all that are not helpers; UsageError where there is none."""
    shown = shown_path(str(file.path))
    if not names:
        found = file.kernels()
        if not found:
            help = "kernels are functions at the top level, decorated with @triton.jit or @gluon.jit"
            if file.jitted:
                first, *_ = file.jitted
                said = "are called by others or return something"
                help = f"{', '.join(file.jitted)} {said}; name one, as {shown}:{first}"
            raise UsageError(f"{shown} has no kernel", help=help)
        return found
    for name in names:
        if name in file.jitted:
            continue
        plain = {node.name: node for node in ast.walk(file.tree) if isinstance(node, ast.FunctionDef)}
        if name in plain:
            loc = Loc(str(file.path), plain[name].lineno, plain[name].col_offset + 1)
            help = "kernels are functions at the top level, decorated with @triton.jit or @gluon.jit"
            raise UsageError(f"{name} is not a kernel", loc, help)
        close = nearest(name, file.jitted)
        known = f"its kernels are {', '.join(file.jitted)}" if file.jitted else "it has no kernel"
        raise UsageError(f"{shown} has no function {name}", help=f"did you mean {close}?" if close else known)
    return [file.jitted[name] for name in dict.fromkeys(names)]
