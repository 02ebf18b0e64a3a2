"""From ttgir to LLVM text: one handler per operation."""

from kbuild.compiler.lower import control
from kbuild.compiler.lower.lowering import lower_module, unhandled_ops

__all__ = ["control", "lower_module", "unhandled_ops"]
