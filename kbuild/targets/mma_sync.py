"""The warp-level tensor-core instructions `mma.sync`, as data.

PTX ISA, "Matrix fragments for mma": with g = lane / 4 and t = lane % 4, a 32-bit register of A holds
`k_width` elements of row g (+8 for odd registers) from column k_width·t on, and so on; `layout.dot_operand`
and `layout.mma_accumulator` are those formulas, with `k_width` as the only parameter.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.targets.elements import ELEMENT_BITS, is_fp8


class MmaAtom(NamedTuple):
    """One instruction: D = A·B + C over an m×n×k tile, by one warp."""

    name: str
    m: int
    n: int
    k: int
    a: str
    b: str
    accumulator: str
    k_width: int
    """Elements of A and B per 32-bit register, along k."""
    intrinsic: str
    """LLVM intrinsic; takes and returns registers as its own types."""
    operand_register: str
    """LLVM type of an operand register: `<2 x half>` or `i32`."""
    tf32: bool = False
    """The operands are f32 registers, of which the instruction reads 19 bits."""

    @property
    def is_fp8(self) -> bool:
        return is_fp8(self.a)

    @property
    def a_registers(self) -> int:
        """32-bit registers of A per thread."""
        return self.m * self.k // 32 // self.k_width

    @property
    def b_registers(self) -> int:
        """32-bit registers of B per thread."""
        return self.n * self.k // 32 // self.k_width

    @property
    def accumulator_registers(self) -> int:
        """Registers of C and D per thread, 32 bits each."""
        return self.m * self.n // 32


def _atom(
    name: str, k: int, operands: tuple[str, str], accumulator: str, intrinsic: str, register: str = "i32"
) -> MmaAtom:
    bits = ELEMENT_BITS[operands[0]]
    return MmaAtom(
        name,
        16,
        8,
        k,
        *operands,
        accumulator,
        32 // bits,
        f"llvm.nvvm.mma.{intrinsic}",
        register,
        tf32=operands[0] == "f32",
    )


MMA_SYNC_SM80 = (
    _atom("m16n8k16.f16", 16, ("f16", "f16"), "f32", "m16n8k16.row.col.f32.f32", "<2 x half>"),
    _atom("m16n8k16.bf16", 16, ("bf16", "bf16"), "f32", "m16n8k16.row.col.bf16"),
    _atom("m16n8k8.tf32", 8, ("f32", "f32"), "f32", "m16n8k8.row.col.tf32"),
    _atom("m16n8k32.s8", 32, ("i8", "i8"), "i32", "m16n8k32.row.col.satfinite.s8"),
)

MMA_SYNC_SM89 = (
    _atom("m16n8k32.e4m3", 32, ("f8E4M3FN", "f8E4M3FN"), "f32", "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    _atom("m16n8k32.e4m3.e5m2", 32, ("f8E4M3FN", "f8E5M2"), "f32", "m16n8k32.row.col.f32.e4m3.e5m2.f32"),
    _atom("m16n8k32.e5m2.e4m3", 32, ("f8E5M2", "f8E4M3FN"), "f32", "m16n8k32.row.col.f32.e5m2.e4m3.f32"),
    _atom("m16n8k32.e5m2", 32, ("f8E5M2", "f8E5M2"), "f32", "m16n8k32.row.col.f32.e5m2.e5m2.f32"),
)
