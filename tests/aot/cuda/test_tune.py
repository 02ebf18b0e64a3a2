"""What `kbuild tune` tries of a kernel in CUDA C++: its blocks and shared memory follow from the values tried."""

from __future__ import annotations

from pathlib import Path

from kbuild.aot.manifest.load import load
from kbuild.aot.tune.tasks import short, tasks
from tests.aot.cuda.conftest import edit

TUNE = """\
[kernel.tune]
candidates = { TILE = [8, 16, 32, 64] }
sizes = { a = "M * K", b = "K * N", c = "M * N" }
bucket = [{ values = { M = 64, N = 64, K = 64, alpha = 1.0 } }]
[kernel.verify]
reference = "reference.py:matmul"
"""


def test_candidates_have_their_own_blocks(project: Path) -> None:
    manifest = project / "kernels.toml"
    edit(manifest, '[kernel.verify]\nreference = "reference.py:matmul"\n', TUNE)
    task, *_ = tasks(load(manifest), ("sm_90",), ("matmul",))
    assert [short(variant) for variant in task.candidates] == [
        "TILE=8 t8x8m512",
        "TILE=16 t16x16m2048",
        "TILE=32 t32x32m8192",  # One of 64 would have 4,096 threads.
    ]
