"""What builds cost on this machine: cold processes, a matrix of variants, memory, and where the time goes by
stage.

    python bench/build_cost.py [--json out.json] [--repeat 5]

For each process: wall-clock seconds, CPU seconds including all processes it started, and the largest memory
of any of them.  Of several runs the median; on a busy machine the least CPU time is the figure to
compare.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
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
    "vector_add": [
        "kernels/vector_add.py:vector_add_kernel",
        "-s",
        "x=*fp32:16,y=*fp32:16,out=*fp32:16,n=i32:16",
        "-c",
        "BLOCK=1024",
    ],
    "softmax": [
        "kernels/softmax.py:softmax_kernel",
        "-s",
        "x=*fp16:16,out=*fp16:16,stride_x=i32:16,stride_out=i32:16,n_cols=i32:16",
        "-c",
        "BLOCK=1024",
    ],
    "matmul": [
        "kernels/matmul.py:matmul_kernel",
        "-s",
        "a=*fp16:16,b=*fp16:16,c=*fp16:16,M=i32:16,N=i32:16,K=i32:16,stride_am=i32:16,stride_ak=i32:1,stride_bk=i32:16,"
        "stride_bn=i32:1,stride_cm=i32:16,stride_cn=i32:1",
        "-c",
        "BLOCK_M=128,BLOCK_N=128,BLOCK_K=64,GROUP_M=8",
    ],
    "flash_attention": [
        "kernels/flash_attention.py:flash_attention_kernel",
        "-s",
        "q=*fp16:16,k=*fp16:16,v=*fp16:16,out=*fp16:16,lse=*fp32:16,sm_scale=fp32,"
        "stride_qz=i32:16,stride_qh=i32:16,stride_qn=i32:16,stride_kz=i32:16,stride_kh=i32:16,stride_kn=i32:16,"
        "stride_vz=i32:16,stride_vh=i32:16,stride_vn=i32:16,stride_oz=i32:16,stride_oh=i32:16,stride_on=i32:16,"
        "n_heads=i32:16,n_kv_heads=i32:16,n_ctx_q=i32:16,n_ctx_k=i32:16,n_batch=i32",
        "-c",
        "HEAD_DIM=64,IS_CAUSAL=True,BLOCK_M=128,BLOCK_N=64",
    ],
}


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    compileall.compile_dir(
        ROOT / "kbuild", quiet=2
    )  # As installing does; without it Python compiles kbuild each time.
    rows: dict[str, Any] = {"cores": os.cpu_count()}
    print(
        f"cold `kbuild compile`, {options.repeat} processes each: median seconds, least CPU seconds, largest memory"
    )
    for name, arguments in COLD.items():
        for arch in ("sm_80", "sm_90"):
            rows[f"cold {name} {arch}"] = row = cold(arguments, arch, options.repeat)
            print(f"  {name:16} {arch}   {formatted(row)}")
    print("32 variants of matmul: `kbuild build` with an empty cache, then again, then from the cache")
    for name, row in matrix(options.repeat).items():
        rows[f"matrix {name}"] = row
        print(f"  {name:16}         {formatted(row)}")
    # Last, because a process that has grown counts in the memory of those that it starts.
    print("by stage, in a warm process, ms (least of 5)")
    rows["stages"] = stages()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def formatted(row: dict[str, float]) -> str:
    return f"{row['seconds']:6.3f} s   {row['cpu_seconds']:6.3f} s CPU   {row['peak_mb']:4.0f} MB"


def measured(command: list[str], directory: Path, environment: dict[str, str]) -> dict[str, float]:
    """Runs a process to its end."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }


def together(runs: list[dict[str, float]]) -> dict[str, float]:
    """Several runs as one."""
    return {
        "seconds": statistics.median(run["seconds"] for run in runs),
        "cpu_seconds": min(run["cpu_seconds"] for run in runs),
        "peak_mb": max(run["peak_mb"] for run in runs),
    }


def environment(cache: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "KBUILD_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}


def cold(arguments: list[str], arch: str, repeat: int) -> dict[str, float]:
    """Processes that compile one kernel each."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "kbuild", "compile", *arguments, "--arch", arch, "-o", folder, "-q"]
        return together([measured(command, ROOT, environment(folder)) for _ in range(repeat)])


def stages() -> dict[str, Any]:
    """Seconds by stage of each cold kernel, in this process, after a first compilation."""
    sys.path.insert(0, str(ROOT))
    import kbuild

    table: dict[str, Any] = {}
    for name, (source, _, signature, _, constants) in COLD.items():
        values = {key: eval(value) for key, value in (item.split("=") for item in constants.split(","))}
        types = dict(item.split("=") for item in signature.split(","))
        for arch in ("sm_80", "sm_90"):
            runs = [
                kbuild.compile(str(ROOT / source), signature=types, constexprs=values, target=arch)
                for _ in range(5)
            ]
            times = {stage: min(run.metadata.stage_seconds[stage] for run in runs) for stage in runs[0].asm}
            table[f"{name} {arch}"] = times
            print(
                f"  {name:16} {arch}   "
                + "  ".join(f"{stage} {seconds * 1e3:6.1f}" for stage, seconds in times.items())
            )
    return table


def matrix(repeat: int) -> dict[str, dict[str, float]]:
    """Builds of the 32-variant matrix: the first, one with nothing to do, and one that finds all cubins in
    the cache."""
    runs: dict[str, list[dict[str, float]]] = {"first": [], "again": [], "from the cache": []}
    command = [sys.executable, "-m", "kbuild", "build", "-q"]
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder)
            (project / "kernels").mkdir()
            shutil.copy(ROOT / "kernels" / "matmul.py", project / "kernels")
            (project / "kernels.toml").write_text(MATRIX)
            for name in runs:
                if name == "from the cache":
                    shutil.rmtree(project / "build")
                runs[name].append(measured(command, project, environment(f"{folder}/cache")))
    return {name: together(own) for name, own in runs.items()}


if __name__ == "__main__":
    main()
