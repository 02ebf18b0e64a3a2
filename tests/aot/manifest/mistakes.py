"""The mistakes reported of a project's manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.load import load
from kbuild.errors import KbuildError

K = 'kernel "scale": '
"""How messages about the kernel `scale` begin."""


def mistakes(project: Path) -> list[str]:
    """The messages that loading the project's manifest gives, as `line: message; hint`."""
    with pytest.raises(KbuildError) as caught:
        load(project / "kernels.toml", "kernels.toml")
    assert caught.value.exit_code == 2
    found = []
    for error in caught.value.errors():
        assert "\n" not in error.message + error.help
        found.append(
            f"{error.loc.line if error.loc else 0}: {error.message}"
            + (f"; {error.help}" if error.help else "")
        )
    return found
