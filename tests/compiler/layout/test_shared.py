"""Addresses, bank conflicts, ldmatrix and swizzles, against the rules of the hardware."""

import random

import pytest

from kbuild.compiler.layout import (
    LinearLayout,
    bank_conflicts,
    best_swizzle,
    blocked,
    coalesced,
    dot_operand,
    fma_operand,
    fma_result,
    ldmatrix_fits,
    matrix_swizzle,
    mma_accumulator,
    offset_map,
    shared_access,
    swizzled,
    unswizzled,
    wavefronts,
    wgmma_shared,
)
from tests.compiler.layout.random_layouts import random_threads


def xor_of(images, index):
    result = 0
    for bit, image in enumerate(images):
        result ^= image if index >> bit & 1 else 0
    return result


@pytest.mark.parametrize("seed", range(20))
def test_addresses_lead_to_the_elements(seed):
    source = random.Random(seed)
    registers = random_threads(source, (32, 16))
    memory = swizzled(
        (32, 16), source.choice([1, 2, 4]), source.choice([1, 2]), source.choice([1, 2, 4]), [1, 0]
    )
    images = offset_map(registers, memory)
    access = shared_access(registers, memory, 16)
    assert sorted(r for group in access.groups for r in group) == registers.unique_registers()
    for lane in range(32):
        for warp in range(2):
            thread = xor_of(images["lane"], lane) ^ xor_of(images["warp"], warp)
            for register in range(registers.size("register")):
                offset = thread ^ xor_of(images["register"], register)
                assert memory.coordinates(offset=offset) == registers.coordinates(
                    register=register, lane=lane, warp=warp
                )
            for group, start in zip(access.groups, access.offsets):
                assert (start ^ thread) % access.vector == 0
                for element, register in enumerate(group):
                    expected = registers.flat(register=register, lane=lane, warp=warp)
                    assert memory.flat(offset=(start ^ thread) + element) == expected


