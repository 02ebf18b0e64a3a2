"""`mma.sp`: MMAs of a warp whose A is half zeros."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa import matrix as tensor
from kbuild.emulator.isa.access import items_of
from kbuild.emulator.isa.collectives import whole_warps
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.matrix.mma_rows import ELEMENT
from kbuild.emulator.isa.places import number
from kbuild.emulator.ptx.model import Instruction, PtxError

_WARP = Effects(collective="warp", aligned=True)


def _product(form: Form, instruction: Instruction) -> Bound:
    """`{d…}, {a…}, {b…}, {c…}, metadata, selector`."""
    if len(instruction.operands) != 6:
        raise PtxError(f"{form.name} takes four lists of registers, metadata and a selector")
    shape = next(modifier for modifier in form.modifiers if modifier.startswith("m16"))
    d, a, b, c = (modifier for modifier in form.modifiers if ELEMENT.match(modifier))
    lists = [items_of(operand) for operand in instruction.operands[:4]]
    selector, ordered = number(instruction.operands[5]), form.has("sp::ordered_metadata")
    starts = np.cumsum([0] + [len(items) for items in (*lists[1:], lists[0])]).tolist()

    def multiply(fragments: list[np.ndarray], metadata: np.ndarray) -> np.ndarray:
        left, right, add = fragments
        return tensor.mma_sparse(
            shape, (d, a, b, c), left, right, add, metadata, selector, ordered, form.has("satfinite")
        )

    def function(metadata: np.ndarray, *views: np.ndarray, where: Any = True) -> None:
        warps = whole_warps(len(metadata), where)
        taking = np.flatnonzero(warps)
        lanes = (taking[:, None] * 32 + np.arange(32)).ravel()
        fragments = [
            np.stack([view[lanes] for view in views[first:last]]).reshape(last - first, len(taking), 32)
            for first, last in pairwise(starts[:4])
        ]
        try:
            results = multiply(fragments, metadata[lanes].reshape(-1, 32))
        except ValueError as error:
            raise Fault("sparse-metadata", str(error)) from None
        for view, result in zip(views[starts[3] :], results):
            view[lanes] = result.ravel()

    blank = [np.zeros((len(items), 1, 32), np.uint32) for items in lists[1:]]
    try:
        found = multiply(blank, np.full((1, 32), 0x44444444, np.uint32))
    except ValueError as error:
        raise PtxError(f"{form.name}: {error}") from None
    if len(found) != len(lists[0]):
        raise PtxError(f"{form.name}: D has {len(found)} registers, not {len(lists[0])}")
    views = tuple(View(item, "b32") for items in (*lists[1:], lists[0]) for item in items)
    return Bound(function, (View(instruction.operands[4], "b32"), *views), wants_warps=False)


def _rows(forms: str, summary: str) -> InstructionSpec:
    return InstructionSpec(
        "mma{sp|sp::ordered_metadata}.sync.aligned" + forms, "", summary, handler=_product, effects=_WARP
    )


_BYTES = "{e4m3|e5m2}{e4m3|e5m2}"

ROWS = [
    _rows("{m16n8k16|m16n8k32}.row.col.f32.f16.f16.f32", "MMA of sparse halves, summed as floats"),
    _rows("{m16n8k16|m16n8k32}.row.col.f16.f16.f16.f16", "MMA of sparse halves"),
    _rows("{m16n8k16|m16n8k32}.row.col.f32.bf16.bf16.f32", "MMA of sparse bfloat16, summed as floats"),
    _rows("{m16n8k8|m16n8k16}.row.col.f32.tf32.tf32.f32", "MMA of sparse TensorFloat-32"),
    _rows(".m16n8k64.row.col.f32" + _BYTES + ".f32", "MMA of sparse 8-bit floats"),
    _rows("{m16n8k32|m16n8k64}.row.col[satfinite].s32{s8|u8}{s8|u8}.s32", "MMA of sparse bytes"),
    _rows("{m16n8k64|m16n8k128}.row.col[satfinite].s32{s4|u4}{s4|u4}.s32", "MMA of sparse half bytes"),
]
