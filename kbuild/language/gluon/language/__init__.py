"""The names of Gluon as authors import them: `from kbuild.language.gluon import language as gl`.

Layouts are what they are in kernels, so that launchers and manifests may make them; functions have a meaning
only in kernels.
"""

from __future__ import annotations

from typing import Any

from kbuild import language
from kbuild.compiler.layout.gluon import PUBLIC
from kbuild.compiler.semantic import TABLES


def __getattr__(name: str) -> Any:
    """The layouts, functions and dtypes of the language."""
    if name in PUBLIC:
        return PUBLIC[name]
    if name in TABLES["gl"]:
        return language.LanguageFunction(name, __name__, "gl", TABLES["gl"][name])
    try:
        return getattr(language, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC, *TABLES["gl"], *dir(language)])