def count_wavefronts(registers, memory, bits, vector, chosen):
    """Wavefronts of one access by brute force: every lane's words, phase by phase."""
    images = offset_map(registers, memory)
    lanes_per_phase = {1: 32, 2: 16, 4: 8}[max(1, vector * bits // 32)]
    total = 0
    for first in range(0, 32, lanes_per_phase):
        banks = {}
        for lane in range(first, first + lanes_per_phase):
            offset = xor_of(images["lane"], lane) ^ xor_of(images["register"], chosen)
            for byte in range(
                offset // vector * vector * bits // 8, (offset // vector + 1) * vector * bits // 8
            ):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(map(len, banks.values()))
    return total


@pytest.mark.parametrize("seed", range(40))
def test_bank_conflicts_are_the_same_for_every_register(seed):
    source = random.Random(seed)
    bits = source.choice([8, 16, 32])
    registers, memory = random_threads(source, (32, 32)), unswizzled((32, 32), [1, 0])
    vector = shared_access(registers, memory, bits).vector
    expected = max(1, vector * bits // 32) + bank_conflicts(memory, registers, bits, vector)
    for register in range(registers.size("register")):
        assert count_wavefronts(registers, memory, bits, vector, register) == expected


def test_a_column_of_floats_conflicts_until_it_is_swizzled():
    columns = blocked((32, 32), [1, 1], [32, 1], [1, 1], [0, 1])
    assert bank_conflicts(unswizzled((32, 32), [1, 0]), columns, 32, 1) == 31
    assert bank_conflicts(swizzled((32, 32), 1, 1, 32, [1, 0]), columns, 32, 1) == 0
    assert wavefronts(columns, unswizzled((32, 32), [1, 0]), 32, max_bits=32) == 32 * 32
    assert wavefronts(columns, swizzled((32, 32), 4, 1, 8, [1, 0]), 32) == 32


def ldmatrix(plan, memory, bits, lane_count=32):
    """{(lane, register): flat coordinate} that one warp receives, by the PTX manual's rules for ldmatrix."""
    result = {}
    element_bytes = bits // 8
    for group, constant in zip(plan.groups, plan.offsets):
        addresses = [constant ^ xor_of(plan.lane, lane) for lane in range(lane_count)]
        for matrix, registers in enumerate(group):
            for lane in range(lane_count):
                g, t = lane >> 2, lane & 3
                # The four bytes that this lane receives, as byte addresses.
                received = []
                for half in range(2):
                    row, column = (2 * t + half, g) if plan.transposed else (g, 2 * t + half)
                    start = addresses[8 * matrix + row] * bits // 8
                    assert start % 16 == 0
                    received += [start + 2 * column, start + 2 * column + 1]
                for position, register in enumerate(registers):
                    byte = received[position * element_bytes]
                    result[lane, register] = memory.flat(offset=byte * 8 // bits)
    return result


OPERANDS = {
    "A of f16": (dot_operand((32, 64), (1, 1), 0, 2), swizzled((32, 64), 8, 1, 8, [1, 0]), 16, False),
    "A of f16, stored K x M": (
        dot_operand((64, 32), (1, 1), 0, 2),
        swizzled((64, 32), 8, 1, 8, [0, 1]),
        16,
        True,
    ),
    "B of f16, row-major": (
        dot_operand((32, 64), (1, 1), 1, 2),
        swizzled((32, 64), 8, 1, 8, [1, 0]),
        16,
        True,
    ),
    "B of f16, stored N x K": (
        dot_operand((64, 32), (1, 1), 1, 2),
        swizzled((64, 32), 8, 1, 8, [0, 1]),
        16,
        False,
    ),
    "A of f8": (dot_operand((32, 64), (1, 1), 0, 4), swizzled((32, 64), 16, 2, 4, [1, 0]), 8, False),
    "A of tf32": (dot_operand((32, 32), (1, 1), 0, 1), swizzled((32, 32), 4, 1, 8, [1, 0]), 32, False),
    "A under the TMA swizzle": (
        dot_operand((64, 128), (1, 1), 0, 2),
        wgmma_shared((64, 128), 16, 128),
        16,
        False,
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_ldmatrix_delivers_the_fragment(name):
    registers, memory, bits, transposed = OPERANDS[name]
    plan = ldmatrix_fits(registers, memory, bits)
    assert plan is not None and plan.transposed == transposed and plan.x == 4 and plan.conflicts == 0
    received = ldmatrix(plan, memory, bits)
    assert received == {
        (lane, register): registers.flat(lane=lane, register=register)
        for lane in range(32)
        for register in range(registers.size("register"))
    }


def test_ldmatrix_addresses_of_warps():
    registers, memory = dot_operand((64, 32), (4, 2), 0, 2), unswizzled((64, 32), [1, 0])
    plan = ldmatrix_fits(registers, memory, 16)
    assert plan is not None and plan.warp == (16 * 32, 32 * 32, 0)
    # The manual's recipe for A in row-major memory: lane l supplies &A[l & 15][8 * (l >> 4)].
    assert [xor_of(plan.lane, lane) for lane in range(32)] == [
        (lane & 15) * 32 + 8 * (lane >> 4) for lane in range(32)
    ]
    assert plan.conflicts > 0


def test_ldmatrix_small_fragments():
    registers = dot_operand((16, 8), (1, 1), 1, 2)
    plan = ldmatrix_fits(registers, unswizzled((16, 8), [1, 0]), 16)
    assert plan is not None and plan.x == 2 and plan.lane[4] == 0


def test_ldmatrix_refuses_what_it_cannot_do():
    row_major = unswizzled((64, 64), [1, 0])
    # Bytes and words cannot be transposed; vectors of four are not a fragment; a swizzle may not cut 16-byte
    # rows.
    assert ldmatrix_fits(dot_operand((64, 64), (1, 1), 1, 4), row_major, 8) is None
    assert ldmatrix_fits(dot_operand((64, 64), (1, 1), 1, 1), row_major, 32) is None
    assert ldmatrix_fits(blocked((64, 64), [1, 4], [4, 8], [1, 1], [1, 0]), row_major, 16) is None
    assert ldmatrix_fits(dot_operand((64, 64), (1, 1), 0, 2), swizzled((64, 64), 4, 1, 8, [1, 0]), 16) is None

    # The rows of a transposed matrix are read in order: lanes may not take its columns in another.
    fragment = dot_operand((16, 8), (1, 1), 1, 2)
    rows, columns = fragment.bases_of("lane")[:2], fragment.bases_of("lane")[2:]
    assert (
        ldmatrix_fits(
            fragment.with_bases("lane", (*rows, *reversed(columns))), unswizzled((16, 8), [1, 0]), 16
        )
        is None
    )


def test_ldmatrix_reads_copies_once():
    fragment = dot_operand((16, 8), (1, 1), 1, 2)
    copied = fragment.with_bases("register", (*fragment.bases_of("register"), 0))
    plan = ldmatrix_fits(copied, unswizzled((16, 8), [1, 0]), 16)
    assert plan is not None and plan.groups == (((0, 1), (2, 3)),)


def test_stmatrix_stores_accumulators():
    """The same plan serves stmatrix: f16 accumulators into the swizzled tile that TMA sends off."""
    plan = ldmatrix_fits(mma_accumulator((64, 64), (4, 1)), wgmma_shared((64, 64), 16, 128), 16)
    assert plan is not None and (plan.x, plan.transposed, plan.conflicts) == (4, False, 0)


@pytest.mark.parametrize(
    "columns, expected", [(8, (8, 8, 1)), (16, (8, 4, 2)), (32, (8, 2, 4)), (64, (8, 1, 8)), (128, (8, 1, 8))]
)
def test_the_swizzle_for_ldmatrix(columns, expected):
    assert matrix_swizzle((64, columns), [1, 0], 16) == expected
    readers = [dot_operand((64, columns), (2, 2), 0, 2)] if columns > 8 else []
    writers = [coalesced((64, columns), [1, 0], 8, 4)]
    assert best_swizzle((64, columns), [1, 0], 16, readers, writers) == expected


def test_the_swizzle_for_plain_reads_across_rows():
    """Floats read column by column want another swizzle than matrices do."""
    reader = blocked((32, 32), [1, 1], [32, 1], [1, 1], [0, 1])
    swizzle = best_swizzle((32, 32), [1, 0], 32, [reader])
    assert wavefronts(reader, swizzled((32, 32), *swizzle, [1, 0]), 32) == 32


def test_no_swizzle_where_none_is_needed():
    """Vectors along the rows of B for fma, which ldmatrix does not read: then offsets are the sum of a thread's part and
    a constant."""
    reader = fma_operand(fma_result((64, 64), 4), 1, 16)
    writer = coalesced((16, 64), [1, 0], 4, 4)
    assert best_swizzle((16, 64), [1, 0], 32, [reader], [writer]).max_phase == 1


def test_f32_operands_of_tf32_from_n_contiguous_memory():
    """No ldmatrix for a transposed tf32 operand; the swizzle found is better than none, and than the matrix
    one."""
    reader = dot_operand((32, 64), (2, 2), 1, 1)
    found = best_swizzle((32, 64), [1, 0], 32, [reader])
    cost = [
        wavefronts(reader, swizzled((32, 64), *parameters, [1, 0]), 32)
        for parameters in (found, matrix_swizzle((32, 64), [1, 0], 32), (1, 1, 1))
    ]
    assert cost[0] <= min(cost) and cost[0] == len(reader.unique_registers())


def test_replicated_registers_are_loaded_once():
    registers = LinearLayout.make((32,), register=[0, 1], lane=[2, 4, 8, 16, 0])
    access = shared_access(registers, unswizzled((32,), [0]), 16)
    assert (access.vector, access.groups) == (2, ((0, 2),))
