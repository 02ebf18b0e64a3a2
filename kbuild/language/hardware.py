"""The modules of hardware of Gluon, `gl.nvidia.hopper` and the like, from the compiler's own tables."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kbuild.compiler.frontend.sources.functions import Unresolved
from kbuild.compiler.frontend.sources.modules import PythonModule, find_member
from kbuild.compiler.semantic.registry import Builtin
from kbuild.language import LanguageFunction


class HardwareModule(ModuleType):
    """A module inside, such as `gl.nvidia.hopper.tma`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return member(self.__name__, name)


def member(module: str, name: str) -> Any:
    """`module.name`; raises AttributeError where there is none."""
    try:
        found = find_member(module, name)
    except Unresolved as error:
        raise AttributeError(str(error)) from None
    if isinstance(found, PythonModule):
        return HardwareModule(found.name)
    if isinstance(found, Builtin):
        return LanguageFunction(name, module, module.rpartition(".")[2], found)
    return found
