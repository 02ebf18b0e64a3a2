"""Builds of the small project, for some architectures and for all."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build

ROOT = Path(__file__).parents[3]


def options_of(project: Path) -> BuildOptions:
    """The options of a build by the fake compiler, without a cache."""
    return BuildOptions(
        project=project,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        compiler="tests.aot.build.fake_compiler:compile",
        source_digest="tests.aot.build.fake_compiler:source_digest",
    )


def wheel_of(options: BuildOptions, *archs: str) -> Path:
    """The wheel of a build for these architectures, or all."""
    result = build(replace(options, archs=archs), Progress())
    assert not result.failures and result.wheel is not None, result.failures
    return result.wheel
