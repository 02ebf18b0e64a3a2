"""`mma.sync`, and the loads and stores of its operands."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.isa import matrix as tensor
from kbuild.emulator.isa.access import address_of, offset_by
from kbuild.emulator.isa.collectives import whole_warps
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, Fragment, InstructionSpec, View
from kbuild.emulator.ptx.model import Instruction, Operand, PtxError, Vector

ELEMENT = re.compile(r"(f16|bf16|tf32|f32|f64|e4m3|e5m2|[su](4|8|32)|b1)$")
"""Types of elements of matrices."""
_WARP = Effects(collective="warp", aligned=True)
_READS = Effects(reads=("shared",), collective="warp", aligned=True)
_WRITES = Effects(writes=("shared",), collective="warp", aligned=True)


def _registers(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _product(form: Form, instruction: Instruction) -> Bound:
    """`mma.sync`."""
    shape = next(modifier for modifier in form.modifiers if modifier[0] == "m")
    d, a, b, c = (modifier for modifier in form.modifiers if ELEMENT.match(modifier))
    operation = form.choose("and", "xor") if a == "b1" else ""
    word = "b64" if a == "f64" else "b32"
    lists = [_registers(operand) for operand in instruction.operands]
    if len(lists) != 4:
        raise PtxError(f"{form.name} takes four lists of registers")
    counts = tuple(map(len, lists))

    def function(
        of_a: RegisterBlock, of_b: RegisterBlock, of_c: RegisterBlock, of_d: RegisterBlock, where: Any = True
    ) -> None:
        whole_warps(len(of_a), where)
        # Several instructions at once are as one of more warps.
        fragments = [
            block.read().reshape(count, -1, 32) for block, count in zip((of_a, of_b, of_c), counts[1:])
        ]
        results = tensor.mma_sync(
            shape, (d, a, b, c), *fragments, saturate=form.has("satfinite"), operation=operation
        )
        of_d.write(results.reshape(-1, len(of_d)), where)

    _check_counts(form.name, shape, (d, a, b, c), counts, operation)
    views = tuple(Fragment(tuple(View(item, word) for item in items)) for items in (*lists[1:], lists[0]))
    return Bound(function, views, False, function, 1)


@lru_cache
def _check_counts(
    name: str, shape: str, types: tuple[str, str, str, str], counts: tuple[int, ...], operation: str
) -> None:
    """Raise PtxError unless the lists have as many registers as the shape needs; runs the arithmetic once to
    find out."""
    dtype = np.uint64 if types[1] == "f64" else np.uint32
    a, b, c = (np.zeros((count, 1, 32), dtype) for count in counts[1:])
    try:
        found = tensor.mma_sync(shape, types, a, b, c, operation=operation)
    except ValueError as error:
        raise PtxError(f"{name}: {error}") from None
    if len(found) != counts[0]:
        raise PtxError(f"{name}: D has {len(found)} registers, not {counts[0]}")


def _count(form: Form) -> int:
    return int(form.choose("x1", "x2", "x4")[1:])


def _row_lanes(warps: np.ndarray, count: int) -> np.ndarray:
    """The lanes that give the addresses of rows, [warps taking part, matrices, 8]: matrix j, row r comes from
    lane 8j + r."""
    return np.flatnonzero(warps)[:, None, None] * 32 + np.arange(8 * count).reshape(count, 8)


def _load(form: Form, instruction: Instruction) -> Bound:
    """`ldmatrix`."""
    count, transposed = _count(form), form.has("trans")
    targets = _registers(instruction.operands[0])
    base, offset = address_of(instruction.operands[1])
    if len(targets) != count:
        raise PtxError(f"{form.name} with {len(targets)} registers")

    def function(batch: Any, start: np.ndarray, *out: np.ndarray, where: Any = True) -> None:
        warps = whole_warps(len(start), where)
        lanes = _row_lanes(warps, count)
        site = (batch, instruction, lanes.ravel())
        rows = batch.memory.load("shared", offset_by(start, offset)[lanes.ravel()], 16, True, site)
        rows = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, count, 8, 16).swapaxes(0, 1)
        registers = tensor.distribute_matrix(rows, transposed)
        for target, values in zip(out, registers):
            if where is True:
                target[:] = values.ravel()
            else:
                target.reshape(-1, 32)[warps] = values

    return Bound(function, (base, *(View(item, "b32") for item in targets)))


def _store(form: Form, instruction: Instruction) -> Bound:
    """`stmatrix`."""
    count, transposed = _count(form), form.has("trans")
    base, offset = address_of(instruction.operands[0])
    sources = _registers(instruction.operands[1])
    if len(sources) != count:
        raise PtxError(f"{form.name} with {len(sources)} registers")

    def function(batch: Any, start: np.ndarray, *values: np.ndarray, where: Any = True) -> None:
        warps = whole_warps(len(start), where)
        lanes = _row_lanes(warps, count).ravel()
        registers = np.stack(values).reshape(count, -1, 32)[:, warps]
        rows = (
            np.ascontiguousarray(tensor.collect_matrix(registers, transposed).swapaxes(0, 1))
            .view(np.uint64)
            .reshape(-1, 2)
        )
        batch.memory.store(
            "shared", offset_by(start, offset)[lanes], rows, 16, True, (batch, instruction, lanes)
        )

    return Bound(function, (base, *(View(item, "b32") for item in sources)))


def _transpose(form: Form, instruction: Instruction) -> Bound:
    """`movmatrix`."""
    target, source = instruction.operands

    def function(value: np.ndarray, out: np.ndarray, where: Any = True) -> None:
        whole_warps(len(value), where)
        np.copyto(out, tensor.transpose_matrix(value.reshape(-1, 32)).ravel(), where=where)

    return Bound(function, (View(source, "b32"), View(target, "b32")), wants_warps=False)


def _mma(forms: str, summary: str) -> InstructionSpec:
    return InstructionSpec("mma.sync.aligned" + forms, "", summary, handler=_product, effects=_WARP)


_BYTES = "{e4m3|e5m2}{e4m3|e5m2}"
_MATRICES = "{x1|x2|x4}[trans]{shared|shared::cta}.b16"

ROWS = [
    _mma("{m16n8k8|m16n8k16}.row.col.f32.f16.f16.f32", "MMA of halves, summed as floats"),
    _mma("{m16n8k8|m16n8k16}.row.col.f16.f16.f16.f16", "MMA of halves"),
    _mma("{m16n8k8|m16n8k16}.row.col.f32.bf16.bf16.f32", "MMA of bfloat16, summed as floats"),
    _mma("{m16n8k4|m16n8k8}.row.col.f32.tf32.tf32.f32", "MMA of TensorFloat-32"),
    _mma("{m16n8k16|m16n8k32}.row.col.f32" + _BYTES + ".f32", "MMA of 8-bit floats, summed as floats"),
    _mma("{m16n8k16|m16n8k32}.row.col.f16" + _BYTES + ".f16", "MMA of 8-bit floats, summed as halves"),
    _mma("{m8n8k16|m16n8k16|m16n8k32}.row.col[satfinite].s32{s8|u8}{s8|u8}.s32", "MMA of bytes"),
    _mma("{m8n8k32|m16n8k32|m16n8k64}.row.col[satfinite].s32{s4|u4}{s4|u4}.s32", "MMA of half bytes"),
    _mma("{m8n8k4|m16n8k4|m16n8k8|m16n8k16}.row.col.f64.f64.f64.f64", "MMA of doubles"),
    _mma("{m8n8k128|m16n8k128|m16n8k256}.row.col.s32.b1.b1.s32{and|xor}.popc", "MMA of bits"),
    InstructionSpec(
        "ldmatrix.sync.aligned.m8n8" + _MATRICES, "", "load 8 by 8 matrices", handler=_load, effects=_READS
    ),
    InstructionSpec(
        "stmatrix.sync.aligned.m8n8" + _MATRICES, "", "store 8 by 8 matrices", handler=_store, effects=_WRITES
    ),
    InstructionSpec(
        "movmatrix.sync.aligned.m8n8.trans.b16", "", "transpose a matrix", handler=_transpose, effects=_WARP
    ),
]
