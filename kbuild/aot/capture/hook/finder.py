"""Takes part in the import of modules: a function is called when one has been executed, or is the context in which it is."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any


class Finder(importlib.abc.MetaPathFinder):
    """Finds some modules as others would; calls a function when one has been executed, and executes others in a context."""

    def __init__(
        self,
        after: Mapping[str, Callable[[ModuleType], None]],
        around: Mapping[str, Callable[[], AbstractContextManager[None]]] | None = None,
    ) -> None:
        self._after = dict(after)
        self._around = dict(around or {})

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._after and fullname not in self._around:
            return None
        call, around = self._after.pop(fullname, None), self._around.pop(fullname, nullcontext)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, call, around)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """A loader, what is to be done after it, and in which context it works."""

    def __init__(
        self,
        inner: Any,
        call: Callable[[ModuleType], None] | None,
        around: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._inner = inner
        self._call = call
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with self._around():
            self._inner.exec_module(module)
        if self._call is not None:
            self._call(module)
