"""Sources and compiled kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

count = 0
"""Kernels that were compiled."""


class ASTSource:
    def __init__(self, fn: Any, signature: dict[str, Any], constants: dict[Any, Any], attrs: Any) -> None:
        self.fn, self.signature, self.constants, self.attrs = fn, signature, constants, attrs
        self.name = fn.fn.__name__


class CompiledKernel:
    def __init__(self, src: ASTSource, options: dict[str, Any]) -> None:
        self.src = src
        self.metadata = SimpleNamespace(**options)

    def run(self, *_: Any) -> None:
        """A launch."""


def compile(src: ASTSource, target: Any = None, options: Any = None) -> CompiledKernel:
    global count
    count += 1
    if src.name.startswith("broken"):
        raise ValueError("a mistake in the kernel")
    return CompiledKernel(src, dict(options or {}))
