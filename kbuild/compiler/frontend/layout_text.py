"""Layouts of Gluon as text: in manifests, in signatures and on the command line.

gl.BlockedLayout([1], [32], [4], [0])
NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16)
"""

from __future__ import annotations

import ast
from typing import Any

from kbuild.compiler.frontend.evaluate import Evaluator
from kbuild.compiler.frontend.sources.files import attribute
from kbuild.compiler.frontend.sources.functions import Unresolved
from kbuild.compiler.frontend.sources.modules import PythonModule
from kbuild.compiler.layout.gluon import PUBLIC, Layout

_GL = PythonModule("kbuild.language.gluon.language")


class _Names:
    """The names that the text of a layout may use."""

    def resolve(self, name: str) -> Any:
        return _GL if name in ("gl", "ttgl") else PUBLIC[name]

    def names(self) -> list[str]:
        return ["gl", *PUBLIC]


__all__ = ["Unresolved", "is_layout_text", "layout_of_text"]
_EVALUATOR = Evaluator(_Names(), attribute)


def is_layout_text(text: str) -> bool:
    """Whether a text is meant for a layout: a call of one of their names."""
    head = text.strip().partition("(")[0].removeprefix("gl.").removeprefix("ttgl.")
    return head.split(".")[0] in PUBLIC and "(" in text


def layout_of_text(text: str) -> Layout:
    """The layout that a text is; raises `Unresolved`, which says what is wrong with it."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unresolved(f"{text!r} is not an expression: {error}") from None
    value = _EVALUATOR.value(node)
    if not isinstance(value, Layout):
        raise Unresolved(f"{text!r} is not a layout")
    return value
