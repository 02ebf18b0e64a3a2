"""What docs/architecture.md says is needed to add something, done for real on a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KERNEL = "import triton\n\n@triton.jit\ndef nothing(x, n):\n    pass\n"
MANIFEST = """
schema = 1
package = { name = "added", version = "1", archs = ["sm_90"] }

[[kernel]]
name = "nothing"
source = "k.py"
function = "nothing"
grid = ["1"]
args = { x = "*fp32", n = "i32" }
config = [{ unroll_limit = 8 }]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, with a project beside it."""
    shutil.copytree(ROOT / "kbuild", tmp_path / "kbuild", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "k.py").write_text(KERNEL)
    (tmp_path / "kernels.toml").write_text(MANIFEST)
    return tmp_path


def kbuild(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        [sys.executable, "-m", "kbuild", *words], cwd=tree, env=environment, capture_output=True, text=True
    )


def test_a_compile_option_is_one_field(tree: Path) -> None:
    """Manifest, names of variants, command line, IR and facts have it, and values out of its range are
    refused everywhere."""
    assert "config[0].unroll_limit: the kernel has no such parameter" in kbuild(tree, "list").stderr
    file = tree / "kbuild/options.py"
    field = '    unroll_limit: int = option(4, "iterations to unroll at most", limits=(1, 64), tag="u{}")\n'
    before, after = file.read_text().split("    enable_fp_fusion: bool")
    file.write_text(f"{before}{field}    enable_fp_fusion: bool{after}")
    assert kbuild(tree, "list").stdout.split()[0] == "nothing.sm_90.x=any.w4s3u8"
    command = ("compile", "k.py:nothing", "-s", "x=*fp32,n=i32", "--emit", "ttir")
    assert "unroll_limit = 8" in kbuild(tree, *command, "--unroll-limit", "8").stdout
    assert "unroll_limit" not in kbuild(tree, *command).stdout
    assert (
        "argument --unroll-limit: expected 1 to 64, found '65'"
        in kbuild(tree, *command, "--unroll-limit", "65").stderr
    )
    (tree / "kernels.toml").write_text(MANIFEST.replace("= 8", "= 65"))
    assert "config[0].unroll_limit: expected 1 to 64, found the int 65" in kbuild(tree, "list").stderr
