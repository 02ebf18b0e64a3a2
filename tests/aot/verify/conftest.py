"""The small project, with launches to verify."""

from __future__ import annotations

from pathlib import Path

import pytest

TABLE = """
[kernel.verify]
sizes = { x = "n", y = "n" }
values = [{ n = 0 }, { n = 1600 }, { n = 33 }]
"""


@pytest.fixture
def verified(project: Path) -> Path:
    """The project, with a table `[kernel.verify]`."""
    file = project / "kernels.toml"
    file.write_text(file.read_text() + TABLE)
    return project
