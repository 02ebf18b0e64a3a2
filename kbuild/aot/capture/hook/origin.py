"""Where a kernel comes from: its module and file, and the text of all that it is made of.

A kernel is known again by a digest of its own text, of the functions that it reaches, and of the constants that these take
from their modules or from the functions around them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from kbuild.aot.capture.hook.plain import constant, plain
from kbuild.aot.capture.text import bound_names, chains, from_def, text_digest

_KNOWN = ("triton", "torch", "builtins", "math", "numpy", "kbuild")
"""Packages whose functions are part of the language, or mean nothing to a kernel."""
_GENERATED = "torch._inductor.runtime.compile_tasks."
"""Modules that torch's compiler has written."""
_LONGEST = 1 << 18
"""Characters of a kernel's texts that a capture holds."""
_MOST = 200
"""Functions that a kernel may reach."""


def origin(function: Any) -> dict[str, Any]:
    """The facts of a kernel: module, name, file and line, parameters, digest, and the functions that it is made of, its
    own first, each with the constants that it takes from outside."""
    parts = list(_parts(function))
    values = [
        f"{name}={json.dumps(value, sort_keys=True)}"
        for part in parts
        for name, value in part["values"].items()
    ]
    texts = [part["text"] for part in parts]
    if sum(map(len, texts)) > _LONGEST:
        parts = [{**part, "text": ""} for part in parts]
    return {
        "module": parts[0]["module"],
        "name": parts[0]["name"],
        "digest": text_digest(texts, values),
        "params": [_parameter(parameter) for parameter in function.params],
        "gluon": type(function).__name__.startswith("Gluon"),
        "parts": parts,
    }


def _parameter(parameter: Any) -> dict[str, Any]:
    found = {"name": parameter.name, "constexpr": bool(parameter.is_constexpr)}
    if parameter.has_default:
        found["default"] = plain(parameter.default)
    return found


def watched(function: Any) -> list[tuple[Any, str, Any]]:
    """What a digest depends on that may change while a process runs: objects or dictionaries of modules, the names there of
    texts and constants, and what they are now."""
    found: list[tuple[Any, str, Any]] = []
    for one, inner, _, outside in _reached(function):
        if hasattr(one, "src"):
            found.append((one, "src", one.src))
        names = {name for name in outside.values if name in inner.__globals__}
        found += [(inner.__globals__, name, inner.__globals__[name]) for name in sorted(names)]
    return found


def _reached(function: Any) -> Iterator[tuple[Any, types.FunctionType, str, _Outside]]:
    """The kernel, and the functions that it reaches, each once: the object, the function of Python, its text, and what it
    takes from around it."""
    waiting, seen = [function], set[int]()
    while waiting and len(seen) < _MOST:
        one = waiting.pop(0)
        inner = _inner(one)
        if inner is None or id(inner) in seen:
            continue
        seen.add(id(inner))
        text = _text(one, inner)
        outside = _Outside(inner, text)
        waiting += outside.reached
        yield one, inner, text, outside


def _parts(function: Any) -> Iterator[dict[str, Any]]:
    """The kernel, and the functions that it reaches, as records."""
    for one, inner, text, outside in _reached(function):
        code = inner.__code__
        yield {
            "module": module_of(inner),
            "name": inner.__qualname__,
            "file": _file(code.co_filename),
            "line": code.co_firstlineno,
            "kind": type(one).__name__,
            "text": text,
            "values": outside.values,
            "imports": outside.imports,
            "calls": outside.calls,
        }


def function_of(kernel: Any) -> Any:
    """What is innermost of a kernel's objects: its function of Python."""
    inner = kernel.fn
    while hasattr(inner, "fn"):
        inner = inner.fn
    return inner


