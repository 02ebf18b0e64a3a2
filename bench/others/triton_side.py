"""A request compiled by Triton, without a GPU: for `counts.py`."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from corpus import value_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


class _NoDevice:
    """What modules ask Triton's driver for as they are imported."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0


def compiled(request: Any, source: Path, capability: int) -> tuple[str, int]:
    """The PTX, and bytes of shared memory.  Raises whatever Triton does."""
    triton.runtime.driver.set_active(_NoDevice(capability))
    function: Any = _module(source)
    for name in request["name"].split("."):
        function = getattr(function, name)
    while not isinstance(function, triton.JITFunction):
        function = function.fn
    asked = ASTSource(
        function,
        dict(request["signature"]),
        {tuple(path): value_of(value, tl) for path, value in request["constants"]},
        {tuple(path): facts for path, facts in request["attrs"]},
    )
    chosen = {key: request["options"][key] for key in ("num_warps", "num_stages", "num_ctas")}
    kernel = triton.compile(asked, target=GPUTarget("cuda", capability, 32), options=chosen)
    return kernel.asm["ptx"], kernel.metadata.shared


def _module(source: Path) -> types.ModuleType:
    """A module of which each statement is run for itself: tests at its end, which need a GPU, may fail."""
    for folder in source.parents:
        if not (folder / "__init__.py").exists():
            sys.path.insert(0, str(folder))
            break
    module = types.ModuleType(source.stem)
    module.__file__ = str(source)
    sys.modules[source.stem] = module
    for statement in ast.parse(source.read_text()).body:
        try:
            exec(compile(ast.Module([statement], []), str(source), "exec"), module.__dict__)
        except BaseException:
            continue
    return module
