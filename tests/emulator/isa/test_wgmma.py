"""Descriptors, swizzles and fragments of `wgmma`."""

from __future__ import annotations

import numpy as np
import pytest

from kbuild.emulator import fp
from kbuild.emulator.isa import matrix as tensor
from kbuild.emulator.isa.matrix.descriptor import DescriptorError

G, T = np.arange(32) // 4, np.arange(32) % 4
BASE = 0x2400


def swizzled(address: int, width: int) -> int:
    """The published rule, per byte: chunk bits 4.. are combined with row bits 7.. ."""
    mask = {16: 0, 32: 1, 64: 3, 128: 7}[width]
    return address ^ ((address >> 7 & mask) << 4)


def write_k_major(matrix: np.ndarray, width: int) -> tuple[np.ndarray, tensor.MatrixDescriptor]:
    """Memory with a tile [rows, k] in rows of `width` bytes, and the descriptor of its first step along k."""
    memory = np.full(65536, 0xEE, np.uint8)
    rows = len(matrix)
    data = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, -1)
    for row in range(rows):
        for byte in range(data.shape[1]):
            if width == 16:  # cores of 8 rows of 16 bytes; along the rows first, then along k
                address = BASE + byte // 16 * (rows * 16) + row * 16 + byte % 16
            else:
                address = swizzled(BASE + byte // width * (rows * width) + row * width + byte % width, width)
            memory[address] = data[row, byte]
    if width == 16:
        return memory, tensor.MatrixDescriptor(BASE, leading=rows * 16, stride=128)
    return memory, tensor.MatrixDescriptor(BASE, leading=16, stride=8 * width, width=width)


def write_mn_major(matrix: np.ndarray, width: int) -> tuple[np.ndarray, tensor.MatrixDescriptor]:
    """Memory with a tile [mn, k] of 16-bit elements stored with mn contiguous, in panels of `width` bytes."""
    memory = np.full(65536, 0xEE, np.uint8)
    extent, depth = matrix.shape
    data = np.ascontiguousarray(matrix.T).view(np.uint8).reshape(depth, -1)
    for k in range(depth):
        for byte in range(2 * extent):
            memory[swizzled(BASE + byte // width * (depth * width) + k * width + byte % width, width)] = data[
                k, byte
            ]
    panel, group = depth * width, 8 * width
    if width == 16:
        return memory, tensor.MatrixDescriptor(BASE, leading=group, stride=panel)
    return memory, tensor.MatrixDescriptor(BASE, leading=panel, stride=group, width=width)


def read(memory: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
    assert (addresses % size == 0).all()
    return memory.view(f"u{size}")[addresses // size]


@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("kind", ["f16", "tf32", "e4m3", "s8"])
def test_k_major_operands(width: int, kind: str) -> None:
    size = tensor.ELEMENT_BITS[kind] // 8
    depth = max(width, 32) // size
    matrix = np.random.default_rng(1).integers(0, 256, (64, depth * size)).astype(np.uint8).view(f"u{size}")
    memory, first = write_k_major(matrix, width)
    for step in range(depth * size // 32):
        start = first.start + (2 * first.leading if width == 16 else 32) * step
        descriptor = tensor.MatrixDescriptor.decode(
            tensor.MatrixDescriptor(start, first.leading, first.stride, first.width).encode()
        )
        addresses = tensor.operand_addresses(descriptor, 64, 32, size, False)
        assert (read(memory, addresses, size) == matrix[:, step * 32 // size :][:, : 32 // size]).all()


@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("extent", [64, 128])
def test_mn_major_operands(width: int, extent: int) -> None:
    matrix = np.random.default_rng(2).integers(0, 65536, (extent, 64)).astype(np.uint16)
    memory, first = write_mn_major(matrix, width)
    for step in range(4):
        descriptor = tensor.MatrixDescriptor(
            first.start + step * 2 * 8 * width, first.leading, first.stride, first.width
        )
        addresses = tensor.operand_addresses(descriptor, extent, 32, 2, True)
        assert (read(memory, addresses, 2) == matrix[:, 16 * step : 16 * step + 16]).all()


def test_the_descriptor_of_a_common_tile_has_the_bits_that_compilers_emit() -> None:
    descriptor = tensor.MatrixDescriptor.decode(0x4000004000000000 | 0x2400 >> 4)
    assert descriptor == tensor.MatrixDescriptor(0x2400, 0, 1024, 128, 0)
    assert [tensor.MatrixDescriptor.decode(mode << 62).width for mode in range(4)] == [16, 128, 64, 32]
    fields = tensor.MatrixDescriptor.decode(0x4002_0020_0100_0040)
    assert fields == tensor.MatrixDescriptor(0x400, leading=0x1000, stride=0x200, width=128, base_offset=1)
    for bits, message in ((1 << 30, "belong to no field"), (1 << 50, "not aligned to its swizzle pattern")):
        with pytest.raises(DescriptorError, match=message):
            tensor.operand_addresses(tensor.MatrixDescriptor.decode(bits | 1 << 62), 64, 32, 2, False)
    with pytest.raises(DescriptorError, match="only 16-bit operands"):
        tensor.operand_addresses(descriptor, 64, 32, 1, True)


def test_swizzles_are_their_own_inverse_and_free_of_bank_conflicts() -> None:
    addresses = np.arange(8192)
    for width in (16, 32, 64, 128):
        assert (tensor.swizzle(tensor.swizzle(addresses, width), width) == addresses).all()
        assert tensor.swizzle(addresses, width).tolist() == [swizzled(a, width) for a in addresses.tolist()]
    column = tensor.swizzle(np.arange(8) * 128, 128)
    assert len(set((column >> 4 & 7).tolist())) == 8


@pytest.mark.parametrize(
    ("kind_d", "kind"),
    [("f32", "f16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "tf32"), ("f32", "e5m2"), ("s32", "s8")],
)
@pytest.mark.parametrize("columns", [8, 24, 256])
def test_fragments_of_a_warpgroup(kind_d: str, kind: str, columns: int) -> None:
    """Registers to matrices and back, by the manual's formulas, for all warps and for one alone."""
    size = tensor.ELEMENT_BITS[kind] // 8
    depth, per_register = 32 // size, 4 // size
    random = np.random.default_rng(3)
    numbers = random.integers(-3, 4, (64, depth)).astype(np.float64)
    codes = (
        numbers.astype(np.int8).view(np.uint8)
        if kind == "s8"
        else fp.convert(numbers, "f64", kind).view(f"u{size}")
    )
    registers = np.zeros((4, 4, 32), np.uint32)
    for warp in range(4):
        for r in range(4):
            for e in range(per_register):
                row, k = 16 * warp + G + 8 * (r & 1), per_register * T + e + 4 * per_register * (r >> 1)
                registers[r, warp] |= codes[row, k].astype(np.uint32) << np.uint32(8 * size * e)
    assert (tensor.operand_of_registers(registers, kind) == numbers).all()
    assert (tensor.operand_of_registers(registers[:, 2:3], kind) == numbers[32:48]).all()

    b, c = (
        random.integers(-3, 4, (columns, depth)).astype(float),
        random.integers(-9, 9, (64, columns)).astype(float),
    )
    result = tensor.finish(tensor.multiply(numbers, b, c), kind_d)
    assert (result == tensor.finish(numbers @ b.T + c, kind_d)).all()
    assert (tensor.multiply(numbers, b, None, scale_a=-1) == -(numbers @ b.T)).all()
    fragment = tensor.accumulator_registers(result, kind_d)
    if kind_d == "f16":
        assert fragment.shape == (columns // 4, 4, 32)
        for r in range(columns // 4):
            for warp in range(4):
                for h in range(2):
                    half = (fragment[r, warp] >> np.uint32(16 * h)).astype(np.uint16)
                    assert (half == result[16 * warp + G + 8 * (r & 1), 8 * (r >> 1) + 2 * T + h]).all()
    else:
        assert fragment.shape == (columns // 2, 4, 32)
        for i in range(columns // 2):
            for warp in range(4):
                assert (
                    fragment[i, warp]
                    == result[16 * warp + G + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * T + (i & 1)]
                ).all()
    assert (tensor.accumulator(fragment, kind_d) == tensor.multiply(numbers, b, c)).all()
    assert (tensor.accumulator(fragment[:, 1:2], kind_d) == tensor.multiply(numbers, b, c)[16:32]).all()


def test_an_accumulator_of_packed_halves_is_the_next_operand() -> None:
    """D of one wgmma, packed to 16 bits, is A of the next without moving anything."""
    matrix = np.random.default_rng(4).integers(-9, 9, (64, 64)).astype(np.float32)
    d = (
        tensor.accumulator_registers(matrix.view(np.uint32), "f32")
        .view(np.float32)
        .astype(np.float16)
        .view(np.uint16)
        .astype(np.uint32)
    )
    for step in range(4):
        a = np.stack([d[8 * step + 2 * r] | d[8 * step + 2 * r + 1] << np.uint32(16) for r in range(4)])
        assert (tensor.operand_of_registers(a, "f16") == matrix[:, 16 * step : 16 * step + 16]).all()
