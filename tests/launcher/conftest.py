"""Fixtures: the example package, compiled once, and copies of it over copies of the fake driver."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.aot.artifact import rendering
from kbuild.aot.build.launcher import build_launcher
from tests.launcher.example_package import HERE, Driver, World, example_table, fake_torch, write_archives


@pytest.fixture(scope="session")
def built_package(tmp_path_factory) -> Path:
    """The example package, compiled once; returns the directory for the path."""
    root = tmp_path_factory.mktemp("site")
    table, rows = example_table()
    rendering.render(root / "example", table)
    build_launcher(root / "example")
    write_archives(root / "example", rows)
    return root


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory) -> Path:
    """The fake libcuda.so.1."""
    library = tmp_path_factory.mktemp("driver") / "libfakecuda.so"
    source = HERE / "fake_libcuda.c"
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-o", library, source, "-lpthread"], check=True
    )
    return library


@pytest.fixture
def world(built_package, fake_driver, tmp_path, monkeypatch):
    """Copies of package and driver, without state from other tests."""
    name = f"example_{abs(hash(tmp_path)) % 10**8}"
    shutil.copytree(built_package / "example", tmp_path / name)
    library = tmp_path / "libcuda_copy.so"
    shutil.copy(fake_driver, library)
    torch = fake_torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("KBUILD_LIBCUDA", str(library))
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "90 80 86")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield World(importlib.import_module(name), Driver(library), torch)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
