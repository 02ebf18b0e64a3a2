"""The semantics of tensor cores and matrix moves, as pure functions of numpy arrays.

Registers of a warp are `uint32[registers, warps, 32]` (`uint64` for f64): the lanes of `warps` consecutive
warps that execute the same instruction.  `g` is a lane's group, `lane // 4`, and `t` its place in the group,
`lane % 4`, as in the PTX manual's figures.
"""

from kbuild.emulator.isa.matrix.descriptor import MatrixDescriptor, operand_addresses
from kbuild.emulator.isa.matrix.elements import ELEMENT_BITS, elements, finish
from kbuild.emulator.isa.matrix.matrices import collect_matrix, distribute_matrix, transpose_matrix
from kbuild.emulator.isa.matrix.mma import mma_sync
from kbuild.emulator.isa.matrix.sparse import mma_sparse
from kbuild.emulator.isa.matrix.swizzle import swizzle
from kbuild.emulator.isa.matrix.wgmma import (
    accumulator,
    accumulator_registers,
    multiply,
    operand_of_registers,
)

__all__ = [
    "ELEMENT_BITS",
    "MatrixDescriptor",
    "accumulator",
    "accumulator_registers",
    "collect_matrix",
    "distribute_matrix",
    "elements",
    "finish",
    "mma_sparse",
    "mma_sync",
    "multiply",
    "operand_addresses",
    "operand_of_registers",
    "swizzle",
    "transpose_matrix",
]
