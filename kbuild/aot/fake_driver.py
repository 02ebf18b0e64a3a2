"""The fake driver that knows a project's cubins: for tests of its wheel on machines without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kbuild.aot import toolchain
from kbuild.aot.build.project import BUILD
from kbuild.aot.environment import cache_directory
from kbuild.emulator.driver import FakeDriver
from kbuild.errors import UsageError


def fake_driver_library(
    project: Path, devices: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> Path:
    """The path of a libcuda.so.1 whose devices are of these architectures, and which runs the cubins that the
    project has built.

    It lies in `folder`, by default in the cache, or in the build folder where there is no cache.  Raises
    UsageError where nothing is built, and ToolError without a C compiler.
    """
    build = project / BUILD
    if not any(build.rglob("*.cubin")):
        raise UsageError(f"nothing is built in {build}", help="run kbuild build first")
    cache = cache_directory(environment)
    cc = toolchain.find_cc(environment)
    base = folder or (cache or build.absolute() / ".kbuild") / "stand-in"
    return FakeDriver(devices, builds=[build], folder=base, cc=(cc.path, *cc.arguments)).path
