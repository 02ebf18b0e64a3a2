"""Analyses as comments in printed IR, beside the values and operations that they are about.

    %x: tensor<64xi32, #blocked> = tt.make_range {start = 0, end = 64}  // axis_info: contiguity=[64] divisibility=[…] …

A new analysis is a row of `ANALYSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kbuild.compiler.analysis.access import access_width
from kbuild.compiler.analysis.allocation import demands, place
from kbuild.compiler.analysis.axis_info import AxisInfo
from kbuild.compiler.analysis.liveness import Liveness
from kbuild.compiler.analysis.pressure import pressure
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.given import blamed_on
from kbuild.compiler.ir.printer import Notes, print_module
from kbuild.compiler.ir.types import MemDescType, TensorType, is_int, is_pointer, is_tensor
from kbuild.compiler.layout import PendingLayout, WrittenLayout
from kbuild.compiler.ops.gpu import LocalAlloc
from kbuild.compiler.transforms._support.layout_flow import FREE
from kbuild.compiler.transforms.gpu.layout.coalesce import WIDEST_BITS, PointerAccess, find_accesses
from kbuild.compiler.transforms.gpu.layout.remove_conversions.anchors import Anchors, Strength, find_anchors
from kbuild.errors import UsageError, nearest
from kbuild.targets import Target, find_target

Made = dict["Op | Block", list[str]]


class Analysis(NamedTuple):
    """An analysis that can be shown."""

    doc: str
    notes: Callable[[Func, Target], Made]
    """The comments for operations, and for the arguments of blocks."""
    needs_layouts: bool = False


def annotated(module: Module, names: Sequence[str], file: str, target: str = "sm_90") -> str:
    """The text of a module with comments of some analyses for an architecture; it can be read again.

    Raises `UsageError` for a name that is none, and for an analysis that the module's stage is too early for, and
    `CompileError` where the module, read from a file, is not what an analysis expects.
    """
    chosen = [_named(name.strip()) for name in names]
    with blamed_on(file):
        return print_module(module, notes=Notes(_notes(module, chosen, find_target(target))))


def _notes(module: Module, chosen: Sequence[tuple[str, Analysis]], target: Target) -> Made:
    notes: Made = {}
    for func in module.functions.values():
        has_layouts = any(_has_layout(value) for op in func.body.walk() for value in op.results)
        for name, analysis in chosen:
            if analysis.needs_layouts and not has_layouts:
                raise UsageError(
                    f"--print {name}: the module has no layouts", help="it shows ttgir: add -p gpu"
                )
            for place_, found in analysis.notes(func, target).items():
                notes.setdefault(place_, []).extend(f"{name}: {text}" for text in found)
    return notes


def _named(name: str) -> tuple[str, Analysis]:
    if name not in ANALYSES:
        close = nearest(name, ANALYSES)
        known = f'did you mean "{close}"?' if close else f"there are {', '.join(ANALYSES)}"
        raise UsageError(f"--print {name}: no such analysis", help=known)
    return name, ANALYSES[name]


def _has_layout(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is not None


def _of_values(func: Func, text: Callable[[Value], str | None]) -> Made:
    """Comments about values: beside the operation that defines them, or at the start of their block."""
    made: Made = {}
    blocks = [func.body, *(region for op in func.body.walk() for region in op.regions)]
    for place_, values in [
        *((block, block.arguments) for block in blocks),
        *((op, op.results) for block in blocks for op in block),
    ]:
        for value in values:
            found = text(value)
            if found is not None:
                which = (
                    f"%{value.name or value.index} " if len(values) > 1 or isinstance(place_, Block) else ""
                )
                made.setdefault(place_, []).append(which + found)
    return made


# The analyses


def _axis_info(func: Func, target: Target) -> Made:
    info = AxisInfo(func)

    def text(value: Value) -> str | None:
        if not (is_int(value.type) or is_pointer(value.type)):
            return None
        facts = info.get(value)
        words = [
            f"{name}={_numbers(getattr(facts, name))}" for name in ("contiguity", "divisibility", "constancy")
        ]
        words += [f"constant={facts.constant}"] if facts.constant is not None else []
        words += [f"prefix={_numbers(facts.prefix)}"] if facts.prefix else []
        return " ".join(words)

    return _of_values(func, text)


def _numbers(values: Sequence[int]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _liveness(func: Func, target: Target) -> Made:
    liveness, registers = Liveness(func), pressure(func)
    made: Made = {}
    for op, number in liveness.start.items():
        text = f"{number}"
        if isinstance(op, LocalAlloc):
            text += f", memory in use up to {liveness.intervals[op].end}"
        if registers.get(op):
            text += f", {registers[op]:g} registers of tensors"
        made[op] = [text]
    return made


def _allocation(func: Func, target: Target) -> Made:
    wanted = demands(func)
    places, total = place(wanted)
    made: Made = {func.body: [f"{total} bytes of shared memory"]}
    for demand in wanted:
        own = demand.op.attributes.get("offset", demand.op.attributes.get("scratch"))
        start = places[demand.op] if own is None else own
        kind = "" if isinstance(demand.op, LocalAlloc) else "scratch of "
        life = f"in use from {demand.life.start} to {demand.life.end}"
        made[demand.op] = [f"{kind}{demand.bytes} bytes at {start}, {life}"]
    return made


def _coalescing(func: Func, target: Target) -> Made:
    info = AxisInfo(func)
    return {access.op: [_access(access, info)] for access in find_accesses(func, target)}


def _access(access: PointerAccess, info: AxisInfo) -> str:
    """What one instruction may move, what bounds it, and what the layout makes of it."""
    axis, bits = access.order[0], access.bits
    pointers = access.op.operands[0]
    facts, mask = info.get(pointers), getattr(access.op, "mask", None)
    bounds = {
        f"{WIDEST_BITS // 8} bytes of an instruction": WIDEST_BITS // bits,
        f"contiguity {facts.contiguity[axis]}": facts.contiguity[axis],
        f"alignment {facts.divisibility[axis]} bytes": facts.divisibility[axis] * 8 // bits,
    }
    if mask is not None:
        bounds["the mask"] = info.get(mask).prefixes[axis]
    reason = next((name for name, bound in bounds.items() if bound <= access.vector), "the operation")
    text = f"{access.vector} x {bits} bits along axis {axis}, bounded by {reason}"
    layout = pointers.type.layout if isinstance(pointers.type, TensorType) else None
    if layout is not None and not isinstance(layout, PendingLayout):
        width = access_width(layout, facts, info.get(mask) if mask is not None else None, bits, cut=True)
        text += f", {width} in this layout"
    return text


def _layouts(func: Func, target: Target) -> Made:
    anchors = find_anchors(func)

    def text(value: Value) -> str | None:
        layout = value.type.layout if isinstance(value.type, TensorType | MemDescType) else None
        if isinstance(layout, WrittenLayout):
            return f"as its author wrote it: {layout.author}"
        return _origin(value, anchors) if layout is not None and is_tensor(value.type) else None

    return _of_values(func, text)


_ORIGINS = {
    Strength.MEMORY: "fixed here, by the access to memory or the order of elements",
    Strength.LOCAL: "fixed here, by how shared memory is read",
    Strength.DOT: "fixed here, by the instruction of the dot",
}


def _origin(value: Value, anchors: Anchors) -> str:
    """Why a tensor has its layout."""
    op = value.op
    if op is None:
        return "carried"
    if op in anchors.results:
        return _ORIGINS[anchors.results[op]]
    if isinstance(op, FREE):
        return "taken from where it is used, as any would do"
    return "follows from the operands"


ANALYSES: dict[str, Analysis] = {
    "axis_info": Analysis(
        "runs of consecutive and of equal numbers along each axis, and divisors", _axis_info
    ),
    "liveness": Analysis(
        "the number of each operation, how long shared memory is in use, and registers of tensors",
        _liveness,
        True,
    ),
    "allocation": Analysis("the places of shared memory and scratch", _allocation, True),
    "coalescing": Analysis(
        "how much each access to global memory moves at once, and what bounds that", _coalescing
    ),
    "layouts": Analysis("why each tensor has its layout", _layouts, True),
}
"""The analyses by the names that `kbuild opt --print` takes."""
