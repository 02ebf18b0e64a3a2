"""The rules that layouts keep in ttgir, stated once more and independently of the passes: what no other stage
checks."""

from __future__ import annotations

from kbuild.compiler.ir.core import Module, Op, Value
from kbuild.compiler.ir.printer import print_op
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType, shape_of
from kbuild.compiler.layout import LinearLayout, all_sums
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal
from kbuild.compiler.ops.tensor import (
    AtomicCAS,
    AtomicRMW,
    Broadcast,
    Dot,
    ExpandDims,
    Join,
    Load,
    Reduce,
    Reshape,
    Scan,
    Split,
    Store,
    Trans,
)

Place = tuple[int, int, int]
"""Register, lane and warp."""

_KEPT: set[object] = set()
"""Operations and types that were found to fit."""


def check_layouts(module: Module) -> None:
    """Assert that every operation of a module finds its operands where it needs them, without moving data."""
    for func in module.functions.values():
        for op in func.body.walk():
            tensors = [value for value in (*op.operands, *op.results) if isinstance(value.type, TensorType)]
            key = (
                type(op),
                tuple(value.type for value in tensors),
                getattr(op, "axis", None),
                getattr(op, "order", None),
            )
            if key in _KEPT:
                continue
            _KEPT.add(key)
            for value in tensors:
                layout = _layout(value)
                assert layout.size("warp") == func.attrs["num_warps"] and layout.size("lane") == 32, print_op(
                    op
                )
                assert layout.is_surjective(), f"{value} has a layout that lacks elements:\n{print_op(op)}"
            assert _keeps_rule(op, tensors), f"a layout does not fit:\n{print_op(op)}"


def _keeps_rule(op: Op, tensors: list[Value]) -> bool:
    if op.has(Trait.ELEMENTWISE) or isinstance(
        op, Load | Store | AtomicRMW | AtomicCAS | AsyncCopyGlobalToLocal | Scan
    ):
        return len({_layout(value) for value in tensors}) <= 1
    if isinstance(op, Broadcast):
        sizes = shape_of(op.src.type)
        return _thread_holds(
            op.result, op.src, lambda at: tuple(0 if one == 1 else x for x, one in zip(at, sizes))
        )
    if isinstance(op, ExpandDims):
        return _same_place(op.result, op.src, lambda at: (*at[: op.axis], *at[op.axis + 1 :]))
    if isinstance(op, Trans):
        back = [op.order.index(axis) for axis in range(len(op.order))]
        return _same_place(op.result, op.src, lambda at: tuple(at[axis] for axis in back))
    if isinstance(op, Reshape):
        return _layout(op.result).bases == _layout(op.src).bases
    if isinstance(op, Reduce):
        return _reduced(op)
    if isinstance(op, Join):
        return all(_thread_holds(op.result, half, lambda at: at[:-1]) for half in (op.lhs, op.rhs))
    if isinstance(op, Split):
        return all(
            _thread_holds(half, op.src, lambda at, bit=bit: (*at, bit)) for bit, half in enumerate(op.results)
        )
    if isinstance(op, Dot):
        return _operands_near(op)
    return True


def _layout(value: Value) -> LinearLayout:
    assert isinstance(value.type, TensorType) and value.type.layout is not None, f"{value} has no layout"
    return value.type.layout


def _held(layout: LinearLayout, lane: int, warp: int) -> set[tuple[int, ...]]:
    start = layout.flat(lane=lane, warp=warp)
    return {layout.unflatten(start ^ flat) for flat in all_sums(layout.bases_of("register"))}


def _threads(layout: LinearLayout) -> list[tuple[int, int]]:
    """One thread for each bit: the rest follows by linearity."""
    lanes = [(1 << bit, 0) for bit in range(layout.bits("lane"))]
    return [(0, 0), *lanes, *((0, 1 << bit) for bit in range(layout.bits("warp")))]


def _thread_holds(result: Value, source: Value, origin) -> bool:
    """Whether every thread holds the origins of the elements that it holds of the result."""
    there, here = _layout(source), _layout(result)
    return all(
        {origin(at) for at in _held(here, lane, warp)} <= _held(there, lane, warp)
        for lane, warp in _threads(here)
    )


def _same_place(result: Value, source: Value, origin) -> bool:
    """Whether every register of every thread of the result has its origin in the same register of the source."""
    there, here = _layout(source), _layout(result)
    places = [{dim: 1 << bit} for dim, bases in here.bases for bit in range(len(bases))]
    return here.dims == there.dims and all(
        origin(here.coordinates(**at)) == there.coordinates(**at) for at in places
    )


def _reduced(op: Reduce) -> bool:
    if len({_layout(src) for src in op.srcs}) > 1:
        return False
    if not isinstance(op.results[0].type, TensorType):
        return True
    source, axis = _layout(op.srcs[0]), op.axis
    together = list(all_sums([1 << bit for bit, step in enumerate(op.scatter) if step]))
    return all(
        set().union(*(_held(_layout(result), lane ^ other, warp) for other in together))
        == {(*at[:axis], *at[axis + 1 :]) for at in _held(source, lane, warp)}
        for result in op.results
        for lane, warp in _threads(source)
    )


def _operands_near(op: Dot) -> bool:
    """Whether each thread (of a scalar dot) or warp (of a tensor core's) holds what it multiplies, and C
    lies as D."""
    if _layout(op.c) != _layout(op.result):
        return False
    k, result = shape_of(op.a.type)[-1], _layout(op.result)
    for lane, warp in (
        _threads(result) if not op.atom else [(0, 1 << bit) for bit in range(result.bits("warp"))]
    ):
        lanes = range(32) if op.atom else [lane]
        c, a, b = (
            set().union(*(_held(_layout(v), each, warp) for each in lanes)) for v in (op.result, op.a, op.b)
        )
        for *batch, row, column in c:
            if any((*batch, row, depth) not in a or (*batch, depth, column) not in b for depth in range(k)):
                return False
    return True
