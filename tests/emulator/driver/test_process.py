"""The fake driver and processes: found by its path or its name, forks, and drivers that are missing, old or
broken."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from kbuild.emulator.driver import DriverResult, FakeDriver
from tests.emulator.driver.conftest import ROOT, Built, World
from tests.emulator.driver.cuda import Cuda

Make = Callable[..., World]

USE = """\
import sys
import chain
from kbuild.emulator.driver import active
try:
    chain.preload(0)
except chain.DriverError as error:
    print(error)
    sys.exit(3)
import numpy
driver = active()
x, out = driver.array(numpy.ones(64, "f4"), 1), driver.empty(64, "f4", 1)
chain.vector_add(x, x, out, 64)
print(out.copy_to_host().sum(), driver.loads)
"""


def run(built: Built, code: str = USE, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with the package, and these variables besides."""
    paths = os.pathsep.join([str(ROOT), str(built.package.parent)])
    variables = {"PYTHONPATH": paths, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("way", ["KBUILD_LIBCUDA", "LD_LIBRARY_PATH"])
def test_a_process_needs_nothing_but_the_library(built: Built, libraries: Path, way: str) -> None:
    """The library makes the fake driver that is described beside it, by means of the process's Python."""
    path = FakeDriver(["sm_90", "sm_80"], builds=[built.builds], folder=libraries).path
    done = run(built, **{way: str(path if way == "KBUILD_LIBCUDA" else path.parent)})
    assert (done.stdout, done.stderr) == ("128.0 {0: 18, 1: 1}\n", "")


def test_a_library_whose_builds_are_gone_says_so(built: Built, libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(next(built.builds.rglob("*.cubin")).read_bytes())
    (tmp_path / "a.ptx").write_text("")
    path = FakeDriver(builds=[tmp_path], folder=libraries).path
    (tmp_path / "a.ptx").unlink()
    done = run(built, KBUILD_LIBCUDA=str(path))
    assert done.returncode == 3
    assert done.stderr.startswith(
        f"libcuda.so.1 of kbuild: error: {tmp_path} has no cubins with their PTX beside them\n"
    )
    assert "cuInit failed" in done.stdout


def test_a_program_without_python_is_reported(libraries: Path, tmp_path: Path) -> None:
    path = FakeDriver(folder=libraries).path
    (tmp_path / "main.c").write_text(
        "int cuInit(unsigned); int main(void) { return cuInit(0) == 303 ? 0 : 1; }"
    )
    command = ["cc", "main.c", str(path), f"-Wl,-rpath,{path.parent}", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert (
        done.stderr
        == "libcuda.so.1 of kbuild: it stands in for the driver in processes of Python alone, and this is none\n"
    )


def test_the_process_ends_as_it_should(built: Built, libraries: Path) -> None:
    """Calls of the driver after Python has ended do not call Python."""
    code = "import ctypes, atexit\n" + (
        "atexit.register(lambda: print(library.cuCtxSynchronize()))\n"
        "import chain, os\n"
        "chain.preload(0, kernels=['softmax'])\n"
        "library = ctypes.CDLL(os.environ['KBUILD_LIBCUDA'])\n"
    )
    done = run(built, code, KBUILD_LIBCUDA=str(FakeDriver(builds=[built.builds], folder=libraries).path))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"{DriverResult.CUDA_ERROR_DEINITIALIZED}\n",
        "",
    )


def _in_child(call: Callable[[], Any], connection: Any) -> None:
    try:
        connection.send(call())
    except Exception as error:
        connection.send(str(error))


def fork(call: Callable[[], Any]) -> Any:
    """The outcome of a call in a forked process."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(call, there))
    child.start()
    answer = here.recv() if here.poll(30) else "no answer"
    child.join()
    return answer


def test_forks(world: Make) -> None:
    here = world("sm_90")

    def launch() -> list[float]:
        x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
        here.package.launch.vector_add(x, x, out, 64)
        return out.copy_to_host().tolist()

    assert fork(launch) == [2.0] * 64, "before the first launch"
    assert launch() == [2.0] * 64
    assert "this process was forked after CUDA had been initialised in its parent" in fork(launch)
    library = ctypes.CDLL(str(here.driver.path))
    assert fork(lambda: library.cuInit(0)) == DriverResult.CUDA_ERROR_NOT_INITIALIZED
    assert launch() == [2.0] * 64


def refusal(here: World) -> str:
    with pytest.raises(here.package.DriverError) as caught:
        here.package.preload(0)
    return str(caught.value)


def test_a_missing_driver(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("sm_90")
    monkeypatch.setenv("KBUILD_LIBCUDA", "/nowhere/libcuda.so.1")
    assert "the CUDA driver library /nowhere/libcuda.so.1 cannot be loaded" in refusal(here)


def test_a_driver_without_devices(world: Make, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("sm_90")
    here.driver.close()
    with FakeDriver([], folder=libraries) as none:
        monkeypatch.setenv("KBUILD_LIBCUDA", str(none.path))
        text = refusal(here)
    assert "cuInit failed with CUDA_ERROR_NO_DEVICE (100)" in text
    assert "there is no CUDA device, or CUDA_VISIBLE_DEVICES hides it" in text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"version": "9.2"}, "the CUDA driver 9.2"),
        ({"without": ["cuModuleUnload"]}, "has no function cuModuleUnload; kernels need CUDA 11.4 or newer"),
        ({"version": "6.0", "without": ["cuDriverGetVersion"]}, "the CUDA driver unknown"),
    ],
)
def test_a_driver_that_lacks_functions(world: Make, settings: dict[str, Any], text: str) -> None:
    assert text in refusal(world("sm_90", **settings))


def test_a_driver_too_old_for_tma_runs_all_else(world: Make) -> None:
    here = world("sm_90", version="11.8")
    half = here.driver.array(numpy.ones((16, 16), "f2"))
    with pytest.raises(here.package.LaunchError, match="too old for tensor maps; it has to be of CUDA 12"):
        here.package.launch.matmul(half, half, half, 16, 16, 16, 16, 16, 16)
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    here.package.launch.vector_add(x, x, out, 64)
    assert out.copy_to_host().tolist() == [2.0] * 64


def test_a_driver_older_than_the_ptx(world: Make) -> None:
    """A newer device gets PTX, which this driver does not support."""
    here = world("sm_100", version="10.2")
    x = here.driver.array(numpy.ones(64, "f4"))
    with pytest.raises(here.package.DriverError) as caught:
        here.package.launch.vector_add(x, x, x, 64)
    assert caught.value.name == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    assert "the driver knows PTX up to 6.5" in str(caught.value)
    assert "the driver is older than the PTX; update it" in str(caught.value)


def test_a_cubin_whose_ptx_is_not_known(world: Make) -> None:
    here = world("sm_90", builds=[])
    x = here.driver.array(numpy.ones(64, "f4"))
    with pytest.raises(
        here.package.DriverError, match=r"CUDA_ERROR_NO_BINARY_FOR_GPU.*name the folder that it was built in"
    ):
        here.package.launch.vector_add(x, x, x, 64)


def test_two_packages_share_the_driver(world: Make) -> None:
    here = world("sm_90")
    Cuda(here.driver.path)
    x, out = here.driver.array(numpy.ones(64, "f4")), here.driver.empty(64, "f4")
    here.package.launch.vector_add(x, x, out, 64)
    assert [call.name for call in here.driver.calls].count("cuInit") == 2
    assert out.copy_to_host().tolist() == [2.0] * 64
