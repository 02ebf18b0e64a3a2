"""GPUs from Python, through cuda.core and cuda.bindings: kernels loaded, launched and timed.

`kbuild.load` is for authors; `kbuild tune`, `kbuild run --device` and tests use the modules.  Packages that kbuild makes do not:
they launch in C.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbuild.compiler.driver import Artifact
    from kbuild.gpu.loaded import LoadedKernel


def load(artifact: Artifact | str | Path, *, device: int | None = None) -> LoadedKernel:
    """A compiled kernel, to be launched: `kbuild.load(artifact)[grid](*arguments, stream=None)`.

    `artifact` is what `kbuild.compile` returns, up to the stage `ptx` at least, or the path of a cubin in a project's build
    folder, with its facts beside it.  It is launched on `device`, an ordinal, by default on that of its first array.

    Raises `ToolError` without the extra `gpu` of kbuild, `UsageError` for an artifact that has no code, or does not say its
    arguments.
    """
    # They take cuda-core, which only those need who launch.
    from kbuild.gpu.loaded import LoadedKernel
    from kbuild.gpu.stored import read_artifact

    return LoadedKernel(read_artifact(artifact) if isinstance(artifact, str | Path) else artifact, device)
