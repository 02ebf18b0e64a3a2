"""Moves, packing and unpacking, and conversions between addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.engine import memory
from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.isa.instruction_spec import TYPES, Bound, Form, InstructionSpec, View
from kbuild.emulator.ptx.model import Instruction, PtxError, Sink, Vector

_WINDOWS = {
    "shared": memory.SHARED_WINDOW,
    "local": memory.LOCAL_WINDOW,
    "const": memory.CONST_WINDOW,
    "param": memory.PARAM_WINDOW,
}


def move(source: np.ndarray, target: np.ndarray, where: Any = True) -> None:
    """Copy lanes."""
    np.copyto(target, source, where=where, casting="unsafe")


def _move_block(source: RegisterBlock, target: RegisterBlock) -> None:
    target.write(source.read())


def _move_all(*views: np.ndarray, where: Any = True) -> None:
    half = len(views) // 2
    for source, target in zip(views[:half], views[half:]):
        np.copyto(target, source, where=where)


def _mov(form: Form, instruction: Instruction) -> Bound:
    target, source = instruction.operands
    if form.type == "b128":
        return _mov_halves(instruction)
    if not isinstance(target, Vector) and not isinstance(source, Vector):
        return Bound(move, (View(source, form.type), View(target, form.type)), False, _move_block, 1)
    vector = target if isinstance(target, Vector) else source
    assert isinstance(vector, Vector)
    count = len(vector.items)
    bits = 8 * form.dtype.itemsize
    if count not in (2, 4, 8) or bits // count < 8:
        raise PtxError(f"{instruction.name} cannot have a vector of {count}")
    part = f"b{bits // count}"
    views = [
        (View(source, form.type, index, count), View(item, part))
        if vector is target
        else (View(item, part), View(target, form.type, index, count))
        for index, item in enumerate(vector.items)
        if not isinstance(item, Sink)
    ]
    return Bound(
        _move_all, tuple(pair[0] for pair in views) + tuple(pair[1] for pair in views), wants_warps=False
    )


def _mov_halves(instruction: Instruction) -> Bound:
    """`mov.b128`: both operands are two registers of 64 bits, or one of 128, which is the same."""
    target, source = (
        operand.items if isinstance(operand, Vector) else () for operand in instruction.operands
    )
    if len(target) != 2 or len(source) != 2:
        raise PtxError(f"{instruction.name} moves a register of 128 bits or a vector of two of 64")
    kept = [
        (View(item, "b64"), View(place, "b64"))
        for item, place in zip(source, target)
        if not isinstance(place, Sink)
    ]

    def function(*views: np.ndarray, where: Any = True) -> None:
        half = len(views) // 2
        for value, place in zip([view.copy() for view in views[:half]], views[half:]):
            move(value, place, where)

    return Bound(
        function, tuple(pair[0] for pair in kept) + tuple(pair[1] for pair in kept), wants_warps=False
    )


def _space(form: Form) -> str:
    return next(
        name
        for name in ("global", "shared", "local", "const", "param")
        if any(m.split("::")[0] == name for m in form.modifiers)
    )


def _to_generic(form: Form, instruction: Instruction) -> Bound:
    """`cvta.space` adds the base of the space's window, `cvta.to.space` subtracts it."""
    space = _space(form)
    window = 0 if space == "global" else _WINDOWS[space]
    away = form.has("to")

    def function(source: np.ndarray, target: np.ndarray, where: Any = True) -> None:
        wide = source.astype(np.uint64)
        result = (
            wide & np.uint64(memory.WINDOW_SIZE - 1)
            if away and window
            else wide + np.uint64(0 if away else window)
        )
        move(result, target, where)

    target, source = instruction.operands
    return Bound(function, (View(source, "address"), View(target, "address")), wants_warps=False)


def _is_space(form: Form, instruction: Instruction) -> Bound:
    space = _space(form)

    def function(address: np.ndarray, target: np.ndarray, where: Any = True) -> None:
        windows = address // np.uint64(memory.WINDOW_SIZE)
        inside = [windows == base // memory.WINDOW_SIZE for base in _WINDOWS.values()]
        result = ~np.logical_or.reduce(inside) if space == "global" else inside[list(_WINDOWS).index(space)]
        move(result, target, where)

    target, source = instruction.operands
    return Bound(function, (View(source, "b64"), View(target, "pred")), wants_warps=False)


def _map_shared(form: Form, instruction: Instruction) -> Bound:
    """`mapa`: the address of the same byte in another CTA of the cluster."""
    generic = not any(modifier.startswith("shared") for modifier in form.modifiers)

    def function(source: np.ndarray, rank: np.ndarray, target: np.ndarray, where: Any = True) -> None:
        offset = source.astype(np.uint64) & np.uint64((1 << memory.CTA_SHIFT) - 1)
        address = offset + ((rank.astype(np.uint64) + np.uint64(1)) << np.uint64(memory.CTA_SHIFT))
        move(address + np.uint64(memory.SHARED_WINDOW if generic else 0), target, where)

    target, source, rank = instruction.operands
    return Bound(
        function, (View(source, "address"), View(rank, "u32"), View(target, "address")), wants_warps=False
    )


def _cta_rank(form: Form, instruction: Instruction) -> Bound:
    """`getctarank`: the CTA of the cluster that a shared address lies in."""

    def function(warps: Any, source: np.ndarray, target: np.ndarray, where: Any = True) -> None:
        rank = (source.astype(np.int64) % memory.WINDOW_SIZE >> memory.CTA_SHIFT) - 1
        move(np.where(rank < 0, warps.cta.rank, rank).astype(np.uint32), target, where)

    target, source = instruction.operands
    return Bound(function, (View(source, "address"), View(target, "u32")))


def _policy(form: Form, instruction: Instruction) -> Bound:
    """`createpolicy`: a cache policy is opaque, and nothing here depends on it."""

    def function(target: np.ndarray, where: Any = True) -> None:
        move(np.zeros_like(target), target, where)

    return Bound(function, (View(instruction.operands[0], "b64"),), wants_warps=False)


_ALL = "{pred|b16|b32|b64|b128|u16|u32|u64|s16|s32|s64|f32|f64}"
_SPACES = "{global|shared|local|const|param|shared::cta|shared::cluster}"
_SIZES = "{u32|u64}"
assert set(_ALL[1:-1].split("|")) <= set(TYPES)

ROWS = [
    InstructionSpec("mov" + _ALL, "", "copy, pack into a wider register, or unpack", handler=_mov),
    InstructionSpec(
        "cvta" + _SPACES + _SIZES, "", "address in a space to generic address", handler=_to_generic
    ),
    InstructionSpec(
        "cvta.to" + _SPACES + _SIZES, "", "generic address to address in a space", handler=_to_generic
    ),
    InstructionSpec("isspacep" + _SPACES, "", "whether a generic address lies in a space", handler=_is_space),
    InstructionSpec(
        "mapa[shared::cluster]" + _SIZES, "", "address in another CTA's shared memory", handler=_map_shared
    ),
    InstructionSpec(
        "getctarank[shared::cluster]" + _SIZES, "", "CTA that a shared address lies in", handler=_cta_rank
    ),
    InstructionSpec(
        "createpolicy.fractional{L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged}"
        "[L2::evict_first|L2::evict_unchanged].b64",
        "",
        "cache policy",
        handler=_policy,
    ),
]
