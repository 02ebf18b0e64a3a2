"""What a kernel is compiled to depends on nothing but what is asked for: not on what the process compiled
before it, as the workers of a build do one variant after another, and not on the seed of Python's hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import hashlib, sys
import kbuild

types = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp16:16", "M": "i32", "N": "i32:16", "K": "i32:16", "stride_am": "i32:16",
         "stride_ak": "i32:1", "stride_bk": "i32:16", "stride_bn": "i32:1", "stride_cm": "i32:16", "stride_cn": "i32:1"}
row = {"x": "*fp16:16", "out": "*fp16:16", "stride_x": "i64", "stride_out": "i64", "n_cols": "i32"}
asked = {
    "small": ("matmul.py:matmul_kernel", types, {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}, "sm_80"),
    "large": ("matmul.py:matmul_kernel", types, {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}, "sm_90"),
    "rows": ("softmax.py:softmax_kernel", row, {"BLOCK": 512}, "sm_90"),
}
for name in sys.argv[1:]:
    source, signature, constants, target = asked[name]
    artifact = kbuild.compile(f"kernels/{source}", signature=signature, constexprs=constants, target=target, stop="ptx")
    print(name, hashlib.sha256(artifact.asm["ptx"].encode()).hexdigest())
"""


def test_order_and_hash_seed_do_not_matter() -> None:
    def compiled(seed: str, *names: str) -> set[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM, *names]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
        return set(done.stdout.splitlines())

    first = compiled("1", "small", "large", "rows", "small")
    assert len(first) == 3
    assert compiled("2", "rows", "large", "small") == first
    assert compiled("3", "large") < first
