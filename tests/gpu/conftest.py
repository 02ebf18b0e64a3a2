"""Tests on a device; all are skipped where the driver finds none.

Those of the package take its wheels, which build_wheels.py makes, from the environment, and torch.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from zoo import CASES

import kbuild


def compile_case(name: str, arch: str, ptxas: str | None) -> Any:
    """The artifact of a case, or the error; run in a process of its own."""
    case = CASES[name]
    arguments = case.make(np.random.default_rng(0))
    try:
        return kbuild.compile(
            case.source,
            signature=case.signature(arguments),
            constexprs=case.constexprs,
            target=arch,
            ptxas=ptxas,
            options=case.options(arch),
            stop="cubin" if arch == "sm_90" else "ptx",
        )
    except kbuild.KbuildError as error:
        return str(error)


@pytest.fixture(scope="session")
def device() -> Any:
    try:
        from device import Device  # It takes cuda-core.

        return Device()
    except kbuild.KbuildError as error:
        pytest.skip(f"no GPU: {error.message}")


@pytest.fixture(autouse=True)
def shared_memory() -> Iterator[None]:
    """Gives back what torch keeps of a test's memory, which the processes of pytest-xdist share."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > _KEPT:
        torch.cuda.empty_cache()


@pytest.fixture(scope="session")
def artifacts(device: Any) -> dict[tuple[str, str], Future[Any]]:
    """All cases, compiled by as many processes as there are cores."""
    ptxas = os.environ.get("KBUILD_PTXAS") or shutil.which("ptxas")
    pool = ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    wanted = [(case.name, arch) for case in CASES.values() for arch in case.archs]
    return {(name, arch): pool.submit(compile_case, name, arch, ptxas) for name, arch in wanted}


_KEPT = 2 << 30
"""Bytes that a process may keep between tests."""

WHEELS = {"own": "KBUILD_TEST_WHEEL", "sm_80": "KBUILD_TEST_WHEEL_SM80"}
"""The wheels that are tested, and the variables that name their files."""


@pytest.fixture(scope="session", params=WHEELS)
def package_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's folder, unpacked from its wheel as pip does it."""
    variable = WHEELS[request.param]
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set; tests/gpu/build_wheels.py builds the wheel it names")
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU: torch finds no CUDA device")
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(os.environ[variable]) as wheel:
        wheel.extractall(site)
    return next(site.glob("*/dispatch.py")).parent


@pytest.fixture(scope="session")
def package(package_folder: Path) -> ModuleType:
    """The installed package."""
    sys.path.insert(0, str(package_folder.parent))
    return importlib.import_module(package_folder.name)


@pytest.fixture
def fresh_package(package_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A copy of the package under another name, in which nothing is loaded yet."""
    name = f"fresh_{abs(hash(tmp_path)) % 10**8}"
    shutil.copytree(package_folder, tmp_path / name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(name)
