"""What kernels ask while they are compiled: layouts as linear layouts, bank conflicts, warps."""

from __future__ import annotations

from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.registry import builtin


@builtin("gl")
def num_warps(ctx: BuildContext):
    """Warps that execute this part of the program."""
    return ctx.num_warps


@builtin("gl")
def num_ctas(ctx: BuildContext):
    """Programs that work on one tensor together: 1."""
    return 1
