"""The page on the fake driver: its example is a project whose tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
from tests.emulator.driver.conftest import ROOT
from tests.manifests import package_table

MANIFEST = (
    package_table("my_kernels", "sm_80", "sm_90")
    + """\
[[kernel]]
name = "scale"
source = "scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*fp32:16", out = "*fp32:16", factor = "fp32", n = "i32" }
config = [{ BLOCK = 512 }]
[[kernel]]
name = "negate"
source = "scale.py"
function = "negate_kernel"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*{dtype}", out = "*{dtype}", n = "i32" }
matrix = { dtype = ["bf16", "fp8e5", "fp8e4nv"] }
config = [{ BLOCK = 512 }]
exclude = [{ dtype = "fp8e4nv", arch = "sm_80" }]
"""
)
KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets // 4 < n // 4  # Four elements at a time.
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


@triton.jit
def negate_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n).to(tl.float32)
    tl.store(out + offsets, (-value).to(out.dtype.element_ty), mask=offsets < n)
"""


EXAMPLES = re.findall(r"```python\n(# (\S+)\n.*?)```", (ROOT / "docs/stand-in.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built project with the tests of the page."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "kernels.toml").write_text(MANIFEST)
    (folder / "scale.py").write_text(KERNEL)
    for code, name in EXAMPLES:
        (folder / name).write_text(code)
    result = build(BuildOptions(project=folder, environment=dict(os.environ)), Progress())
    assert result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(folder)
    return folder


def outside(folder: Path) -> dict[str, str]:
    """The environment of a process that uses the project's package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KBUILD")}
    return environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "HOME": str(folder)}


def passed(environment: dict[str, str], folder: Path, file: str) -> str:
    """The last line of pytest on a file of a project."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_all_examples_of_the_page_are_run_here() -> None:
    text = (ROOT / "docs/stand-in.md").read_text()
    files = ["conftest.py", "test_scale.py", "test_scale_as_it_is.py", "test_with_cuda_core.py"]
    assert [name for _, name in EXAMPLES] == files
    assert text.count("```") == 2 * len(EXAMPLES)


def test_the_first_way_of_the_page(built: Path) -> None:
    assert "4 passed" in (summary := passed(outside(built), built, "test_scale.py")), summary


def test_the_way_with_cuda_core(built: Path) -> None:
    pytest.importorskip("cuda.core")
    assert "1 passed" in (summary := passed(outside(built), built, "test_with_cuda_core.py")), summary


@pytest.mark.parametrize("variable", ["KBUILD_LIBCUDA", "LD_LIBRARY_PATH"])
def test_the_second_way_of_the_page(
    built: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    assert main(["stand-in", "-C", str(built), "--arch", "sm_80"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == "libcuda.so.1" and path.is_relative_to(tmp_path / "cache/stand-in")
    named = str(path if variable == "KBUILD_LIBCUDA" else path.parent)
    assert "1 passed" in (
        summary := passed(outside(built) | {variable: named}, built, "test_scale_as_it_is.py")
    ), summary


NARROW = """
import ml_dtypes, my_kernels, numpy
from kbuild.emulator.driver import FakeDriver

with FakeDriver(["sm_90"], builds=["build"]) as driver:
    import os
    os.environ["KBUILD_LIBCUDA"] = str(driver.path)
    for name, dtype in ("bf16", "bfloat16"), ("fp8e5", "float8_e5m2"), ("fp8e4nv", "float8_e4m3fn"):
        values = numpy.arange(8).astype(getattr(ml_dtypes, dtype))
        x, y = driver.array(values), driver.empty(8, values.dtype)
        my_kernels.negate(x, y, 8, dtype=name)
        print(y.copy_to_host().dtype, (y.copy_to_host() == -values).all())
"""


def test_arrays_of_types_that_numpy_lacks(built: Path) -> None:
    pytest.importorskip("ml_dtypes")
    command = [sys.executable, "-c", NARROW]
    done = subprocess.run(command, cwd=built, env=outside(built), capture_output=True, text=True, check=False)
    assert done.stdout == "bfloat16 True\nfloat8_e5m2 True\nfloat8_e4m3fn True\n", done.stderr


def test_the_fake_driver_is_active_before_the_first_launch_and_after_it(
    tmp_path: Path, libraries: Path
) -> None:
    path = FakeDriver(["sm_80"], folder=libraries).path
    (tmp_path / "a.py").write_text(
        "from kbuild.emulator.driver import active; print(active().path, active() is active())"
    )
    environment = dict(os.environ) | {"KBUILD_LIBCUDA": str(path)}
    run = [sys.executable, str(tmp_path / "a.py")]
    assert (
        subprocess.run(run, env=environment, capture_output=True, text=True, check=False).stdout
        == f"{path} True\n"
    )
    environment["KBUILD_LIBCUDA"] = str(tmp_path / "libcuda.so.1")
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert "KBUILD_LIBCUDA names none" in done.stderr


def test_a_project_without_a_build_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stand-in", "-C", str(tmp_path)]) == 2
    assert "nothing is built in" in capsys.readouterr().err
