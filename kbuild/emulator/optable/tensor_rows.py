"""Matrix instructions of a warp: `mma.sync`, `ldmatrix`, `stmatrix` and `movmatrix`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.optable.access import address_of, at
from kbuild.emulator.optable.collectives import whole_warps
from kbuild.emulator.optable.row import Bound, Effects, Form, Row, View
from kbuild.emulator.ptx import Instruction, Operand, PtxError, Vector
from kbuild.emulator.tensor import ldmatrix, mma

_WARP = Effects(collective="warp", aligned=True)
_LANE = np.arange(32)


def items(operand: Operand) -> tuple[Operand, ...]:
    """The registers of an operand that may be a vector."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def stacked(views: tuple[np.ndarray, ...], dtype: type = np.uint32) -> np.ndarray:
    """Registers as [warps, registers, 32]."""
    result = np.empty((len(views[0]) // 32, len(views), 32), dtype)
    for index, view in enumerate(views):
        result[:, index] = view.reshape(-1, 32)
    return result


def _mma(form: Form, instruction: Instruction) -> Bound:
    shape = next(modifier for modifier in form.modifiers if modifier.startswith("m") and "k" in modifier)
    kinds = form.types
    assert len(kinds) == 4
    lists = [items(operand) for operand in instruction.operands]
    if len(lists) != 4:
        raise PtxError(f"{instruction.name} takes three fragments and gives one")
    size = mma.Shape.named(shape)
    for fragment, role, kind in zip(lists, "cabc", kinds):
        expected = len(mma.fragment_places(role, size, kind))
        if len(fragment) != expected:
            raise PtxError(f"{instruction.name}: a fragment of {len(fragment)} registers, {expected} are needed")
    saturate = form.has("satfinite")
    width, dtype = ("b64", np.uint64) if kinds[0] == "f64" else ("b32", np.uint32)
    ends = np.cumsum([len(fragment) for fragment in (*lists[1:], lists[0])]).tolist()

    def function(*views: np.ndarray, where: Any = True) -> None:
        whole_warps(len(views[0]), where)
        a, b, c = (stacked(views[first:last], dtype) for first, last in zip([0, *ends], ends[:3]))  # type: ignore[arg-type]
        result = mma.mma_sync(shape, kinds, a, b, c, saturate)  # type: ignore[arg-type]
        for index, view in enumerate(views[ends[2] :]):
            np.copyto(view, result[:, index].ravel(), where=where)

    views = tuple(View(item, width) for fragment in (*lists[1:], lists[0]) for item in fragment)
    return Bound(function, views, wants_warps=False)


def _matrices(form: Form) -> int:
    return int(form.choose("x1", "x2", "x4")[1:])


def _count(form: Form, operand: Operand, instruction: Instruction) -> tuple[Operand, ...]:
    found = items(operand)
    if len(found) != _matrices(form):
        raise PtxError(f"{instruction.name} with {len(found)} registers")
    return found


def _rows(count: int, lanes: int, where: Any) -> np.ndarray:
    """The lanes that give the address of a row."""
    chosen = np.tile(count > _LANE // 8, lanes // 32)
    return chosen if where is True else chosen & where


def _load_matrix(form: Form, instruction: Instruction) -> Bound:
    targets = _count(form, instruction.operands[0], instruction)
    base, offset = address_of(instruction.operands[1])
    transposed, count = form.has("trans"), len(targets)

    def function(warps: Any, start: np.ndarray, *out: np.ndarray, where: Any = True) -> None:
        whole_warps(len(start), where)
        chosen = True if count == 4 and where is True else _rows(count, len(start), where)
        found = warps.memory.load("shared", at(start, offset), 16, chosen, (warps, instruction))
        rows = np.ascontiguousarray(found).view(np.uint8).reshape(-1, 4, 8, 16)[:, :count]
        registers = ldmatrix.distribute(rows, transposed)
        for index, target in enumerate(out):
            np.copyto(target, registers[:, index].ravel(), where=where)

    return Bound(function, (base, *(View(target, "b32") for target in targets)))


def _store_matrix(form: Form, instruction: Instruction) -> Bound:
    sources = _count(form, instruction.operands[1], instruction)
    base, offset = address_of(instruction.operands[0])
    transposed, count = form.has("trans"), len(sources)

    def function(warps: Any, start: np.ndarray, *values: np.ndarray, where: Any = True) -> None:
        whole_warps(len(start), where)
        rows = np.zeros((len(start) // 32, 4, 8, 16), np.uint8)
        rows[:, :count] = ldmatrix.collect(stacked(values), transposed)
        chosen = True if count == 4 and where is True else _rows(count, len(start), where)
        data = rows.view(np.uint64).reshape(-1, 2)
        warps.memory.store("shared", at(start, offset), data, 16, chosen, (warps, instruction))

    return Bound(function, (base, *(View(source, "b32") for source in sources)))


def _move_matrix(form: Form, instruction: Instruction) -> Bound:
    target, source = instruction.operands

    def function(value: np.ndarray, out: np.ndarray, where: Any = True) -> None:
        whole_warps(len(value), where)
        np.copyto(out, ldmatrix.transpose(value.reshape(-1, 32)).ravel(), where=where)

    return Bound(function, (View(source, "b32"), View(target, "b32")), wants_warps=False)


_SUM = "sum of a matrix product and a matrix"
_SHARED = ("shared",)

ROWS = [
    Row("mma.sync.aligned{m16n8k16|m16n8k8}.row.col{f16|f32}.f16.f16{f16|f32}", "", _SUM, handler=_mma, effects=_WARP),
    Row("mma.sync.aligned{m16n8k16|m16n8k8}.row.col.f32.bf16.bf16.f32", "", _SUM, handler=_mma, effects=_WARP),
    Row("mma.sync.aligned{m16n8k8|m16n8k4}.row.col.f32.tf32.tf32.f32", "", _SUM, handler=_mma, effects=_WARP),
    Row("mma.sync.aligned{m8n8k16|m16n8k16|m16n8k32}.row.col[satfinite].s32{s8|u8}{s8|u8}.s32", "", _SUM, handler=_mma,
        effects=_WARP),
    Row("mma.sync.aligned{m16n8k32|m16n8k16}.row.col{f16|f32}{e4m3|e5m2}{e4m3|e5m2}{f16|f32}", "", _SUM, handler=_mma,
        effects=_WARP),
    Row("mma.sync.aligned{m8n8k4|m16n8k4|m16n8k8|m16n8k16}.row.col.f64.f64.f64.f64", "", _SUM, handler=_mma, effects=_WARP),
    Row("ldmatrix.sync.aligned.m8n8{x1|x2|x4}[trans]{shared|shared::cta}.b16", "", "loads 8 x 8 matrices", handler=_load_matrix,
        effects=Effects(reads=_SHARED, collective="warp", aligned=True)),
    Row("stmatrix.sync.aligned.m8n8{x1|x2|x4}[trans]{shared|shared::cta}.b16", "", "stores 8 x 8 matrices", handler=_store_matrix,
        effects=Effects(writes=_SHARED, collective="warp", aligned=True)),
    Row("movmatrix.sync.aligned.m8n8.trans.b16", "", "transposes an 8 x 8 matrix", handler=_move_matrix, effects=_WARP),
]  # fmt: skip
