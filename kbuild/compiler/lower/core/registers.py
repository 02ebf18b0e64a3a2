"""Registers that warps give to others (`setmaxnreg`): those of a warpgroup have to agree."""

from __future__ import annotations

from kbuild.compiler.lower.core.emit import Emitter


def set_registers(emit: Emitter, direction: str, count: int) -> None:
    """The threads of a warpgroup keep fewer registers (`dec`), or wait for more (`inc`)."""
    name = f"llvm.nvvm.setmaxnreg.{direction}.sync.aligned.u32"
    emit.call(name, "void", [("i32", str(count))], effect=True)
