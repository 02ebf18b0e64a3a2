"""A file of its own for a kernel that no file has as it ran: one that a function makes, or whose text a library writes.

It has the text that Triton compiled, the functions that this reaches, and the constants that these took from around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kbuild.aot.capture.records import CapturedKernel, Part

_KINDS = {
    "JITFunction": "@triton.jit",
    "GluonJITFunction": "@gluon.jit",
    "ConstexprFunction": "@triton.constexpr_function",
    "function": "",
}


class NotEmbedded(Exception):
    """A kernel that cannot stand in a file of its own; the text says why."""


def embedded(kernel: CapturedKernel) -> str:
    """The text of the file.  Raises `NotEmbedded`."""
    names: dict[str, str] = {"triton": "triton"}
    constants: dict[str, str] = {}
    functions: list[str] = []
    if not all(part.text for part in kernel.parts):
        raise NotEmbedded("the capture has no text of it")
    for part in kernel.parts:
        for name, target in _imports(part, kernel):
            if names.setdefault(name, target) != target:
                raise NotEmbedded(f"{name} means two things in it")
        for name, value in part.values.items():
            text = _constant(name, value)
            if constants.setdefault(name, text) != text:
                raise NotEmbedded(f"{name} has two values in it")
        functions.append(_function(part))
    own = [part.name.rpartition(".")[2] for part in kernel.parts]
    clashing = {name for name in own if own.count(name) > 1 or name in constants or name in names}
    if clashing:
        raise NotEmbedded(f"{min(clashing)} means two things in it")
    if any(
        "gl." in text or kind == "@gluon.jit" for text, kind in zip(functions, map(_decorator, kernel.parts))
    ):
        names.setdefault("gluon", "triton.experimental:gluon")
    head = f'"""{kernel.name} of {kernel.module}, as `kbuild capture` met it."""\n'
    imports = [_import(name, target) for name, target in sorted(names.items())]
    values = [f"{name}: tl.constexpr = {text}" for name, text in sorted(constants.items())]
    if values and names.get("tl", "triton.language") != "triton.language":
        raise NotEmbedded("its module calls something else tl")
    if values and "tl" not in names:
        imports.append(_import("tl", "triton.language"))
    return "\n".join(
        [head, *sorted(imports), "", *values, *([""] if values else []), "\n\n".join(reversed(functions))]
    )


def _imports(part: Part, kernel: CapturedKernel) -> Iterator[tuple[str, str]]:
    for name, target in part.imports.items():
        if "." in name:
            raise NotEmbedded(f"it names {name} through a module")
        if not target.startswith("builtins:"):
            yield name, target
    known = {f"{other.module}:{other.name}": other.name.rpartition(".")[2] for other in kernel.parts}
    for name, target in part.calls.items():
        if known.get(target) != name:
            raise NotEmbedded(f"it calls {target} as {name}")


def _import(name: str, target: str) -> str:
    module, _, member = target.partition(":")
    if not re.fullmatch(r"[\w.]+", module) or (member and not member.isidentifier()):
        raise NotEmbedded(f"{name} is {target}, which cannot be imported")
    if member:
        return f"from {module} import {member}" + (f" as {name}" if name != member else "")
    return f"import {module}" + (f" as {name}" if name != module else "")


def _constant(name: str, value: Any) -> str:
    if "." in name:
        raise NotEmbedded(f"it takes {name} from another module")
    if isinstance(value, dict):
        if set(value) != {"tuple"} or any(isinstance(item, dict) for item in value["tuple"]):
            raise NotEmbedded(f"{name} is {json.dumps(value)}")
        return repr(tuple(value["tuple"]))
    return repr(value)


def _decorator(part: Part) -> str:
    if part.kind not in _KINDS:
        raise NotEmbedded(f"{part.name} is a {part.kind}")
    return _KINDS[part.kind]


def _function(part: Part) -> str:
    return f"{_decorator(part)}\n{part.text}".lstrip("\n")
