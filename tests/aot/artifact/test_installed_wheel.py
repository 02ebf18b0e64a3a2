"""A wheel where only Python and numpy are installed: no driver, compiler or torch, and no writable folder.

The wheel is a real one, of two kernels; it is installed as pip does it, by unpacking, and used by another
process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from kbuild.aot.build.progress import Progress
from kbuild.aot.build.project import BuildOptions, build
from tests.aot.conftest import KERNEL
from tests.manifests import package_table

MANIFEST = (
    package_table("two_kernels", "sm_90+ptx")
    + """\
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
[kernel.args]
x = "*fp32"
y = "*fp32"
n = "i32"
[kernel.matrix]
NEGATE = [false, true]
[[kernel.config]]
BLOCK = 256

[[kernel]]
name = "row_sums"
source = "kernels/row_sums.py"
grid = ["n_rows"]
[kernel.args]
x = "*fp16:16"
out = "*fp32"
n_cols = "i32"
[kernel.grid_args]
n_rows = "i32"
[[kernel.config]]
when = { n_cols = "<= 128" }
BLOCK = 128
"""
)

ROW_SUMS = '''\
import triton
import triton.language as tl


@triton.jit
def row_sums_kernel(x, out, n_cols, BLOCK: tl.constexpr):
    """The sum of each row."""
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * n_cols + columns, mask=columns < n_cols, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(values.to(tl.float32), axis=0))
'''

PRELUDE = """\
import sys
writes = []
def watch(event, arguments):
    if event == "open" and (isinstance(arguments[1], str) and set(arguments[1]) & set("wax+") or (arguments[2] or 0) & 3):
        writes.append(str(arguments[0]))
    if event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "subprocess.Popen", "os.system"):
        writes.append(event)
sys.addaudithook(watch)
"""

USE = """\
import two_kernels
modules = sorted(name.partition(".")[0] for name in sys.modules)
def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error), isinstance(error, two_kernels.LaunchError)
import numpy
array = numpy.zeros(100, numpy.float32)
errors = {
    "address": error_of(lambda: two_kernels.scale(0x1000, 0x2000, 100, NEGATE=False)),
    "array": error_of(lambda: two_kernels.scale(array, array, 100, NEGATE=False)),
    "preload": error_of(lambda: two_kernels.preload(0)),
    "mistake": error_of(lambda: two_kernels.scale(0x1000, 0x2000, NEGATE=False)),
    "empty": error_of(lambda: two_kernels.row_sums(0, 0, 4, grid=(0,))),
}
two_kernels.explain("scale", array, array, 100, NEGATE=True, arch="sm_90")
two_kernels.explain(two_kernels.row_sums, 0, 8, 200, 7, arch="sm_100")
with open("/proc/self/maps") as maps:
    libraries = sorted({line.split("/")[-1].strip() for line in maps if ".so" in line})
import json
print(json.dumps({"modules": modules, "errors": errors, "libraries": libraries, "writes": writes}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, by kbuild's own compiler."""
    project = tmp_path_factory.mktemp("two")
    (project / "kernels").mkdir()
    (project / "kernels/scale.py").write_text(KERNEL)
    (project / "kernels/row_sums.py").write_text(ROW_SUMS)
    (project / "kernels.toml").write_text(MANIFEST)
    result = build(BuildOptions(project=project, environment=dict(os.environ)), Progress())
    assert not result.failures and result.wheel is not None
    return result.wheel


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder with the unpacked wheel, which is not writable."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    folders = [site, *(path for path in site.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield site
    for folder in folders:
        folder.chmod(0o755)


def contents(*folders: Path) -> dict[str, str]:
    """Everything under the folders, with the digests of files."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in paths
    }


@pytest.fixture
def used(installed: Path, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """What a process printed and found that has Python, numpy and the package, and an environment of empty
    folders."""
    for name in ("libraries", "home", "work"):
        (tmp_path / name).mkdir()
    for package in Path(numpy.__file__).parents[1].glob("numpy*"):
        (tmp_path / "libraries" / package.name).symlink_to(package)
    folders = [str(tmp_path / "home")] * 3
    environment = {
        "KBUILD_LIBCUDA": "/nowhere/libcuda.so.1",
        **dict(zip(("HOME", "TMPDIR", "XDG_CACHE_HOME"), folders)),
    }
    code = f"{PRELUDE}sys.path += [{str(installed)!r}, {str(tmp_path / 'libraries')!r}]\n{USE}"
    before = contents(installed)
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert contents(installed) == before and contents(tmp_path / "home", tmp_path / "work") == {}, (
        "files were made"
    )
    printed, _, found = done.stdout.rstrip().rpartition("\n")
    return printed, json.loads(found)


def test_it_takes_python_alone_and_writes_nothing(used: tuple[str, dict[str, Any]]) -> None:
    _, found = used
    standard = set(sys.stdlib_module_names) | {"__main__"}
    assert set(found["modules"]) - standard == {"two_kernels"}, (
        "importing it imports the standard library alone"
    )
    assert not set(found["modules"]) & {"ctypes", "json", "hashlib", "dataclasses", "subprocess"}, (
        "and little of that"
    )
    assert not [
        name for name in found["libraries"] if name.startswith(("libcuda", "libnv", "libLLVM", "libtorch"))
    ]
    assert found["writes"] == []


def test_a_launch_says_what_is_missing(used: tuple[str, dict[str, Any]]) -> None:
    errors = used[1]["errors"]
    for call in ("address", "preload"):
        name, text, is_launch_error = errors[call]
        assert (name, is_launch_error) == ("DriverError", True)
        assert "the CUDA driver library /nowhere/libcuda.so.1 cannot be loaded" in text
        assert "launching kernels takes an NVIDIA GPU and its driver: install the driver" in text
    assert errors["array"][:2] == ["ValueError", "scale(): x is not on a CUDA device"]
    assert errors["mistake"][:2] == ["TypeError", "scale() is missing the argument 'n'"]
    assert errors["empty"][0] == "DriverError", "which device is meant is the driver's to say"


def test_explain_needs_no_device(used: tuple[str, dict[str, Any]]) -> None:
    lines = used[0].splitlines()
    assert lines[0] == "scale(x, y, n, *, NEGATE, stream=None, grid=None) on sm_90"
    taken = "  sm_90 NEGATE=True BLOCK=256 SCALE=2.0 num_warps=4 num_stages=3: taken"
    assert [line for line in lines if line.endswith(": taken")] == [taken]
    assert any(line.startswith("grid (1, 1, 1), 128 threads, 0 bytes of shared memory, ") for line in lines)
    row = "sm_90+ptx BLOCK=128 num_warps=4 num_stages=3 x:16 if n_cols <= 128"
    assert f"  {row}: no: n_cols <= 128 does not hold (n_cols = 200)" in lines


def test_the_wheel_holds_nothing_but_the_package(installed: Path) -> None:
    names = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    assert {name.partition("/")[0] for name in names} == {"two_kernels", "two_kernels-1.0.dist-info"}
    assert not [name for name in names if name.endswith((".cubin", ".ptx", ".c", ".toml", ".pyc"))]
    metadata = (installed / "two_kernels-1.0.dist-info/METADATA").read_text()
    assert "Requires-Dist" not in metadata
