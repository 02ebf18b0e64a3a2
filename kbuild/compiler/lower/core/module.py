"""The LLVM text of a module."""

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.types import I1
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.function import DebugInfo, module_text, parameter_names
from kbuild.compiler.lower.core.partitions import lower_body
from kbuild.targets import Target


def lower_module(module: Module, target: Target, lineinfo: bool = False) -> str:
    """The LLVM text of a module's kernel, whose other functions have been inlined.

    Raises `CompileError` for what the target cannot do, `InternalError` for an operation that should be gone
    by now.
    """
    emit = Emitter(module.kernel, target)
    debug = DebugInfo(emit) if lineinfo else None
    for argument, name in zip(module.kernel.arguments, parameter_names(module.kernel)):
        with emit.at_entry():
            emit.bind(argument, [emit.instruction(f"icmp ne i8 {name}, 0") if argument.type == I1 else name])
    lower_body(emit, module.kernel.body)
    text = module_text(emit, debug)
    _take_apart(emit)
    return text


def _take_apart(emit: Emitter) -> None:
    """Break the cycles of an emitter that has written its text: what makes registers refers to the emitter, and the registers
    of a loop to themselves.  A kernel has tens of thousands of objects there."""
    for registers in emit.lazies:
        del registers.make
    vars(emit).clear()
