"""kbuild compiles Triton-language GPU kernels ahead of time and ships them as ordinary Python wheels.

import kbuild artifact = kbuild.compile("kernels/add.py:add_kernel", signature={"x": "*fp32:16", "n": "i32"},
constexprs={"BLOCK": 1024}) artifact.asm["ptx"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbuild.compiler.driver import Artifact, Metadata, compile
    from kbuild.errors import KbuildError
    from kbuild.gpu import load
    from kbuild.language import constexpr, constexpr_function, jit

__version__ = "0.1.0"
__all__ = ["Artifact", "KbuildError", "Metadata", "compile", "constexpr", "constexpr_function", "jit", "load"]

_HOMES = {
    "Artifact": "kbuild.compiler.driver",
    "KbuildError": "kbuild.errors",
    "Metadata": "kbuild.compiler.driver",
    "compile": "kbuild.compiler.driver",
    "constexpr": "kbuild.language",
    "constexpr_function": "kbuild.language",
    "jit": "kbuild.language",
    "load": "kbuild.gpu",
}


def __getattr__(name: str) -> Any:
    """The public names, imported on first use: `kbuild --help` and a build with nothing to do need no
    compiler."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kbuild' has no attribute {name!r}")
    import importlib  # Not for those who only ask for the version.

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
