"""What `[kernel.verify]` names for results to be compared with."""

from __future__ import annotations

from pathlib import Path

from kbuild.aot.artifact import sources
from kbuild.aot.identity import digest
from kbuild.aot.manifest.functions.python import python_functions
from kbuild.aot.manifest.model import Kernel
from kbuild.aot.verify.verdict import ReferenceTask
from kbuild.errors import UsageError
from kbuild.options import CUDA


def reference_task(project: Path, kernel: Kernel) -> ReferenceTask | None:
    """What the manifest names for results to be compared with.  Raises `UsageError` where a kernel needs it and has none."""
    verify = kernel.verify
    if verify is None or not verify.reference:
        if kernel.language == CUDA:
            help = (
                "add [kernel.verify] with reference, sizes and values, or say why the kernel is `unverified`"
            )
            raise UsageError(
                f'kernel "{kernel.name}" is in CUDA C++, and nothing says what its results should be',
                help=help,
            )
        return None
    file, _, function = verify.reference.partition(":")
    is_kernel = python_functions(project / file)[function].is_jit
    constexprs, grid = verify.reference_constexprs, verify.reference_grid
    made_of = digest(sources.digests([file], project))
    return ReferenceTask(str(project / verify.reference), is_kernel, constexprs, grid, made_of)
