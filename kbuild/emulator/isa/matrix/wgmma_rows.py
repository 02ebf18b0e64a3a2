"""`wgmma`: MMAs of warpgroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbuild.emulator.async_ops import agent_of
from kbuild.emulator.async_ops.wgmma import Registers, Shape, WgmmaQueues
from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.engine.register_block import RegisterBlock
from kbuild.emulator.isa.collectives import whole_warps
from kbuild.emulator.isa.instruction_spec import Bound, Effects, Form, Fragment, InstructionSpec, View
from kbuild.emulator.isa.matrix import ELEMENT_BITS
from kbuild.emulator.isa.matrix.mma import shape_of
from kbuild.emulator.isa.places import number
from kbuild.emulator.ptx.model import Instruction, PtxError, Vector


def _shape(form: Form, instruction: Instruction, registers: bool) -> Shape:
    """The shape that modifiers and trailing immediates state.  Raises PtxError where there are too few or too many of
    these."""
    _, columns, _ = shape_of(next(modifier for modifier in form.modifiers if modifier.startswith("m64n")))
    kind_d, kind_a, kind_b = form.types
    given = [number(operand) for operand in instruction.operands[4:]]
    halves = ELEMENT_BITS[kind_a] == 16
    expected = 0 if kind_d == "s32" else 2 + ((1 if registers else 2) if halves else 0)
    if len(given) != expected:
        raise PtxError(
            f"{instruction.name} takes {expected} immediates after the predicate, found {len(given)}"
        )
    scales, transposed = (given[:2] or [1, 1]), [bool(bit) for bit in given[2:]]
    if any(scale not in (1, -1) for scale in scales):
        raise PtxError(f"{instruction.name} scales by 1 or -1, found {scales}")
    left, right = {0: (False, False), 1: (False, *transposed), 2: tuple(transposed)}[len(transposed)]
    if columns % 16 and columns > 24 and kind_d == "s32":
        raise PtxError(f"{instruction.name}: with integers, N above 24 must be a multiple of 16")
    return Shape(columns, kind_d, kind_a, kind_b, scales[0], scales[1], left, right, form.has("satfinite"))


def _multiply(form: Form, instruction: Instruction) -> Bound:
    """`{d…}, {a…} or descriptor, descriptor, scale-d, immediates`."""
    d, a, b, scale = instruction.operands[:4]
    if not isinstance(d, Vector):
        raise PtxError(f"{instruction.name} needs the registers of D")
    shape = _shape(form, instruction, isinstance(a, Vector))
    count = shape.columns // (4 if shape.kind_d == "f16" else 2)
    if len(d.items) != count or (isinstance(a, Vector) and len(a.items) != 4):
        raise PtxError(f"{instruction.name} needs {count} registers for D and 4 for A")
    left = _fragment(a) if isinstance(a, Vector) else View(a, "b64")
    names = Registers(tuple(map(str, d.items)), tuple(map(str, a.items)) if isinstance(a, Vector) else ())

    def function(
        warps: Any, of_d: RegisterBlock, of_a: Any, of_b: np.ndarray, scales: np.ndarray, where: Any = True
    ) -> None:
        wgmmas = agent_of(warps.cta).wgmmas
        for first, last in _segments(warps, where):
            lanes = slice(32 * first, 32 * last)
            right, accumulates = (
                _uniform(of_b[lanes], "descriptor of B"),
                bool(_uniform(scales[lanes], "scale-d")),
            )
            if isinstance(of_a, RegisterBlock):
                operand = of_a.part(lanes.start, lanes.stop)
            else:
                operand = _uniform(of_a[lanes], "descriptor of A")
            site = (warps, instruction, np.arange(32 * first, 32 * last))
            target = of_d.part(lanes.start, lanes.stop)
            wgmmas.issue(site, warps.first + first, shape, names, target, operand, right, accumulates)

    return Bound(function, (_fragment(d), left, View(b, "b64"), View(scale, "pred")))


def _fragment(registers: Vector) -> Fragment:
    return Fragment(tuple(View(item, "b32") for item in registers.items))


def _segments(warps: Any, where: Any) -> list[tuple[int, int]]:
    """Runs of whole warps (first, behind the last; counted in the batch) that take part, none of two
    warpgroups."""
    if where is True and warps.count == 1:
        return [(0, 1)]
    taking = np.flatnonzero(whole_warps(warps.size, where)).tolist()
    found: list[tuple[int, int]] = []
    for warp in taking:
        if found and found[-1][1] == warp and (warps.first + warp) % 4:
            found[-1] = (found[-1][0], warp + 1)
        else:
            found.append((warp, warp + 1))
    return found


def _uniform(values: np.ndarray, what: str) -> int:
    if (values != values[0]).any():
        raise Fault("wgmma-divergent", f"the threads of a warpgroup have different values of the {what}")
    return int(values[0])


def _for_warps(method: Callable[[WgmmaQueues, list[int]], None]) -> Callable[[Form, Instruction], Bound]:
    """A handler that calls a method with the warps that are here."""

    def handler(form: Form, instruction: Instruction) -> Bound:
        def function(warps: Any, where: Any = True) -> None:
            whole_warps(warps.size, where)
            method(agent_of(warps.cta).wgmmas, warps.warps_in(where))

        return Bound(function)

    return handler


def _wait(form: Form, instruction: Instruction) -> Bound:
    allowed = number(instruction.operands[0])

    def function(warps: Any, where: Any = True) -> None:
        whole_warps(warps.size, where)
        agent_of(warps.cta).wgmmas.wait(warps.warps_in(where), allowed, (warps, instruction))

    return Bound(function)


def _names(depth: int, columns: range) -> str:
    return "|".join(f"m64n{count}k{depth}" for count in columns)


_COLUMNS = range(8, 257, 8)
_WGMMA = Effects(reads=("shared",), asynchronous=True, collective="warp", aligned=True)
_WARP = Effects(collective="warp", aligned=True)
_HEAD = "wgmma.mma_async.sync.aligned"

ROWS = [
    *(
        InstructionSpec(_HEAD + forms, "", "MMA of a warpgroup", handler=_multiply, effects=_WGMMA)
        for forms in (
            f"{{{_names(16, _COLUMNS)}}}{{f32|f16}}.f16.f16",
            f"{{{_names(16, _COLUMNS)}}}.f32.bf16.bf16",
            f"{{{_names(8, _COLUMNS)}}}.f32.tf32.tf32",
            f"{{{_names(32, _COLUMNS)}}}{{f32|f16}}{{e4m3|e5m2}}{{e4m3|e5m2}}",
            f"{{{_names(32, _COLUMNS)}}}.s32[satfinite]{{s8|u8}}{{s8|u8}}",
        )
    ),
    InstructionSpec(
        "wgmma.fence.sync.aligned",
        "",
        "orders registers before wgmmas",
        handler=_for_warps(WgmmaQueues.fence),
        effects=_WARP,
    ),
    InstructionSpec(
        "wgmma.commit_group.sync.aligned",
        "",
        "end a group of wgmmas",
        handler=_for_warps(WgmmaQueues.commit),
        effects=_WARP,
    ),
    InstructionSpec(
        "wgmma.wait_group.sync.aligned",
        "",
        "wait for all groups of wgmmas but the last few",
        handler=_wait,
        effects=_WARP,
    ),
]
