"""A wheel with some of the manifest's architectures has a version of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from kbuild.aot.artifact.partial import partial_package
from kbuild.aot.manifest.model import Package
from tests.aot.artifact.partial_wheels import options_of, wheel_of

PACKAGE = Package("demo", "1.0", ("sm_80", "sm_90", "sm_100"), ptx_archs=("sm_90",))


@pytest.mark.parametrize(
    "version, archs, expected",
    [
        ("1.0", ("sm_90",), "1.0+sm90"),
        ("1.0", ("sm_100", "sm_80"), "1.0+sm80.sm100"),
        ("1.0rc1+cu13", ("sm_80",), "1.0rc1+cu13.sm80"),
        ("1.0", ("sm_80", "sm_90", "sm_100"), "1.0"),
    ],
)
def test_its_local_label_names_the_architectures(version: str, archs: tuple[str, ...], expected: str) -> None:
    partial = partial_package(replace(PACKAGE, version=version), archs)
    assert partial.version == expected == str(Version(expected))
    assert partial.archs == tuple(arch for arch in PACKAGE.archs if arch in archs)
    assert partial.ptx_archs == (("sm_90",) if "sm_90" in archs else ())


def test_two_architectures_wheels_lie_side_by_side(project: Path) -> None:
    options = options_of(project)
    labels = {("sm_80",): "+sm80", ("sm_90",): "+sm90", ("sm_90", "sm_80"): "", (): ""}
    wheels = {archs: wheel_of(options, *archs) for archs in labels}
    assert {file.name for file in (project / "dist").iterdir()} == {file.name for file in wheels.values()}
    for archs, wheel in wheels.items():
        version = str(parse_wheel_filename(wheel.name)[1])
        assert version == "0.1.0" + labels[archs]
        with zipfile.ZipFile(wheel) as archive:
            metadata = archive.read(f"demo_kernels-{version}.dist-info/METADATA").decode()
            module = archive.read("demo_kernels/__init__.py").decode()
        assert f"\nVersion: {version}\n" in metadata
        assert f"NVIDIA GPU ({archs[0] if len(archs) == 1 else 'sm_80 or sm_90'})" in metadata
        assert f"__version__ = '{version}'\n" in module


def test_the_order_of_the_flags_does_not_matter(project: Path) -> None:
    options = options_of(project)
    assert wheel_of(options, "sm_90", "sm_80").read_bytes() == wheel_of(options).read_bytes()


def test_installers_say_that_one_replaces_the_other(project: Path, tmp_path: Path) -> None:
    """The second of two installations counts, and says so; what is there can be asked for by its version."""
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(site)], check=True)
    for arch, label in (("sm_90", "sm90"), ("sm_80", "sm80")):
        wheel = str(wheel_of(options_of(project), arch))
        pip = [sys.executable, "-m", "pip", f"--python={site}/bin/python", "install", "--no-index", wheel]
        said = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
        assert f"Successfully installed demo-kernels-0.1.0+{label}\n" in said
    assert re.search(r"Successfully uninstalled demo.kernels-0\.1\.0\+sm90\n", said)
