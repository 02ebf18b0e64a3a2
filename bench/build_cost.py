"""What builds cost on this machine: cold processes, a matrix of variants, memory, and where the time goes by stage.

    python bench/build_cost.py [--json out.json]

Compares with nothing; the peers' figures on the same kind of machine are in the README.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

MATRIX = """
schema = 1
[package]
name = "matrix"
version = "1"
archs = ["sm_80", "sm_90"]
[[kernel]]
name = "matmul"
source = "kernels/matmul.py"
grid = ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]
[kernel.args]
a = "*{dtype}:16"
b = "*{dtype}:16"
c = "*{dtype}:16"
M = "i32:16"
N = "i32:16"
K = "i32:16"
stride_am = "i32:16"
stride_ak = "i32:1"
stride_bk = "i32:16"
stride_bn = "i32:1"
stride_cm = "i32:16"
stride_cn = "i32:1"
[kernel.matrix]
dtype = ["fp16", "bf16"]
BLOCK_M = [64, 128]
BLOCK_N = [64, 128]
BLOCK_K = [32, 64]
[[kernel.config]]
GROUP_M = 8
num_warps = 4
num_stages = 3
"""

COLD = {
    "vector_add": ["kernels/vector_add.py:vector_add_kernel", "-s", "x=*fp32:16,y=*fp32:16,out=*fp32:16,n=i32:16",
                   "-c", "BLOCK=1024"],
    "softmax": ["kernels/softmax.py:softmax_kernel", "-s",
                "x=*fp16:16,out=*fp16:16,stride_x=i32:16,stride_out=i32:16,n_cols=i32:16", "-c", "BLOCK=1024"],
    "matmul": ["kernels/matmul.py:matmul_kernel", "-s",
               "a=*fp16:16,b=*fp16:16,c=*fp16:16,M=i32:16,N=i32:16,K=i32:16,stride_am=i32:16,stride_ak=i32:1,stride_bk=i32:16,"
               "stride_bn=i32:1,stride_cm=i32:16,stride_cn=i32:1", "-c", "BLOCK_M=128,BLOCK_N=128,BLOCK_K=64,GROUP_M=8"],
    "flash_attention": ["kernels/flash_attention.py:flash_attention_kernel", "-s",
                        "q=*fp16:16,k=*fp16:16,v=*fp16:16,out=*fp16:16,lse=*fp32:16,sm_scale=fp32,stride_z=i32:16,stride_h=i32:16,"
                        "stride_n=i32:16,n_heads=i32:16,n_ctx=i32:16", "-c", "HEAD_DIM=64,IS_CAUSAL=True,BLOCK_M=128,BLOCK_N=64"],
}  # fmt: skip


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rows: dict[str, Any] = {"cores": os.cpu_count()}
    print(f"cold `kbuild compile`, median of {options.repeat} processes, an empty cache")
    for name, arguments in COLD.items():
        for arch in ("sm_80", "sm_90"):
            seconds, peak = cold(arguments, arch, options.repeat)
            rows[f"cold {name} {arch}"] = {"seconds": seconds, "peak_mb": peak}
            print(f"  {name:16} {arch}   {seconds:6.3f} s   {peak:5.0f} MB")
    print("by stage, in a warm process, ms (median of 5)")
    rows["stages"] = stages()
    print("32 variants of matmul, `kbuild build` with an empty cache, then again")
    first, second = matrix()
    rows["matrix"] = {"build_seconds": first, "again_seconds": second}
    print(f"  {first:6.2f} s   again {second:6.3f} s")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def cold(arguments: list[str], arch: str, repeat: int) -> tuple[float, float]:
    """Median seconds and largest peak memory (MB) of whole processes."""
    seconds = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "KBUILD_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-m", "kbuild", "compile", *arguments, "--arch", arch, "-o", folder, "-q"]
            started = time.perf_counter()
            subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def stages() -> dict[str, Any]:
    """Seconds by stage of each cold kernel, in this process, after a first compilation."""
    sys.path.insert(0, str(ROOT))
    import kbuild

    table: dict[str, Any] = {}
    for name, (source, _, signature, _, constants) in COLD.items():
        values = {key: eval(value) for key, value in (item.split("=") for item in constants.split(","))}
        types = dict(item.split("=") for item in signature.split(","))
        for arch in ("sm_80", "sm_90"):
            runs = [kbuild.compile(str(ROOT / source), signature=types, constexprs=values, target=arch) for _ in range(5)]
            times = {stage: statistics.median(run.metadata.stage_seconds[stage] for run in runs) for stage in runs[0].asm}
            table[f"{name} {arch}"] = times
            print(f"  {name:16} {arch}   " + "  ".join(f"{stage} {seconds * 1e3:6.1f}" for stage, seconds in times.items()))
    return table


def matrix() -> tuple[float, float]:
    """Seconds of a build of the 32-variant matrix, and of one with nothing to do."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels").mkdir()
        (Path(folder) / "kernels" / "matmul.py").write_text((ROOT / "kernels" / "matmul.py").read_text())
        (Path(folder) / "kernels.toml").write_text(MATRIX)
        environment = {**os.environ, "KBUILD_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(ROOT)}
        times = []
        for _ in range(2):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-m", "kbuild", "build", "-q"], cwd=folder, env=environment, check=True)
            times.append(time.perf_counter() - started)
    return times[0], times[1]


if __name__ == "__main__":
    main()
