"""Tests that speak to the driver through cuda.bindings or cuda.core: each runs in a process of its own, where that driver
is the fake one.  What a process has opened stays with it, and other tests have fake drivers of other kinds."""

from __future__ import annotations

import functools
import importlib
import os
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

from kbuild.emulator.driver import FakeDriver


def on_fake_gpu(
    *devices: str, environment: Mapping[str, str] | None = None, **settings: Any
) -> Callable[[Callable[[FakeDriver], None]], Callable[[Path], None]]:
    """A test that gets the fake driver of its process; `settings` are those of `FakeDriver`, and `environment` is what
    the process has besides."""

    def decorate(function: Callable[[FakeDriver], None]) -> Callable[[Path], None]:
        @functools.wraps(function)
        def test(tmp_path: Path) -> None:
            pytest.importorskip("cuda.core", reason="cuda-core is not installed: pip install 'kbuild[gpu]'")
            place = function.__module__, function.__name__
            with ProcessPoolExecutor(1, mp_context=_server()) as pool:
                run = pool.submit(
                    _run, place, devices or ("sm_90",), settings, dict(environment or {}), tmp_path
                )
            failure, reason = run.result()
            if reason:
                pytest.skip(reason)
            if failure:
                pytest.fail(failure, pytrace=False)

        setattr(test, "body", function)  # noqa: B010  functions have no such attribute by their type.
        del test.__wrapped__  # pytest would ask for the arguments of that.
        return test

    return decorate


@functools.cache
def _server() -> BaseContext:
    """A process that others are forked from: it has imported what they need, and opened no driver."""
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["numpy", "kbuild.emulator.driver", "kbuild.compiler.driver", "cuda.core", "pytest"]
    )
    return context


def _run(
    place: tuple[str, str],
    devices: tuple[str, ...],
    settings: dict[str, Any],
    environment: dict[str, str],
    folder: Path,
) -> tuple[str, str]:
    """In the process: run the body of the test; how it failed, and why it was skipped, empty if it was not."""
    os.environ.update(environment)
    os.chdir(folder)
    module, name = place
    with FakeDriver(devices, folder=folder.parent / "libraries", **settings) as driver:
        os.environ["KBUILD_LIBCUDA"] = str(driver.path)
        try:
            getattr(importlib.import_module(module), name).body(driver)
        except pytest.skip.Exception as skipped:
            return "", str(skipped)
        except BaseException:  # pytest's own are not derived from Exception, and few can be passed on.
            return traceback.format_exc(), ""
    return "", ""
