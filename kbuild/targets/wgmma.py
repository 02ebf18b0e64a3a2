"""The warpgroup-level tensor-core instructions `wgmma.mma_async` of Hopper, as data.

Four warps multiply 64×k by k×n: A from shared memory or registers, B from shared memory, D = A·B + D in
registers, while the warps go on.  Fragments are those of mma.sync, a warp taking 16 of the 64 rows (PTX ISA,
"Register fragments for wgmma"): `layout.wgmma_accumulator`, and `layout.dot_operand` for A in registers.  How
tiles lie in shared memory is `layout.wgmma_shared`; a `WgmmaDescriptor` describes it to the instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kbuild.targets.elements import ELEMENT_BITS, is_integer

GROUP_WARPS = 4
"""Warps of a warpgroup; its first one's number is a multiple of this."""
GROUP_ROWS = 64
"""Rows of D of one instruction."""
WIDTHS = (256, 128, 64, 32, 16, 8)
"""Columns of D that an instruction may have, as far as they are powers of two."""
STEP_BYTES = 32
"""Bytes along k that one instruction reads of each row of A and column of B."""
MAX_SWIZZLE_BYTES = 128
"""The widest pattern in which tiles of shared memory are swizzled."""
REGISTER_UNIT, MAX_REGISTERS, MOST_REGISTERS = 8, 240, 256
"""The unit in which `setmaxnreg` counts registers of a thread, the most that the compiler requests by itself, for
255 can be addressed, and the most that there may be."""


@dataclass(frozen=True)
class WgmmaAtom:
    """One instruction: D = A·B + D over a 64×n×k tile, by one warpgroup."""

    name: str
    n: int
    k: int
    a: str
    b: str
    accumulator: str
    types: str
    """The types in the instruction's name: `f32.f16.f16`."""

    @property
    def k_width(self) -> int:
        """Elements of A per 32-bit register, along k."""
        return 32 // ELEMENT_BITS[self.a]

    @property
    def any_order(self) -> bool:
        """Whether operands in shared memory may be contiguous along m or n, and not along k alone."""
        return ELEMENT_BITS[self.a] == 16

    @property
    def accumulator_registers(self) -> int:
        """Registers of D per thread, 32 bits each."""
        return self.n // 2

    @property
    def instruction(self) -> str:
        return f"wgmma.mma_async.sync.aligned.m{GROUP_ROWS}n{self.n}k{self.k}.{self.types}"

    def of_width(self, n: int) -> WgmmaAtom:
        """The same instruction with `n` columns of D, any multiple of 8 up to 256."""
        return replace(self, name=self.name.replace(f"n{self.n}k", f"n{n}k"), n=n)

    def immediates(self, a_is_shared: bool, a_transposed: bool, b_transposed: bool) -> str:
        """The operands after the scale of D: signs of A and B for floats, then, for 16 bits, the orders of those in
        shared memory, 0 when contiguous along k."""
        if is_integer(self.accumulator):
            return ""
        orders = ([a_transposed] if a_is_shared else []) + [b_transposed] if self.any_order else []
        return "".join(f", {int(value)}" for value in (1, 1, *orders))


_NAMES: dict[str, str] = {
    "f16": "f16",
    "bf16": "bf16",
    "f32": "tf32",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
    "i8": "s8",
}


def _atoms(a: str, b: str) -> tuple[WgmmaAtom, ...]:
    """The instructions for operands of some types, the widest first."""
    accumulator = "i32" if is_integer(a) else "f32"
    k = STEP_BYTES * 8 // ELEMENT_BITS[a]
    suffix = _NAMES[a] if a == b else f"{_NAMES[a]}.{_NAMES[b]}"
    types = f"{'s32' if is_integer(a) else 'f32'}.{_NAMES[a]}.{_NAMES[b]}"
    return tuple(WgmmaAtom(f"m{GROUP_ROWS}n{n}k{k}.{suffix}", n, k, a, b, accumulator, types) for n in WIDTHS)


_PAIRS: tuple[tuple[str, str], ...] = (
    ("f16", "f16"),
    ("bf16", "bf16"),
    ("f32", "f32"),
    ("f8E4M3FN", "f8E4M3FN"),
    ("f8E4M3FN", "f8E5M2"),
    ("f8E5M2", "f8E4M3FN"),
    ("f8E5M2", "f8E5M2"),
    ("i8", "i8"),
)
WGMMA = tuple(atom for pair in _PAIRS for atom in _atoms(*pair))


@dataclass(frozen=True)
class WgmmaDescriptor:
    """How an operand lies in shared memory, beside its start: PTX ISA, "Matrix descriptor"; distances in
    bytes.

    A tile is panels as wide as the swizzle, one after another, each holding `rows` rows; eight rows are the
    pattern that the swizzle repeats.
    """

    swizzle_bytes: int
    """128, 64 or 32."""
    rows: int
    """Rows of a panel: of k where the operand is contiguous along m or n, otherwise of m or n."""
    transposed: bool
    """Whether it is contiguous along m or n."""

    @property
    def panel_bytes(self) -> int:
        return self.swizzle_bytes * self.rows

    @property
    def constant(self) -> int:
        """The 64 bits of the descriptor but those of the start address."""
        mode = {128: 1, 64: 2, 32: 3}[self.swizzle_bytes]
        # Between panels along m or n; along k it does not count
        leading = self.panel_bytes if self.transposed else 16
        return mode << 62 | (8 * self.swizzle_bytes >> 4) << 32 | (leading >> 4) << 16

    def offset(self, outer: int, depth: int, element_bytes: int) -> int:
        """Bytes from the tile's start to the element at `outer` along m or n and `depth` along k: the start
        of an instruction's operand, the swizzle being a matter of the address alone."""
        along, row = (outer, depth) if self.transposed else (depth, outer)
        panel, column = divmod(along * element_bytes, self.swizzle_bytes)
        return panel * self.panel_bytes + row * self.swizzle_bytes + column
