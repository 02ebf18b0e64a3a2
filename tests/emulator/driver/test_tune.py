"""`kbuild tune` with the real compiler, its own driver calls, and the fake driver's time: one step per
instruction of a warp."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from kbuild.aot.manifest import tuned
from tests.manifests import package_table

ROOT = Path(__file__).parents[3]
MANIFEST = (
    package_table("tuned", "sm_90", version="1")
    + """\
[[kernel]]
name = "{name}"
source = "{name}.py"
grid = {grid}
{rest}
"""
)
ADD = """
[kernel.args]
x = "*{dtype}:16"
y = "*{dtype}:16"
out = "*{dtype}:16"
n = "i64:16"
[kernel.matrix]
dtype = ["fp32", "bf16"]
[[kernel.config]]
BLOCK = 64
num_warps = 4
[kernel.tune]
sizes = { x = "n", y = "n", out = "n" }
candidates = { BLOCK = [64, 512], num_warps = [1, 4] }
[[kernel.tune.bucket]]
values = { n = 512 }
"""
MATMUL = """
[kernel.args]
a = "*fp16:16"
b = "*fp16:16"
c = "*fp16:16"
M = "i32"
N = "i32:16"
K = "i32:16"
stride_am = "i32:16"
stride_ak = "i32:1"
stride_bk = "i32:16"
stride_bn = "i32:1"
stride_cm = "i32:16"
stride_cn = "i32:1"
[[kernel.config]]
BLOCK_M = 64
BLOCK_N = 32
BLOCK_K = 64
GROUP_M = 8
[kernel.tune]
sizes = { a = "M * K", b = "K * N", c = "M * N" }
candidates = { num_warps = [4], BLOCK_N = [64] }
[[kernel.tune.bucket]]
values = { M = 64, N = 64, K = 128, stride_am = 128, stride_ak = 1, stride_bk = 64, stride_bn = 1, stride_cm = 64, stride_cn = 1 }
"""
TICKETS = """
import triton
import triton.language as tl


@triton.jit
def tickets_kernel(counter, total, out, n, BLOCK: tl.constexpr):
    ticket = tl.atomic_add(counter, 1)
    tl.store(out + ticket // n * 0x1000000, 1)  # Beyond `out` unless the counter was 0 before the launch.
    tl.atomic_add(total + tl.arange(0, BLOCK), 1)
"""
TICKETS_TABLE = """
[kernel.args]
counter = "*i32"
total = "*i32"
out = "*i32"
n = "i32"
[kernel.defaults]
BLOCK = 32
num_warps = 4
[kernel.verify]
sizes = { counter = "1", total = "BLOCK", out = "n" }
values = [{ n = 3 }]
zeros = ["counter"]
[kernel.tune]
candidates = { num_warps = [1] }
restore = ["total"]
[[kernel.tune.bucket]]
values = { n = 4 }
"""
RUN = """
import os
import sys
from kbuild.aot.tune import gpu
from kbuild.aot.tune import interleaved
from kbuild.cli import main
from kbuild.emulator.driver import FakeDriver
gpu._CACHE_BYTES, interleaved.MAX_ROUNDS, interleaved.MIN_ROUNDS = 4096, 3, 1
assert main(["tune", "--dry-run", "-q"]) == 0  # The fake driver has to find the PTX of all cubins.
# Late streams, as a GPU's: what is done before all of a batch is asked for cannot be timed.
with FakeDriver(["sm_90"], builds=["build/tune"], streams="late") as driver:
    os.environ["KBUILD_LIBCUDA"] = str(driver.path)
    sys.exit(main(sys.argv[1:]))
"""


def tune(folder: Path, name: str, grid: str, rest: str) -> tuple[str, tuple[tuned.TunedEntry, ...]]:
    """The output of `kbuild tune` for a project of one kernel, and its table."""
    if (ROOT / "kernels" / f"{name}.py").exists():
        shutil.copy(ROOT / "kernels" / f"{name}.py", folder)
    text = MANIFEST.replace("{name}", name).replace("{grid}", grid).replace("{rest}", rest)
    (folder / "kernels.toml").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBUILD_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, "tune"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr, tuned.read(folder / "kernels.tune.toml")


def test_an_elementwise_kernel(tmp_path: Path) -> None:
    said, entries = tune(tmp_path, "vector_add", '["cdiv(n, BLOCK)"]', ADD)
    assert "8 of 8 variants compile, for 2 kinds of calls" in said and "wrong" not in said
    assert [dict(entry.when)["dtype"] for entry in entries] == ["fp32", "bf16"]
    # Fewer warps with more work each execute fewer instructions.
    assert all(dict(entry.config)["BLOCK"] == 512 and entry.us < entry.default_us for entry in entries)


def test_counters_are_zeros_before_every_launch(tmp_path: Path) -> None:
    (tmp_path / "tickets.py").write_text(TICKETS)
    said, entries = tune(tmp_path, "tickets", '["n"]', TICKETS_TABLE)
    assert "wrong" not in said and "CUDA_ERROR" not in said
    [entry] = entries
    assert dict(entry.config)["num_warps"] == 1


def test_wgmmas(tmp_path: Path) -> None:
    said, entries = tune(tmp_path, "matmul", '["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]', MATMUL)
    assert "2 of 2 variants compile" in said and "wrong" not in said and "BLOCK_N=64" in said
    # One program of 64 columns takes fewer instructions than two of 32.
    [entry] = entries
    assert dict(entry.config)["BLOCK_N"] == 64 and entry.us < entry.default_us
