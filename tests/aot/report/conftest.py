"""The small library, built once, and its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbuild import cli
from kbuild.aot.build.project import BuildOptions
from kbuild.aot.history.now import Project
from kbuild.aot.report.collect import summary
from tests.aot.report import library


@dataclass(frozen=True)
class Reported:
    """The library and its report."""

    folder: Path
    report: Path
    summary: dict[str, Any]


@pytest.fixture(scope="package")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reported]:
    with library.project(tmp_path_factory.mktemp("library")) as folder:
        library.built(folder)
        assert cli.main(["report", "-q", "-j", "2"]) == 0
        state = Project.of(BuildOptions(project=folder, environment={}, display="kernels.toml"))
        yield Reported(folder, folder / "report.html", summary(state))
