"""From ttgir to LLVM text: one handler per operation."""

from kbuild.compiler.lower import atomics, control, debug, elementwise, memory, pointers, shapes, trigonometry
from kbuild.compiler.lower.lowering import lower_module, unhandled_ops

__all__ = [
    "atomics",
    "control",
    "debug",
    "elementwise",
    "lower_module",
    "memory",
    "pointers",
    "shapes",
    "trigonometry",
    "unhandled_ops",
]
