"""`wmma`: loads, MMAs and stores of matrices that lie in fragments of a warp."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.access import address_of, items_of, space_of
from kbuild.emulator.isa.collectives import whole_warps
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.matrix.mma_rows import ELEMENT
from kbuild.emulator.isa.matrix.wmma import WmmaFragment, multiply_fragments
from kbuild.emulator.ptx.model import Instruction, Operand, PtxError

_WARP = Effects(collective="warp", aligned=True)
_READS = Effects(reads=("generic",), collective="warp", aligned=True)
_WRITES = Effects(writes=("generic",), collective="warp", aligned=True)


class _WmmaTile:
    """A matrix in memory, as a load or a store sees it: `[address]{, stride}`, the same for all threads of a
    warp."""

    def __init__(
        self, form: Form, instruction: Instruction, role: str, operands: tuple[Operand, ...]
    ) -> None:
        self.instruction, self.space = instruction, space_of(form)
        shape = next(
            modifier for modifier in form.modifiers if modifier[0] == "m" and modifier[1:2].isdigit()
        )
        self.fragment = WmmaFragment(role, shape, form.modifiers[-1])
        self.by_rows = form.has("row")
        self.base, self.offset = address_of(operands[0])
        self.strides = tuple(View(operand, "u32") for operand in operands[1:2])

    def views(self, registers: Operand) -> tuple[View, ...]:
        """The views of the address, the stride and the registers.  Raises PtxError where these are too few or
        too many."""
        items = items_of(registers)
        if len(items) != self.fragment.registers:
            raise PtxError(
                f"{self.instruction.name} needs {self.fragment.registers} registers, not {len(items)}"
            )
        return (self.base, *self.strides, *(View(item, f"b{self.fragment.word}") for item in items))

    def addresses(
        self, lanes: np.ndarray, start: np.ndarray, given: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, int]:
        """The address of each lane's elements [warps * 32, elements], and their size; of those below a byte,
        words of 4."""
        fragment = self.fragment
        rows, columns = fragment.places
        base = _uniform(start[lanes], "addresses").astype(np.int64) + self.offset
        stride = (
            _uniform(given[0][lanes], "strides").astype(np.int64)
            if given
            else fragment.size[1 if self.by_rows else 0]
        )
        stride = np.broadcast_to(stride, base.shape)
        step = 32 // fragment.bits if fragment.bits < 8 else 1
        major, minor = (rows, columns) if self.by_rows else (columns, rows)
        within = np.tile(minor[:, ::step], (len(lanes) // 32, 1))
        places = np.tile(major[:, ::step], (len(lanes) // 32, 1)) * stride[:, None] + within
        found = base[:, None] + places * fragment.bits // 8
        return found.astype(start.dtype), 4 if fragment.bits < 8 else fragment.bits // 8


def _uniform(values: np.ndarray, what: str) -> np.ndarray:
    """Values of whole warps.  Raises Fault where the threads of one have different ones."""
    if (values.reshape(-1, 32) != values.reshape(-1, 32)[:, :1]).any():
        raise Fault("divergent-collective", f"the threads of a warp give different {what} of a matrix")
    return values


def _lanes(count: int, where: Any) -> np.ndarray:
    """The lanes of the warps that take part."""
    return (np.flatnonzero(whole_warps(count, where))[:, None] * 32 + np.arange(32)).ravel()


def _load(form: Form, instruction: Instruction) -> Bound:
    """`{registers}, [address]{, stride}`."""
    tile = _WmmaTile(form, instruction, form.choose("a", "b", "c"), instruction.operands[1:])
    count = len(tile.strides)

    def function(batch: Any, start: np.ndarray, *views: np.ndarray, where: Any = True) -> None:
        lanes = _lanes(len(start), where)
        addresses, size = tile.addresses(lanes, start, views[:count])
        site = (batch, instruction, lanes)
        loaded = [batch.memory.load(tile.space, column, size, True, site) for column in addresses.T]
        values = np.stack(loaded, -1).reshape(-1, 32, len(loaded))
        registers = values.transpose(2, 0, 1) if tile.fragment.bits < 8 else tile.fragment.packed(values)
        for view, register in zip(views[count:], registers):
            view[lanes] = register.ravel()

    return Bound(function, tile.views(instruction.operands[0]))


def _store(form: Form, instruction: Instruction) -> Bound:
    """`[address], {registers}{, stride}`."""
    tile = _WmmaTile(form, instruction, "d", (instruction.operands[0], *instruction.operands[2:]))
    count = len(tile.strides)

    def function(batch: Any, start: np.ndarray, *views: np.ndarray, where: Any = True) -> None:
        lanes = _lanes(len(start), where)
        addresses, size = tile.addresses(lanes, start, views[:count])
        values = tile.fragment.unpacked(
            np.stack([view[lanes] for view in views[count:]]).reshape(len(views) - count, -1, 32)
        )
        for column, data in zip(addresses.T, values.reshape(len(lanes), -1).T):
            batch.memory.store(
                tile.space, column, np.ascontiguousarray(data), size, True, (batch, instruction, lanes)
            )

    return Bound(function, tile.views(instruction.operands[1]))


def _multiply(form: Form, instruction: Instruction) -> Bound:
    """`{d…}, {a…}, {b…}, {c…}`."""
    shape = next(modifier for modifier in form.modifiers if modifier[0] == "m" and modifier[1:2].isdigit())
    kinds = [modifier for modifier in form.modifiers if ELEMENT.match(modifier)]
    d, a, b, c = (kinds[0], "f16", "f16", kinds[1]) if len(kinds) == 2 else kinds
    target = WmmaFragment("d", shape, d)
    factors = (WmmaFragment("a", shape, a), WmmaFragment("b", shape, b), WmmaFragment("c", shape, c))
    lists = [items_of(operand) for operand in (*instruction.operands[1:], instruction.operands[0])]
    needed = [fragment.registers for fragment in (*factors, target)]
    if [len(items) for items in lists] != needed:
        raise PtxError(
            f"{form.name} needs {needed[3]} registers of D, {needed[0]} of A, {needed[1]} of B and {needed[2]} of C"
        )
    starts = np.cumsum([0, *needed]).tolist()
    operation, saturate = form.choose("and", "xor"), form.has("satfinite")

    def function(*views: np.ndarray, where: Any = True) -> None:
        lanes = _lanes(len(views[0]), where)
        registers = [
            np.stack([view[lanes] for view in views[first:last]]).reshape(last - first, -1, 32)
            for first, last in pairwise(starts[:4])
        ]
        for view, result in zip(
            views[starts[3] :], multiply_fragments(target, factors, registers, saturate, operation)
        ):
            view[lanes] = result.ravel()

    fragments = (*factors, target)
    views = tuple(
        View(item, f"b{fragment.word}") for fragment, items in zip(fragments, lists) for item in items
    )
    return Bound(function, views, wants_warps=False)


_SPACES = "[global|shared|shared::cta|shared::cluster]"
_SHAPES, _LAYOUT = "{m16n16k16|m8n32k16|m32n8k16}", "{row|col}"
_TYPES = (
    (_SHAPES, "f16|bf16|s8|u8"),
    (".m16n16k8", "tf32"),
    (".m8n8k4", "f64"),
)
_SUMS = ((_SHAPES, "f16|f32|s32"), (".m16n16k8", "f32"), (".m8n8k4", "f64"), ("{m8n8k32|m8n8k128}", "s32"))


def _loads(role: str, shapes: str, kinds: str, layout: str = _LAYOUT) -> InstructionSpec:
    what = "accumulator" if role == ".c" else "operand"
    pattern = f"wmma.load{role}.sync.aligned{layout}{shapes}{_SPACES}{{{kinds}}}"
    return InstructionSpec(pattern, "", f"load an {what} of an MMA", handler=_load, effects=_READS)


def _mma(forms: str, summary: str, head: str = "wmma.mma.sync.aligned{row|col}{row|col}") -> InstructionSpec:
    return InstructionSpec(head + forms, "", summary, handler=_multiply, effects=_WARP)


ROWS = [
    *(_loads("{a|b}", shapes, kinds) for shapes, kinds in _TYPES),
    *(
        _loads(role, shape, kind, layout)
        for role, layout in ((".a", ".row"), (".b", ".col"))
        for shape, kind in ((".m8n8k32", "s4|u4"), (".m8n8k128", "b1"))
    ),
    *(_loads(".c", shapes, kinds) for shapes, kinds in _SUMS),
    *(
        InstructionSpec(
            f"wmma.store.d.sync.aligned{_LAYOUT}{shapes}{_SPACES}{{{kinds}}}",
            "",
            "store the result of an MMA",
            handler=_store,
            effects=_WRITES,
        )
        for shapes, kinds in _SUMS
    ),
    _mma(_SHAPES + "{f16|f32}{f16|f32}", "MMA of halves"),
    _mma(_SHAPES + ".f32.bf16.bf16.f32", "MMA of bfloat16, summed as floats"),
    _mma(".m16n16k8.f32.tf32.tf32.f32", "MMA of TensorFloat-32"),
    _mma(".m8n8k4[rn].f64.f64.f64.f64", "MMA of doubles"),
    _mma(_SHAPES + ".s32.s8.s8.s32[satfinite]", "MMA of bytes"),
    _mma(_SHAPES + ".s32.u8.u8.s32[satfinite]", "MMA of bytes"),
    _mma(".m8n8k32.s32.s4.s4.s32[satfinite]", "MMA of half bytes", "wmma.mma.sync.aligned.row.col"),
    _mma(".m8n8k32.s32.u4.u4.s32[satfinite]", "MMA of half bytes", "wmma.mma.sync.aligned.row.col"),
    _mma(".m8n8k128.s32.b1.b1.s32", "MMA of bits", "wmma.mma{and|xor}.popc.sync.aligned.row.col"),
]
