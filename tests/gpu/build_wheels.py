"""Builds the two wheels that the tests of the package run, for machines that have a GPU and no kbuild.

    python tests/gpu/build_wheels.py [FOLDER]        (build/test_wheels by default)

One is the project's own, with cubins for sm_80 and sm_90.  The other holds sm_80 with its PTX alone: on a
newer GPU the driver compiles that, so that what sm_80 runs is tested there as well.  Prints the environment
variables that name them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGE = "kbuild_kernels"


def build(project: Path, folder: Path) -> Path:
    """The wheel of the project in a directory, put into `folder`."""
    subprocess.run(
        [sys.executable, "-m", "kbuild", "build", "-C", project, "-o", folder], cwd=PROJECT, check=True
    )
    wheels = sorted(folder.glob("*.whl"))
    assert len(wheels) == 1, f"one wheel in {folder}, not {len(wheels)}"
    return wheels[0]


def with_sm_80_alone(manifest: str) -> str:
    """The manifest of a package beside the project's own, for the PTX of sm_80."""
    for pattern, line in (
        (f'name = "{PACKAGE}"', f'name = "{PACKAGE}_sm_80"'),
        ("archs = .*", 'archs = ["sm_80+ptx"]'),
    ):
        manifest, count = re.subn(f"^{pattern}$", line, manifest, flags=re.MULTILINE)
        assert count == 1, f"kernels.toml has {count} lines {pattern}"
    return manifest


def main(folder: Path) -> None:
    """Builds both wheels into folders of their own under an absolute path, replacing those of an earlier
    build."""
    for name in ("own", "sm_80"):
        shutil.rmtree(folder / name, ignore_errors=True)
    own = build(PROJECT, folder / "own")
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary)
        shutil.copytree(PROJECT / "kernels", project / "kernels")
        (project / "kernels.toml").write_text(with_sm_80_alone((PROJECT / "kernels.toml").read_text()))
        ptx = build(project, folder / "sm_80")
    print(f"KBUILD_TEST_WHEEL={os.path.relpath(own)} KBUILD_TEST_WHEEL_SM80={os.path.relpath(ptx)}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1] if len(sys.argv) == 2 else PROJECT / "build/test_wheels").resolve())
