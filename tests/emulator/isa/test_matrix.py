"""Tensor-core arithmetic and matrix moves, against the index formulas of the PTX manual and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator import fp
from kbuild.emulator.isa import matrix as tensor

LANE = np.arange(32)
G, T = LANE // 4, LANE % 4


def fragment(formula, registers: int, per_register: int) -> list[tuple[int, int, int, int, int]]:
    """(register, element, lane, row, column) for every element that lanes hold."""
    return [
        (r, e, lane, *formula(r, e, int(G[lane]), int(T[lane])))
        for r in range(registers)
        for e in range(per_register)
        for lane in range(32)
    ]


# The manual's formulas: (A, B, C/D), each from register r, element e of it, group g and place t to (row,
# column).
def halves_d32(i, e, g, t):
    return g + 8 * (i >> 1), 2 * t + (i & 1)


def halves_d16(r, h, g, t):
    return g + 8 * r, 2 * t + h


def small_d32(i, e, g, t):
    return g, 2 * t + i


LAYOUTS = {
    ("m16n8k16", 16): (
        lambda r, h, g, t: (g + 8 * (r & 1), 2 * t + h + 8 * (r >> 1)),
        lambda r, h, g, t: (2 * t + h + 8 * r, g),
    ),
    ("m16n8k8", 16): (lambda r, h, g, t: (g + 8 * r, 2 * t + h), lambda r, h, g, t: (2 * t + h, g)),
    ("m16n8k8", 32): (
        lambda r, e, g, t: (g + 8 * (r & 1), t + 4 * (r >> 1)),
        lambda r, e, g, t: (t + 4 * r, g),
    ),
    ("m16n8k4", 32): (lambda r, e, g, t: (g + 8 * r, t), lambda r, e, g, t: (t, g)),
    ("m16n8k32", 8): (
        lambda r, b, g, t: (g + 8 * (r & 1), 4 * t + b + 16 * (r >> 1)),
        lambda r, b, g, t: (4 * t + b + 16 * r, g),
    ),
    ("m16n8k16", 8): (lambda r, b, g, t: (g + 8 * r, 4 * t + b), lambda r, b, g, t: (4 * t + b, g)),
    ("m8n8k16", 8): (lambda r, b, g, t: (g, 4 * t + b), lambda r, b, g, t: (4 * t + b, g)),
    ("m8n8k4", 64): (lambda r, e, g, t: (g, t), lambda r, e, g, t: (t, g)),
    ("m16n8k4", 64): (
        lambda i, e, g, t: (g + 8 * (i & 1), t + 4 * (i >> 1)),
        lambda i, e, g, t: (t + 4 * i, g),
    ),
    ("m16n8k8", 64): (
        lambda i, e, g, t: (g + 8 * (i & 1), t + 4 * (i >> 1)),
        lambda i, e, g, t: (t + 4 * i, g),
    ),
    ("m16n8k16", 64): (
        lambda i, e, g, t: (g + 8 * (i & 1), t + 4 * (i >> 1)),
        lambda i, e, g, t: (t + 4 * i, g),
    ),
    ("m16n8k64", 4): (
        lambda r, b, g, t: (g + 8 * (r & 1), 8 * t + b + 32 * (r >> 1)),
        lambda r, b, g, t: (8 * t + b + 32 * r, g),
    ),
}
CASES = [
    *(
        (shape, (d, k, k, d))
        for shape in ("m16n8k16", "m16n8k8")
        for k, d in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"))
    ),
    *((shape, ("f32", "tf32", "tf32", "f32")) for shape in ("m16n8k8", "m16n8k4")),
    *(("m16n8k32", ("f32", a, b, "f32")) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    ("m16n8k32", ("f16", "e4m3", "e5m2", "f16")),
    *(
        (shape, ("s32", a, "s8", "s32"))
        for shape in ("m16n8k32", "m16n8k16", "m8n8k16")
        for a in ("s8", "u8")
    ),
    ("m16n8k64", ("s32", "s4", "u4", "s32")),
    *((shape, ("f64",) * 4) for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
]


def random_codes(random: np.random.Generator, kind: str, shape: tuple[int, ...], whole: bool) -> np.ndarray:
    """Element bits: small whole numbers, or random finite ones."""
    bits = tensor.ELEMENT_BITS[kind]
    if kind in ("s4", "u4"):
        return random.integers(0, 16, shape).astype(np.uint8)
    if kind in ("s8", "u8", "s32"):
        return random.integers(0, 1 << min(bits, 24), shape).astype(f"u{bits // 8}")
    values = random.integers(-4, 5, shape).astype(np.float64) if whole else random.standard_normal(shape)
    return fp.convert(values, "f64", kind).view(fp.FORMATS[kind].bits)


def numbers(codes: np.ndarray, kind: str) -> np.ndarray:
    if kind == "s4":
        return np.where(codes >= 8, codes.astype(int) - 16, codes).astype(np.float64)
    if kind in ("s8", "s32"):
        return codes.view(f"i{codes.itemsize}").astype(np.float64)
    return (
        codes.astype(np.float64)
        if kind[0] == "u"
        else fp.decode(codes.view(fp.FORMATS[kind].storage), kind).astype(np.float64)
    )


def pack(matrix: np.ndarray, formula, bits: int) -> np.ndarray:
    """Registers of one warp that hold a matrix of element codes."""
    width = max(bits, 32)
    count = matrix.size * bits // (32 * width)
    registers = np.zeros((count, 1, 32), f"u{width // 8}")
    for r, e, lane, row, column in fragment(formula, count, width // bits):
        registers[r, 0, lane] |= registers.dtype.type(int(matrix[row, column]) << (bits * e))
    return registers


@pytest.mark.parametrize(
    ("shape", "types"), CASES, ids=lambda case: case if isinstance(case, str) else ".".join(case)
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "random"])
def test_mma_is_the_matrix_product(shape: str, types: tuple[str, str, str, str], whole: bool) -> None:
    kind_d, kind_a, kind_b, kind_c = types
    rows, columns, depth = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    random = np.random.default_rng(1)
    layout_a, layout_b = LAYOUTS[shape, tensor.ELEMENT_BITS[kind_a]]
    layout_d = small_d32 if rows == 8 else halves_d16 if kind_d == "f16" else halves_d32
    a, b, c = (
        random_codes(random, kind, size, whole)
        for kind, size in ((kind_a, (rows, depth)), (kind_b, (depth, columns)), (kind_c, (rows, columns)))
    )
    packed = pack(a, layout_a, tensor.ELEMENT_BITS[kind_a]), pack(b, layout_b, tensor.ELEMENT_BITS[kind_b])
    got = tensor.mma_sync(shape, types, *packed, pack(c, layout_d, tensor.ELEMENT_BITS[kind_c]))
    wanted = numbers(a, kind_a) @ numbers(b, kind_b) + numbers(c, kind_c)
    expected = pack(tensor.finish(wanted, kind_d), layout_d, tensor.ELEMENT_BITS[kind_d])
    if whole or kind_d == "s32":
        assert (got == expected).all()
    else:
        kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind_d]
        np.testing.assert_allclose(
            got.view(kind).astype(float),
            expected.view(kind).astype(float),
            rtol=2e-3 if kind_d == "f16" else 1e-6,
        )


def test_mma_works_on_several_warps_at_once_and_checks_its_registers() -> None:
    random = np.random.default_rng(2)
    a, b, c = (
        random.integers(0, 1 << 32, (count, 5, 32), np.uint64).astype(np.uint32) for count in (4, 2, 4)
    )
    types = ("s32", "s8", "u8", "s32")
    together = tensor.mma_sync("m16n8k32", types, a, b, c)
    for warp in range(5):
        one_a, one_b, one_c = (value[:, warp : warp + 1] for value in (a, b, c))
        alone = tensor.mma_sync("m16n8k32", types, one_a, one_b, one_c)
        assert (together[:, warp : warp + 1] == alone).all()
    with pytest.raises(ValueError, match="A of m16n8k16 with s8 has 2 registers, not 4"):
        tensor.mma_sync("m16n8k16", types, a, b, c)


def test_integers_wrap_or_saturate() -> None:
    ones = np.full((4, 1, 32), 0x7F7F7F7F, np.uint32)
    high = np.full((4, 1, 32), 0x7FFFFFFF, np.uint32)
    types = ("s32", "s8", "s8", "s32")
    wrapped = tensor.mma_sync("m16n8k32", types, ones, ones[:2], high)
    assert (wrapped == 0x7FFFFFFF + 32 * 127 * 127).all()
    assert (tensor.mma_sync("m16n8k32", types, ones, ones[:2], high, saturate=True) == 0x7FFFFFFF).all()


def test_tensor_float_operands_lose_their_low_bits() -> None:
    a = np.full((4, 1, 32), 0x3F801FFF, np.uint32)
    b = np.full((2, 1, 32), 0x3F800000, np.uint32)
    got = tensor.mma_sync("m16n8k8", ("f32", "tf32", "tf32", "f32"), a, b, np.zeros((4, 1, 32), np.uint32))
    assert (got.view(np.float32) == 8).all()


def test_bit_matrices_count_ones() -> None:
    random = np.random.default_rng(3)
    a, b = (random.integers(0, 1 << 32, (count, 1, 32), np.uint64).astype(np.uint32) for count in (4, 2))
    zero = np.zeros((4, 1, 32), np.uint32)
    for operation, function in (("xor", np.bitwise_xor), ("and", np.bitwise_and)):
        got = tensor.mma_sync("m16n8k256", ("s32", "b1", "b1", "s32"), a, b, zero, operation=operation)
        # Row 3 is held by group 3 in registers 0 and 2, column 2 by group 2; k runs over t, then over the
        # registers.
        row = np.concatenate([a[0, 0, 12:16], a[2, 0, 12:16]])
        column = np.concatenate([b[0, 0, 8:12], b[1, 0, 8:12]])
        ones = sum(bin(int(word)).count("1") for word in function(row, column))
        assert int(got[0, 0, 4 * 3 + 1]) == ones


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_are_spread_as_the_manual_draws_them(transposed: bool) -> None:
    cells = np.random.default_rng(4).integers(0, 65536, (4, 2, 8, 8)).astype(np.uint16)
    registers = tensor.distribute_matrix(cells.view(np.uint8), transposed)
    for h in range(2):
        element = (registers >> np.uint32(16 * h) & np.uint32(0xFFFF)).astype(np.uint16)
        wanted = cells[:, :, 2 * T + h, G] if transposed else cells[:, :, G, 2 * T + h]
        assert (element == wanted).all()
    assert (tensor.collect_matrix(registers, transposed).view(np.uint16) == cells).all()
    moved = tensor.transpose_matrix(registers[0])
    assert (
        moved
        == tensor.distribute_matrix(
            np.ascontiguousarray(tensor.collect_matrix(registers[:1]).view(np.uint16).swapaxes(2, 3)).view(
                np.uint8
            )
        )[0]
    ).all()


def test_a_tile_loaded_by_ldmatrix_feeds_mma() -> None:
    random = np.random.default_rng(5)
    a = random.integers(-8, 8, (16, 16)).astype(np.float16)
    b = random.integers(-8, 8, (16, 8)).astype(np.float16)
    rows = np.stack([a[8 * (j & 1) : 8 * (j & 1) + 8, 8 * (j >> 1) : 8 * (j >> 1) + 8] for j in range(4)])
    left = tensor.distribute_matrix(np.ascontiguousarray(rows[:, None]).view(np.uint8))
    right = tensor.distribute_matrix(
        np.ascontiguousarray(b.reshape(2, 1, 8, 8)).view(np.uint8), transposed=True
    )
    got = tensor.mma_sync(
        "m16n8k16", ("f32", "f16", "f16", "f32"), left, right, np.zeros((4, 1, 32), np.uint32)
    ).view(np.float32)
    dot = a.astype(float) @ b.astype(float)
    for i in range(4):
        assert (got[i, 0] == dot[G + 8 * (i >> 1), 2 * T + (i & 1)]).all()
