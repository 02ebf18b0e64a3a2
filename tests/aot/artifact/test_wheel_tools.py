"""What the tools of PyPI and of manylinux say of a wheel: the metadata is one that PyPI shows, the launcher keeps to the
tag of its platform, and to Python's limited API.

The tools are installed with the extra `test`; these tests fail without them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.aot.artifact.platforms import MACHINES, parse_platform, this_machine
from kbuild.aot.toolchain import find_cc
from kbuild.errors import ToolError
from tests.aot.artifact.partial_wheels import options_of, wheel_of
from tests.aot.shards.test_merge import change


@pytest.fixture
def wheel(project: Path) -> Path:
    """A wheel of the fake compiler, whose launcher is real."""
    change(project / "kernels.toml", "[package]", '[package]\nsummary = "Demo"\nlicense = "MIT"')
    (project / "LICENSE").write_text("MIT\n")
    return wheel_of(options_of(project))


def said(*words: str) -> str:
    """What a tool prints; the test fails if the tool does, or is not there."""
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_twine_finds_nothing_that_pypi_would_refuse(project: Path, wheel: Path) -> None:
    partial = wheel_of(options_of(project), "sm_90")
    assert said("twine", "check", "--strict", str(wheel), str(partial)).count("PASSED") == 2
    (project / "README.md").write_text("# Demo\n\nKernels.\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["kbuild"]\nbuild-backend = "kbuild.aot.backend"\n'
        '[project]\nname = "demo"\nreadme = "README.md"\ndynamic = ["version"]\n'
    )
    assert "PASSED" in said("twine", "check", "--strict", str(wheel_of(options_of(project))))


def test_auditwheel_agrees_with_the_tag(wheel: Path) -> None:
    text = said("auditwheel", "show", str(wheel))
    tag = wheel.stem.rpartition("-")[2]
    assert tag.startswith("manylinux_2_") and f'consistent with the following platform tag: "{tag}"' in text
    assert "system-provided shared libraries: libc.so.6 with versions" in text


def test_abi3audit_finds_nothing_outside_the_limited_api(wheel: Path) -> None:
    text = said("abi3audit", "--strict", "--summary", str(wheel))
    assert "2 extensions scanned; 0 ABI version mismatches and 0 ABI violations" in text


def test_so_it_is_of_a_wheel_for_another_machine(project: Path, wheel: Path) -> None:
    other = next(machine for machine in MACHINES if machine != this_machine())
    try:
        find_cc({"PATH": "/usr/bin:/usr/local/bin"}, parse_platform(other))
    except ToolError:
        pytest.skip(f"no C compiler for {other}: pip install ziglang")
    options = options_of(project)
    environment = {**options.environment, "ZIG_GLOBAL_CACHE_DIR": str(project / "zig")}
    foreign = wheel_of(replace(options, platform=f"manylinux_2_28_{other}", environment=environment))
    assert f'"manylinux_2_17_{other}"' in said("auditwheel", "show", str(foreign))
    assert "0 ABI violations" in said("abi3audit", "--strict", "--summary", str(foreign))
    assert "PASSED" in said("twine", "check", "--strict", str(foreign))
