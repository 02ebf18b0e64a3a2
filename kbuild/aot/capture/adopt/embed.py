"""Files of its own for a kernel that no file has as it ran: one that a function makes, or whose text a library writes.

They have the text that Triton compiled, the functions that this reaches, and the constants that these took from around them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kbuild.aot.capture.records import CapturedKernel, Part
from kbuild.aot.capture.serving.shim.language import TYPES

_KINDS = {
    "JITFunction": "@triton.jit",
    "GluonJITFunction": "@gluon.jit",
    "ConstexprFunction": "@triton.constexpr_function",
    "constexpr": "@tl.constexpr",
    "function": "",
}
_TYPES = {own: name for name, own in TYPES.items()}


class NotEmbedded(Exception):
    """A kernel that cannot stand in files of its own; the text says why."""


def embedded(kernel: CapturedKernel, stem: str) -> dict[str, str]:
    """The texts of the files by their names, the kernel's own first, which is `stem.py`.

    There is one where each name means one thing in all that the kernel is made of, else one for each module that has a part of
    it.  What a function names through a module, as `ext.count`, is in a file that stands for that module.  Raises `NotEmbedded`.
    """
    if not all(part.text for part in kernel.parts):
        raise NotEmbedded("the capture has no text of it")
    try:
        return _Files(kernel, stem, is_single=True).texts()
    except NotEmbedded:
        return _Files(kernel, stem, is_single=False).texts()


class _File:
    """A module in the making."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: list[str] = []
        self.modules: dict[str, _File] = {}
        """Files that stand for what this one names as modules."""
        self._meanings: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {"import": [], "value": [], "alias": []}

    def bind(self, name: str, meaning: str, kind: str = "", line: str = "") -> None:
        """Gives a name its meaning, and the line that binds it, if any.  Raises `NotEmbedded` where it has another meaning."""
        known = self._meanings.setdefault(name, meaning)
        if known != meaning:
            raise NotEmbedded(f"{name} means two things in it")
        if line and line not in self._lines[kind]:
            self._lines[kind].append(line)

    def add_import(self, name: str, target: str) -> None:
        """Imports what `target` names, as `module` or `module:member`, by a name."""
        self.bind(name, target, "import", _import(name, target))

    def text(self, head: str) -> str:
        """The whole file."""
        for name, other in self.modules.items():
            self.bind(name, f"file {other.name}", "import", f"from . import {other.name} as {name}")
        if self.functions:
            self.add_import("triton", "triton")
        if self._lines["value"]:
            self.add_import("tl", "triton.language")
        lines = [head, *sorted(self._lines["import"]), "", *sorted(self._lines["value"])]
        lines += ["", "\n\n".join(reversed(self.functions)), *self._lines["alias"]]
        return re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines)).rstrip("\n") + "\n"


class _Files:
    """The files of a kernel."""

    def __init__(self, kernel: CapturedKernel, stem: str, is_single: bool) -> None:
        self._kernel = kernel
        self._stem = stem
        self._is_single = is_single
        self._files: dict[str, _File] = {}
        self._names: set[str] = set()
        for part in kernel.parts:
            self._add(part)

    def texts(self) -> dict[str, str]:
        """By their names."""
        head = f'"""{self._kernel.name} of {self._kernel.module}, as `kbuild capture` met it."""\n'
        found: dict[str, str] = {}
        waiting = [*self._files.values()]
        while waiting:
            file = waiting.pop(0)
            found[f"{file.name}.py"] = file.text(head)
            waiting += file.modules.values()
        return found

    def _add(self, part: Part) -> None:
        file = self._of(part.module)
        file.functions.append(_function(part))
        name = own_name(part)
        file.bind(name, f"{part.module}:{part.name}")
        if part.kind == "constexpr":
            file.add_import("tl", "triton.language")
        if "gl." in part.text or _decorator(part) == "@gluon.jit":
            file.add_import("gluon", "triton.experimental:gluon")
        for shown, value in part.values.items():
            inner, own = self._inside(file, shown)
            inner.bind(
                own, f"value {json.dumps(value)}", "value", f"{own}: tl.constexpr = {_constant(shown, value)}"
            )
        for shown, target in part.imports.items():
            inner, own = self._inside(file, shown)
            if not target.startswith("builtins:"):
                inner.add_import(own, target)
        for shown, target in part.calls.items():
            inner, own = self._inside(file, shown)
            self._call(inner, own, target)

    def _call(self, file: _File, name: str, target: str) -> None:
        """Has a file know a function of the kernel's by a name."""
        module, _, qualified = target.partition(":")
        meant = [part for part in self._kernel.parts if (part.module, part.name) == (module, qualified)]
        if not meant:
            raise NotEmbedded(f"it calls {target}, which the capture does not have")
        home, own = self._of(module), own_name(meant[0])
        if home is not file:
            line = f"from .{home.name} import {own}" + (f" as {name}" if name != own else "")
            file.bind(name, target, "import", line)
        elif name != own:
            file.bind(name, target, "alias", f"{name} = {own}")
        else:
            file.bind(name, target)

    def _of(self, module: str) -> _File:
        """The file with the functions of a module."""
        key = "" if self._is_single else module
        if key not in self._files:
            is_first = not self._files
            self._files[key] = _File(self._stem if is_first else self._name(module.rpartition(".")[2]))
        return self._files[key]

    def _inside(self, file: _File, shown: str) -> tuple[_File, str]:
        """The file in which `a.b.name` is bound, where `file` has it as that, and its own name there."""
        *modules, name = shown.split(".")
        for module in modules:
            if module not in file.modules:
                file.modules[module] = _File(self._name(module))
            file = file.modules[module]
        return file, name

    def _name(self, last: str) -> str:
        """A new name for a file beside the kernel's."""
        name, number = f"{self._stem}_{last}", 2
        while name in self._names:
            name, number = f"{self._stem}_{last}_{number}", number + 1
        self._names.add(name)
        return name


def own_name(part: Part) -> str:
    """The name of a function in its text, which a library may have written for a function that is called otherwise."""
    found = re.match(r"def\s+(\w+)", part.text)
    return found[1] if found else part.name.rpartition(".")[2]


def _import(name: str, target: str) -> str:
    module, _, member = target.partition(":")
    if not re.fullmatch(r"[\w.]+", module) or (member and not member.isidentifier()):
        raise NotEmbedded(f"{name} is {target}, which cannot be imported")
    if member:
        return f"from {module} import {member}" + (f" as {name}" if name != member else "")
    return f"import {module}" + (f" as {name}" if name != module else "")


def _constant(name: str, value: Any) -> str:
    """The value of a name, as it is written in Python."""
    if not isinstance(value, dict):
        return repr(value)
    ((kind, inner),) = value.items()
    if kind == "tuple":
        items = [_constant(name, item) for item in inner]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if kind == "dtype" and inner in _TYPES:
        return f"tl.{_TYPES[inner]}"
    if kind == "float":
        return f'float("{inner}")'
    raise NotEmbedded(f"{name} is {json.dumps(value)}")


def _decorator(part: Part) -> str:
    if part.kind not in _KINDS:
        raise NotEmbedded(f"{part.name} is a {part.kind}")
    return _KINDS[part.kind]


def _function(part: Part) -> str:
    return f"{_decorator(part)}\n{part.text}".lstrip("\n")
