"""`kbuild run --device`: one kernel on a GPU, on arrays described in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kbuild.aot.verify.one import arguments_from, lines_of
from kbuild.compiler import driver
from kbuild.compiler.interp.loaded import is_pointer
from kbuild.gpu.device import Gpu, LaunchFacts


def launch_one(
    artifact: driver.Artifact, texts: Mapping[str, str], grid: Sequence[int], gpu: Gpu
) -> list[str]:
    """Launch a kernel's cubin on a GPU with arguments as for `run_one`; a line for each array afterwards.

    ToolError where the driver refuses, or the kernel fails.
    """
    types, arguments = arguments_from(artifact, texts)
    kernel = gpu.kernel(artifact.asm["cubin"], LaunchFacts.of_metadata(artifact.metadata))
    arrays = {name: value for name, value in arguments.items() if is_pointer(types[name])}
    buffers = {name: gpu.placed(array) for name, array in arrays.items()}
    addresses = {name: int(buffer.handle) for name, buffer in buffers.items()}
    kernel.launch(gpu.stream, grid, kernel.arguments({**arguments, **addresses}))
    outputs = {name: np.empty_like(array) for name, array in arrays.items()}
    for name, output in outputs.items():
        gpu.download(output, addresses[name])
    return lines_of(types, arguments, outputs)
