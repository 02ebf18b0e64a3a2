"""Tests on a device; all are skipped where the driver finds none."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from device import Device
from zoo import CASES

import kbuild


def compile_case(name: str, arch: str, ptxas: str | None) -> Any:
    """The artifact of a case, or the error; run in a process of its own."""
    case = CASES[name]
    arguments = case.make(np.random.default_rng(0))
    try:
        return kbuild.compile(
            case.source, signature=case.signature(arguments), constexprs=case.constexprs, target=arch, ptxas=ptxas,
            num_warps=case.num_warps, num_stages=case.num_stages, stop="cubin" if arch == "sm_90" else "ptx",
        )  # fmt: skip
    except kbuild.KbuildError as error:
        return str(error)


@pytest.fixture(scope="session")
def device() -> Device:
    try:
        return Device()
    except (OSError, RuntimeError) as error:
        pytest.skip(f"no GPU: {error}")


@pytest.fixture(scope="session")
def artifacts(device: Device) -> dict[tuple[str, str], Future[Any]]:
    """All cases, compiled by as many processes as there are cores."""
    ptxas = os.environ.get("KBUILD_PTXAS") or shutil.which("ptxas")
    pool = ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    wanted = [(case.name, arch) for case in CASES.values() for arch in case.archs]
    return {(name, arch): pool.submit(compile_case, name, arch, ptxas) for name, arch in wanted}
