"""The modules of hardware of Gluon, `gl.nvidia.hopper` and the like, from the compiler's own tables."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kbuild.compiler.frontend.sources.functions import Unresolved
from kbuild.compiler.frontend.sources.modules import PythonModule, find_member
from kbuild.compiler.semantic.registry import Builtin


class HardwareModule(ModuleType):
    """A module inside, such as `gl.nvidia.hopper.tma`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return member(self.__name__, name)


class HardwareFunction:
    """A function of the hardware, which has a meaning only in kernels."""

    def __init__(self, name: str, module: str, doc: str | None) -> None:
        self.__name__, self.__module__, self.__doc__ = name, module, doc

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__name__}>"


def member(module: str, name: str) -> Any:
    """`module.name`; raises AttributeError where there is none."""
    try:
        found = find_member(module, name)
    except Unresolved as error:
        raise AttributeError(str(error)) from None
    if isinstance(found, PythonModule):
        return HardwareModule(found.name)
    if isinstance(found, Builtin):
        return HardwareFunction(name, module, found.function.__doc__)
    return found
