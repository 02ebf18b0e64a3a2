"""The page on the stand-in: its example is a project whose tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kbuild.aot.build import Options, build
from kbuild.aot.progress import Progress
from kbuild.cli import main
from tests.driver.conftest import ROOT
from tests.manifests import package_table

MANIFEST = package_table("my_kernels", "sm_80", "sm_90") + """\
[[kernel]]
name = "scale"
source = "scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { x = "*fp32", out = "*fp32", factor = "fp32", n = "i32" }
config = [{ BLOCK = 128 }]
"""
KERNEL = '''\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A built project with the tests of the page."""
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    (tmp_path / "scale.py").write_text(KERNEL)
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/stand-in.md").read_text(), re.DOTALL):
        (tmp_path / code.split()[1]).write_text(code)
    result = build(Options(project=tmp_path, environment=dict(os.environ)), Progress())
    assert result.wheel is not None
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_both_ways_of_the_page(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KBUILD")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(project)]), "HOME": str(project)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout

    monkeypatch.setenv("KBUILD_CACHE_DIR", str(project / "cache"))
    assert main(["stand-in", "-C", str(project), "--arch", "sm_80"]) == 0
    path = capsys.readouterr().out.strip()
    assert Path(path).name == "libcuda.so.1" and Path(path).is_relative_to(project / "cache/stand-in")
    code = "import my_kernels, kbuild.emulator.driver as d; print(my_kernels.preload(0), d.active().path)"
    variables = environment | {"KBUILD_LIBCUDA": path}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout == f"1 {path}\n", done.stderr


def test_a_project_without_a_build_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stand-in", "-C", str(tmp_path)]) == 2
    assert "nothing is built in" in capsys.readouterr().err
