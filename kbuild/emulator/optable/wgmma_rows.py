"""Matrix instructions of a warpgroup: `wgmma`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbuild.emulator.asyncp.timing import unit_of
from kbuild.emulator.asyncp.wgmma_queue import Issue, Product, WgmmaQueue
from kbuild.emulator.findings import Fault
from kbuild.emulator.optable.access import items_of
from kbuild.emulator.optable.async_rows import number_of
from kbuild.emulator.optable.collectives import whole_warps
from kbuild.emulator.optable.row import Bound, Effects, Form, Row, View
from kbuild.emulator.ptx import Instruction, PtxError, Vector

_WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32}
_NO_SIGNS = ("s8", "u8")


def _product(form: Form, instruction: Instruction) -> Product:
    """What the modifiers and the numbers at the end of an instruction say."""
    shape = next(modifier for modifier in form.modifiers if modifier.startswith("m64n"))
    n = int(shape[4:].split("k")[0])
    kinds = form.types
    assert len(kinds) == 3
    in_registers = isinstance(instruction.operands[1], Vector)
    numbers = [number_of(instruction, index) for index in range(4, len(instruction.operands))]
    signs = 0 if kinds[1] in _NO_SIGNS else 2
    turns = (1 if in_registers else 2) if _WIDTHS.get(kinds[1]) == 16 else 0
    if len(numbers) != signs + turns:
        raise PtxError(f"{instruction.name} takes {signs + turns} numbers at its end, {len(numbers)} are there")
    if any(value not in (-1, 1) for value in numbers[:signs]) or any(value not in (0, 1) for value in numbers[signs:]):
        raise PtxError(f"{instruction.name}: signs are 1 or -1, and transpositions 0 or 1")
    negate = signs == 2 and numbers[0] != numbers[1]
    flags = [value == 1 for value in numbers[signs:]] or [False, False]
    return Product(n, kinds, negate, (False, *flags)[-2:], form.has("satfinite"))  # type: ignore[arg-type]


def same_bits(values: np.ndarray, where: Any, what: str) -> int:
    """The value that all lanes give.  Raises Fault where they differ."""
    chosen = values if where is True else values[where]
    if (chosen != chosen[0]).any():
        raise Fault("wgmma-misuse", f"the threads of a warpgroup give different {what}")
    return int(chosen[0])


def _groups(values: np.ndarray, convoy: Any, where: Any) -> list[tuple[int, np.ndarray]]:
    """The warps taking part by warpgroup: the group's lanes as a mask, and its warps."""
    warps = np.flatnonzero(whole_warps(len(values), where)) + convoy.first
    return [(group, warps[warps // 4 == group]) for group in np.unique(warps // 4).tolist()]


def _issue(form: Form, instruction: Instruction) -> Bound:
    product = _product(form, instruction)
    result, a = items_of(instruction.operands[0]), instruction.operands[1]
    in_registers = isinstance(a, Vector)
    sources = items_of(a)
    if len(result) != product.result_registers or (in_registers and len(sources) != 4):
        raise PtxError(f"{instruction.name} with {len(result)} registers of D and {len(sources)} of A")
    views = (
        View(instruction.operands[2], "b64"), View(instruction.operands[3], "pred"),
        *(View(item, "b32" if in_registers else "b64") for item in sources), *(View(item, "b32") for item in result),
    )  # fmt: skip

    def function(convoy: Any, b: np.ndarray, scale: np.ndarray, *rest: np.ndarray, where: Any = True) -> None:
        queue = unit_of(convoy.cta, WgmmaQueue)
        left, out = rest[: len(sources)], rest[len(sources) :]
        for _, warps in _groups(b, convoy, where):
            lanes = slice(32 * (int(warps[0]) - convoy.first), 32 * (int(warps[-1]) - convoy.first + 1))
            first = left if in_registers else same_bits(left[0][lanes], True, "descriptors of A")
            queue.issue(Issue(
                convoy, instruction, product, first, same_bits(b[lanes], True, "descriptors of B"),
                bool(same_bits(scale[lanes], True, "predicates")), out, warps, np.empty(0, np.int64),
            ))  # fmt: skip

    return Bound(function, views)


def _warps(convoy: Any, where: Any) -> np.ndarray:
    return np.flatnonzero(whole_warps(convoy.size, where)) + convoy.first


def _commit(form: Form, instruction: Instruction) -> Bound:
    def function(convoy: Any, where: Any = True) -> None:
        unit_of(convoy.cta, WgmmaQueue).commit(_warps(convoy, where))

    return Bound(function)


def _wait(form: Form, instruction: Instruction) -> Bound:
    allowed = number_of(instruction, 0)

    def function(convoy: Any, where: Any = True) -> None:
        unit_of(convoy.cta, WgmmaQueue).wait(_warps(convoy, where), allowed)

    return Bound(function)


def _fence(form: Form, instruction: Instruction) -> Bound:
    def function(convoy: Any, where: Any = True) -> None:
        whole_warps(convoy.size, where)

    return Bound(function)


def _shapes(k: int, columns: list[int]) -> str:
    return "{" + "|".join(f"m64n{n}k{k}" for n in columns) + "}"


_EVERY = list(range(8, 257, 8))
_WHOLE = [8, 16, 24, *range(32, 257, 16)]
_WARP = Effects(collective="warp", aligned=True)
_PRODUCT = Effects(reads=("shared",), asynchronous=True, collective="warp", aligned=True)
_SUM = "product of a warpgroup, added to registers"
_NAME = "wgmma.mma_async.sync.aligned"

ROWS = [
    Row(f"{_NAME}{_shapes(16, _EVERY)}{{f32|f16}}.f16.f16", "", _SUM, handler=_issue, effects=_PRODUCT),
    Row(f"{_NAME}{_shapes(16, _EVERY)}.f32.bf16.bf16", "", _SUM, handler=_issue, effects=_PRODUCT),
    Row(f"{_NAME}{_shapes(8, _EVERY)}.f32.tf32.tf32", "", _SUM, handler=_issue, effects=_PRODUCT),
    Row(f"{_NAME}{_shapes(32, _EVERY)}{{f32|f16}}{{e4m3|e5m2}}{{e4m3|e5m2}}", "", _SUM, handler=_issue, effects=_PRODUCT),
    Row(f"{_NAME}{_shapes(32, _WHOLE)}.s32[satfinite]{{s8|u8}}{{s8|u8}}", "", _SUM, handler=_issue, effects=_PRODUCT),
    Row("wgmma.fence.sync.aligned", "", "orders registers before products", handler=_fence, effects=_WARP),
    Row("wgmma.commit_group.sync.aligned", "", "ends a group of products", handler=_commit, effects=_WARP),
    Row("wgmma.wait_group.sync.aligned", "", "waits for all but the last groups", handler=_wait, effects=_WARP),
]  # fmt: skip