def module_of(function: Any) -> str:
    """The module of a function; of a program's own, which is `__main__` while it runs, the name by which it could be imported."""
    module = function.__module__ or ""
    if module not in ("__main__", "__mp_main__") or not isinstance(function, types.FunctionType):
        return module
    spec = function.__globals__.get("__spec__")  # That of `python -m`.
    if spec:
        return spec.name
    stem = os.path.splitext(os.path.basename(function.__code__.co_filename))[0]
    return re.sub(r"\W|^(?=\d)", "_", stem)  # A program's file may be called 01-intro.py, which no module is.


def _inner(function: Any) -> types.FunctionType | None:
    """The function of Python behind an object of Triton's."""
    for _ in range(20):
        if isinstance(function, types.FunctionType) or function is None:
            return function
        function = getattr(function, "fn", function.value if _is_constexpr(function) else None)
    return None


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "constexpr"


def _is_function(value: Any) -> bool:
    """Whether it is called by kernels: also as `@tl.constexpr` makes one that runs while they are compiled."""
    if _is_constexpr(value):
        return isinstance(value.value, types.FunctionType)
    return hasattr(value, "fn") or isinstance(value, types.FunctionType)


def _text(function: Any, inner: types.FunctionType) -> str:
    """The text that Triton compiles, which a library may have put in the place of what is in the file."""
    while not isinstance(function, types.FunctionType):
        text = getattr(function, "src", None)
        if isinstance(text, str):
            return from_def(text)
        function = getattr(function, "fn", None) or inner
    import inspect  # Triton has it already; where it is not used, starting a process should cost nothing.

    try:
        return from_def(inspect.getsource(inner))
    except (OSError, TypeError):
        return ""


class _Outside:
    """What a function takes from around it, by the names that its text has for it."""

    def __init__(self, function: types.FunctionType, text: str) -> None:
        self.values: dict[str, Any] = {}
        """Constants, as JSON can have them."""
        self.imports: dict[str, str] = {}
        """Modules of the language, and their members as `module:name`."""
        self.calls: dict[str, str] = {}
        """The names of other functions, as `module:name`."""
        self.reached: list[Any] = []
        """These functions."""
        pairs = zip(function.__code__.co_freevars, function.__closure__ or ())
        cells = {name: _contents(cell) for name, cell in pairs}
        bound = bound_names(text)
        for name, *members in chains(text):
            if name not in bound:
                self._take(name, members, cells.get(name, function.__globals__.get(name)))

    def _take(self, name: str, members: list[str], value: Any) -> None:
        chain = [name]
        while isinstance(value, types.ModuleType) and members and not is_known(value.__name__):
            chain.append(members.pop(0))
            value = getattr(value, chain[-1], None)
        shown = ".".join(chain)
        if isinstance(value, types.ModuleType):
            self.imports[shown] = value.__name__
        elif isinstance(value, type) or _home(value):
            inner = _inner(value) or value
            self.imports[shown] = f"{module_of(inner)}:{inner.__qualname__}"
        elif _is_function(value):
            self.reached.append(value)
            inner = _inner(value)
            self.calls[shown] = f"{module_of(inner)}:{inner.__qualname__}" if inner else ""
        elif value is not None and constant(value):
            self.values[shown] = plain(value)


def _home(value: Any) -> bool:
    """Whether a function belongs to the language."""
    inner = _inner(value) if _is_function(value) else None
    return inner is not None and is_known(inner.__module__ or "")


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Not bound yet.
        return None


def is_known(module: str) -> bool:
    """Whether what a module has is part of the language."""
    return module.split(".")[0] in _KNOWN and not module.startswith(_GENERATED)


def _file(file: str) -> str:
    """A file below the nearest folder that modules are imported from: `liger_kernel/ops/rms_norm.py`."""
    file = os.path.abspath(file)
    folders = [
        os.path.join(os.path.abspath(folder or "."), "") for folder in sys.path if isinstance(folder, str)
    ]
    around = [folder for folder in folders if file.startswith(folder)]
    return file[len(max(around, key=len)) :] if around else file
