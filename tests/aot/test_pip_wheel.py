"""`pip wheel .` of a project, by the real compiler: the same bytes for any folder, number of jobs, user and umask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.launcher.compile_once import REAL

ROOT = Path(__file__).parents[2]
MANIFEST = """\
schema = 1
[package]
name = "scaling"
version = "1.0"
archs = ["sm_80", "sm_90"]
[[kernel]]
name = "scale"
source = "kernels/scale.py"
grid = ["cdiv(n, BLOCK)"]
args = { "x, out" = "*{dtype}:16", n = "i32:16?" }
matrix = { dtype = ["fp16", "fp32"] }
config = [{ BLOCK = 256 }]
"""
KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)
"""
PYPROJECT = '[build-system]\nrequires = ["kbuild"]\nbuild-backend = "kbuild.aot.backend"\n'


def wheel_of(project: Path, home: Path, umask: int, **environment: str) -> tuple[str, bytes]:
    """The name and the bytes of the wheel that pip makes for a user with this home, without a cache to take it
    from."""
    texts = {
        "kernels.toml": MANIFEST,
        "kernels/scale.py": KERNEL,
        "pyproject.toml": PYPROJECT,
        "LICENSE": "MIT\n",
    }
    home.mkdir(parents=True)
    mask = os.umask(umask)
    try:
        for name, text in texts.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        pip = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-w", "wheels"]
        known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(home)}
        done = subprocess.run(pip, cwd=project, env={**known, **environment}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        os.umask(mask)
    (wheel,) = (project / "wheels").iterdir()
    return wheel.name, wheel.read_bytes()


def test_two_users_make_the_same_bytes(tmp_path: Path) -> None:
    one = wheel_of(tmp_path / "one", tmp_path / "home/ada", 0o022, MAX_JOBS="1", USER="ada")
    other = wheel_of(
        tmp_path / "a longer folder/of another name",
        tmp_path / "home/grace",
        0o077,
        MAX_JOBS="4",
        USER="grace",
        TZ="Asia/Tokyo",
        LC_ALL="C",
        PYTHONHASHSEED="7",
        **{REAL: "1"},
    )
    assert one == other
    assert (tmp_path / "home/ada/.cache/kbuild").is_dir() and (tmp_path / "home/grace/.cache/kbuild").is_dir()
    again = wheel_of(tmp_path / "two", tmp_path / "home/noor", 0o002, KBUILD_DISABLE_CACHE="1")
    assert again == one
