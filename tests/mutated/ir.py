"""Mutated IR: the texts of a kernel's stages with words, numbers, lines and bytes changed."""

from __future__ import annotations

import random
import tempfile
from functools import lru_cache
from pathlib import Path

from mutated.kernels import KERNEL, SIGNATURE
from mutated.text import damaged

import kbuild

_DESCRIPTORS = """\
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, c, M, N, K, BLOCK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK, BLOCK])
    db = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK, BLOCK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK, BLOCK])
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        total = tl.dot(da.load([0, k]), db.load([k, 0]), total)
    dc.store([0, 0], total.to(tl.float16))
"""


@lru_cache(maxsize=1)
def texts() -> tuple[tuple[str, bytes, str], ...]:
    """Stage, text and architecture of what is mutated."""
    found = []
    tiles = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp16:16", "M": "i32:16", "N": "i32:16", "K": "i32:16"}
    with tempfile.TemporaryDirectory() as folder:
        for source, signature, block in ((KERNEL, SIGNATURE, 256), (_DESCRIPTORS, tiles, 64)):
            file = Path(folder, "kernel.py")
            file.write_text(source)
            for arch in ("sm_80", "sm_90"):
                constexprs = {"BLOCK": block}
                made = kbuild.compile(
                    f"{file}:kernel", signature=signature, constexprs=constexprs, target=arch, stop="ttgir"
                )
                found += [(stage, made.asm[stage].encode(), arch) for stage in ("ttir", "ttgir")]
    return tuple(found)


def mutated(random_: random.Random) -> tuple[str, bytes, str]:
    """Stage, text and architecture of a module with mistakes in it; at times for an architecture that it was
    not made for."""
    stage, text, arch = random_.choice(texts())
    if random_.random() < 0.05:
        return stage, text, {"sm_80": "sm_90", "sm_90": "sm_80"}[arch]
    return stage, damaged(text, random_), arch


def attempt(made: tuple[str, bytes, str], folder: Path, stop: str = "ptx") -> str:
    """The PTX of a module; raises what kbuild raises."""
    stage, text, arch = made
    file = folder / f"kernel.{stage}"
    file.write_bytes(text)
    return kbuild.compile(str(file), target=arch, stop=stop).asm[stop]
