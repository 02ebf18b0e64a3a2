"""pyproject.toml names everything that kbuild's own wheel has to hold."""

from __future__ import annotations

from pathlib import Path

import tomli

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"kbuild": ROOT / "kbuild", "kbuild.templates": ROOT / "templates"}


def test_every_file_of_the_packages_is_in_the_wheel() -> None:
    table = PROJECT["tool"]["setuptools"]
    assert sorted(table["packages"]) == sorted(table["package-data"]) == sorted(FOLDERS)
    assert table["package-dir"] == {"kbuild.templates": "templates"}
    for package, folder in FOLDERS.items():
        named = {path for pattern in table["package-data"][package] for path in folder.glob(pattern)}
        files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert files == named, f"{package}: {sorted(map(str, files ^ named))}"


def test_the_licence_is_in_the_wheel() -> None:
    assert PROJECT["project"]["license-files"] == ["LICENSE"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()
