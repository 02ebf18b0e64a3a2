"""Finds the layouts that an author of Gluon leaves open, and leaves alone those that he wrote.

Before:  %0: tensor<64xi32, #auto> = tt.make_range {start = 0, end = 64}
         %1: tensor<64xi32, #blocked> = gluon.set_auto_layout %0
After:   %0: tensor<64xi32, #blocked> = tt.make_range {start = 0, end = 64}
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import gpu_pass


@gpu_pass
def resolve_layouts(module: Module, target: object) -> None:
    """Give every value a layout.  Raises CompileError where there is none, or more than one."""
