"""MMAs of real numbers measured on a GPU: how far its tensor cores are from sums rounded once.

The operands are made by rule; the accumulators that an H200 computed are in device_vectors.npz.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbuild.emulator import fp
from tests.emulator.isa.device_vectors import hashed
from tests.emulator.isa.golden_async import warpgroup_mma
from tests.emulator.isa.golden_program import Program
from tests.emulator.isa.products import BITS, mma

SYNCHRONOUS = [
    "mma.sync.aligned." + name
    for name in (
        "m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k8.row.col.f32.f16.f16.f32",
        "m16n8k16.row.col.f16.f16.f16.f16",
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k8.row.col.f32.tf32.tf32.f32",
        "m16n8k32.row.col.f32.e4m3.e4m3.f32",
        "m16n8k32.row.col.f32.e5m2.e4m3.f32",
        "m8n8k4.row.col.f64.f64.f64.f64",
        "m16n8k32.row.col.s32.s8.s8.s32",
    )
]
WARPGROUPS = [
    "wgmma.mma_async.sync.aligned." + name
    for name in (
        "m64n8k16.f32.f16.f16",
        "m64n8k16.f16.f16.f16",
        "m64n8k16.f32.bf16.bf16",
        "m64n8k8.f32.tf32.tf32",
        "m64n8k32.f32.e4m3.e4m3",
        "m64n8k32.f32.e5m2.e4m3",
        "m64n8k32.s32.s8.s8",
    )
]


@dataclass(frozen=True)
class AskedMma:
    """One MMA instruction on numbers of all sizes from 2^-4 to 2."""

    name: str
    seed: int = 0

    @property
    def program(self) -> Program:
        """The golden program of the instruction with other numbers in its operands; its expected outputs do
        not apply."""
        made = mma(self.name) if self.name.startswith("mma") else warpgroup_mma(self.name)
        words = self.name.split(".")
        kinds = [word for word in words if word in BITS]
        given = {"m0": kinds[1], "m1": kinds[2], "m2": kinds[3] if len(kinds) > 3 else "", "tiles": kinds[-1]}
        arrays = {}
        for index, (key, array) in enumerate(made.arrays.items()):
            kind = given.get(key, "")
            arrays[key] = self.numbers(kind, array, index) if kind else array
        return Program(self.name, made.body, {}, arrays, made.threads, made.shared, made.module, made.grid)

    def numbers(self, kind: str, like: np.ndarray, index: int) -> np.ndarray:
        """Numbers of a type in an array of the shape of another."""
        count = like.nbytes * 8 // BITS[kind]
        bits = hashed(count, 1000 + 10 * self.seed + index)
        if kind in ("s8", "s32"):
            integers = bits & np.uint64(0xFF if kind == "s8" else 0xFFFF)
            return integers.astype(f"u{BITS[kind] // 8}").view(like.dtype).reshape(like.shape)
        size = 2.0 ** (-4 + 5 * (bits >> np.uint64(40)).astype(np.float64) / 2**24)
        values = np.where(bits & np.uint64(1), -size, size).astype(
            np.float32 if kind != "f64" else np.float64
        )
        stored = values if kind in ("f32", "f64") else fp.convert(values, "f32", kind)
        return np.ascontiguousarray(stored).view(like.dtype).reshape(like.shape)

    @property
    def output(self) -> str:
        return list(self.program.arrays)[-1]
