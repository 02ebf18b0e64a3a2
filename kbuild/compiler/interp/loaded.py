"""Kernels loaded from their text, for code that runs them without knowing the IR."""

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.types import Type, bit_width, is_float, is_pointer, pointee_of

__all__ = ["Module", "Type", "bit_width", "is_float", "is_pointer", "module_of", "pointee_of"]


def module_of(text: str) -> Module:
    """The module of a text of ttir or ttgir, to run with `interp.run`."""
    return parse_module(text)
