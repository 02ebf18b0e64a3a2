"""`tl.extra.cuda.libdevice`: functions made of operations, and those that are one instruction."""

from kbuild.compiler.semantic.libdevice import functions, instructions

__all__ = ["functions", "instructions"]
