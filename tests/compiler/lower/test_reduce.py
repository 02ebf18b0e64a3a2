"""Reductions, scans, gathers and histograms of random layouts, run thread by thread and compared with numpy."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import kbuild
from kbuild.compiler.analysis.scratch import scratch_bytes
from kbuild.compiler.backend.cubin import assemble
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.commutes import commutes
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PointerType,
    TensorType,
    Type,
    element_of,
    layout_of,
    like,
)
from kbuild.compiler.layout import LinearLayout, blocked, default_blocked
from kbuild.compiler.lower import lower_module
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.lowering import lower_block
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.control import Return
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Gather, Histogram, Load, Reduce, ReduceReturn, Scan, Splat, Store
from kbuild.targets import find_target
from tests.compiler.layout.random_layouts import random_threads
from tests.compiler.lower.simt import DTYPES, Machine

NUMPY: dict[Type, type] = {
    I1: np.bool_,
    I8: np.int8,
    I16: np.int16,
    I32: np.int32,
    I64: np.int64,
    F16: np.float16,
    F32: np.float32,
    F64: np.float64,
}
SHAPES = [(64,), (1024,), (16, 32), (128, 4), (4, 128), (2, 8, 16), (1, 32), (32, 1)]


def bit_permutation(source: random.Random, shape: Sequence[int], warps: int, copies: int = 1) -> LinearLayout:
    """A layout whose every bit is one bit of one axis, in any order, some of them copies."""
    tensor = [1 << bit for bit in range((LinearLayout.make(shape).numel - 1).bit_length())]
    bases = tensor + [0] * max(copies, 5 + warps - len(tensor))
    source.shuffle(bases)
    return LinearLayout.make(shape, lane=bases[:5], warp=bases[5 : 5 + warps], register=bases[5 + warps :])


def combine(types: Sequence[Type], make: Callable[[Builder, list[Value]], Sequence[Value]]) -> Block:
    """A combine function; `make` writes its body."""
    block = Block([*types, *types])
    build = Builder(block)
    build.add(ReduceReturn(tuple(make(build, block.arguments))))
    return block


def apply(cls: type[Op]) -> Callable[[Builder, list[Value]], list[Value]]:
    return lambda build, arguments: [build.add(cls(*arguments)).result]


def largest_first(build: Builder, arguments: list[Value]) -> list[Value]:
    """The larger value with its index; of equal values the one with the lower index."""
    a, i, b, j = arguments
    greater = build.add(rows.CmpF(a, b, "ogt")).result
    equal = build.add(rows.CmpF(a, b, "oeq")).result
    before = build.add(rows.CmpI(i, j, "slt")).result
    tie = build.add(rows.AndI(equal, before)).result
    wins = build.add(rows.OrI(greater, tie)).result
    return [build.add(rows.Select(wins, a, b)).result, build.add(rows.Select(wins, i, j)).result]


def affine(build: Builder, arguments: list[Value]) -> list[Value]:
    """Composition of x → m·x + c, which does not commute."""
    m, c, n, d = arguments
    product, scaled = build.add(rows.MulI(m, n)).result, build.add(rows.MulI(c, n)).result
    return [product, build.add(rows.AddI(scaled, d)).result]


def execute(
    op: Op, warps: int, inputs: dict[Value, np.ndarray], share: int = 1
) -> tuple[list[np.ndarray], Machine]:
    """Lower an operation alone, run it, and gather its results; every place that holds an element must agree.  It
    gets one part in `share` of the memory that it would take."""
    size = scratch_bytes(op, 1 << warps)
    if share > 1 and size >= share:
        op.__dict__["max_scratch"] = size // share
        size = scratch_bytes(op, 1 << warps)
    op.__dict__["scratch"] = 16 if size else None
    block = Block()
    block.append(op)
    emit = Emitter(Func("kernel", block, {"num_warps": 1 << warps}), find_target("sm_90"))
    registers: dict[str, np.ndarray] = {}
    for number, (value, array) in enumerate(inputs.items()):
        places = hardware(layout_of(value.type) or default_blocked((), 1), warps)
        emit.bind(value, [f"%in{number}.{register}" for register in range(len(places))])
        registers.update({f"%in{number}.{r}": array.reshape(-1)[flat] for r, flat in enumerate(places)})
    lower_block(emit, block)
    found = [list(emit.registers(result)) for result in op.results]
    machine = Machine(registers, 1 << warps, size + 16)
    machine.run(emit.finish())
    assert (machine.shared[:16] == 0xA5).all()
    return [
        collected(machine, result.type, names, warps) for result, names in zip(op.results, found)
    ], machine


def hardware(layout: LinearLayout, warps: int) -> np.ndarray:
    """The flat coordinate that each register (first axis) of each thread (second axis) holds."""
    threads = [layout.flat(lane=thread & 31, warp=thread >> 5) for thread in range(32 << warps)]
    return np.array(layout.registers())[:, None] ^ np.array(threads)[None, :]


def collected(machine: Machine, type_: Type, names: list[str], warps: int) -> np.ndarray:
    layout, element = layout_of(type_) or default_blocked((), 1 << warps), element_of(type_)
    result = np.zeros(layout.numel, NUMPY[element])
    llvm = next(name for name, dtype in DTYPES.items() if dtype == NUMPY[element])
    places = hardware(layout, warps)
    assert len(names) == len(places)
    held = [machine.value(name, llvm) for name in names]
    for flat, values in zip(places, held):
        result[flat] = values
    for flat, values in zip(places, held):
        np.testing.assert_array_equal(result[flat], values, "holders of copies disagree")
    return result.reshape(layout.shape)


def operands(
    layout: LinearLayout, types: Sequence[Type], rng: np.random.Generator
) -> dict[Value, np.ndarray]:
    """Tensors of small random numbers."""
    block = Block([TensorType(layout.shape, type_, layout) for type_ in types])
    ranges = [(0, 2) if type_ == I1 else (-3, 4) for type_ in types]
    arrays = [
        rng.integers(*limits, layout.shape).astype(NUMPY[type_]) for limits, type_ in zip(ranges, types)
    ]
    return dict(zip(block.arguments, arrays))


SIMPLE = [
    (rows.AddF, F32, np.add),
    (rows.AddF, F16, np.add),
    (rows.AddF, F64, np.add),
    (rows.MaxNumF, F16, np.maximum),
    (rows.MaximumF, F32, np.maximum),
    (rows.AddI, I32, np.add),
    (rows.AddI, I8, np.add),
    (rows.AddI, I64, np.add),
    (rows.MinSI, I8, np.minimum),
    (rows.MaxSI, I32, np.maximum),
    (rows.XOrI, I16, np.bitwise_xor),
    (rows.AndI, I1, np.bitwise_and),
    (rows.OrI, I1, np.bitwise_or),
    (rows.MulI, I32, np.multiply),
]


@pytest.mark.parametrize("warps", [0, 1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_and_scans_equal_numpy(shape, warps):
    source, rng = random.Random(f"{shape}{warps}"), np.random.default_rng(3)
    for cls, type_, function in SIMPLE:
        layout, axis = bit_permutation(source, shape, warps), source.randrange(len(shape))
        inputs = operands(layout, [type_], rng)
        (value, array), block = next(iter(inputs.items())), combine([type_], apply(cls))
        with np.errstate(over="ignore"):
            expected = function.reduce(array, axis=axis, dtype=array.dtype)
            prefixes = function.accumulate(array, axis=axis, dtype=array.dtype)
            turned = np.flip(function.accumulate(np.flip(array, axis), axis=axis, dtype=array.dtype), axis)
        np.testing.assert_array_equal(execute(Reduce((value,), axis, block), warps, inputs)[0][0], expected)
        block = combine([type_], apply(cls))
        np.testing.assert_array_equal(execute(Scan((value,), axis, block), warps, inputs)[0][0], prefixes)
        block = combine([type_], apply(cls))
        np.testing.assert_array_equal(
            execute(Scan((value,), axis, block, reverse=True), warps, inputs)[0][0], turned
        )


@pytest.mark.parametrize("warps", [1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_and_scans_in_rounds_equal_numpy(shape, warps):
    """The machine has no more memory than the rounds take; elements that lanes and warps hold take theirs at once."""
    source, rng = random.Random(f"{shape}{warps}rounds"), np.random.default_rng(12)
    for share in (2, 4, 1024):
        for types in ([I32], [F64, I32]):
            layout, axis = bit_permutation(source, shape, warps), source.randrange(len(shape))
            inputs = operands(layout, [I32, I32], rng)
            scan = Scan(tuple(inputs), axis, combine([I32, I32], affine), reverse=source.random() < 0.5)
            expected = affine_prefixes([*inputs.values()], axis, scan.reverse)
            for got, want in zip(execute(scan, warps, inputs, share)[0], expected):
                np.testing.assert_array_equal(got, want)
            inputs = operands(layout, types, rng)
            block = combine(types, largest_first if len(types) > 1 else apply(rows.MaxSI))
            found, _ = execute(Reduce(tuple(inputs), axis, block), warps, inputs, share)
            np.testing.assert_array_equal(found[0], next(iter(inputs.values())).max(axis=axis))


@pytest.mark.parametrize("op", [Reduce, Scan])
def test_registers_divide_what_warps_exchange(op):
    """Sixteen rows of a warp are combined with those of others: 64 columns of 4 slots, or of 16 groups of rows."""
    layout = blocked([64, 64], [1, 2], [1, 32], [4, 1], [1, 0])
    inputs = operands(layout, [I32], np.random.default_rng(13))
    (value, array), whole = next(iter(inputs.items())), 64 * 4 * 4 * (16 if op is Scan else 1)
    function = np.add.accumulate if op is Scan else np.add.reduce
    for share, rounds in ((1, 1), (2, 2), (64, 32 if op is Scan else 2)):
        made = op((value,), 0, combine([I32], apply(rows.AddI)))
        found, machine = execute(made, 2, inputs, share)
        np.testing.assert_array_equal(found[0], function(array, axis=0))
        assert scratch_bytes(made, 4) == whole // rounds
        assert machine.count["nvvm.barrier.cta.sync.aligned.all"] == 2 * rounds - 1


@pytest.mark.parametrize("seed", range(60))
def test_conversions_in_rounds_keep_every_element(seed):
    source, rng = random.Random(seed), np.random.default_rng(seed)
    shape, warps = source.choice([(512,), (32, 32), (64, 64), (4, 16, 16)]), source.choice([1, 2, 3])
    layouts = [
        random_threads(source, shape, warps=warps, replicated=source.randrange(3), mix=source.randrange(3))
        for _ in range(2)
    ]
    type_ = source.choice([I1, I8, F16, F32, F64])
    inputs = operands(layouts[0], [type_], rng)
    ((value, array),) = inputs.items()
    whole = scratch_bytes(ConvertLayout(value, TensorType(shape, type_, layouts[1])), 1 << warps)
    for share in (1, 2, 8, 64):
        op = ConvertLayout(value, TensorType(shape, type_, layouts[1]))
        np.testing.assert_array_equal(execute(op, warps, inputs, share)[0][0], array)
        assert scratch_bytes(op, 1 << warps) <= max(1, whole // share)


@pytest.mark.parametrize("warps", [0, 2, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_functions_that_do_not_commute(shape, warps):
    """`execute` asserts that all holders of a result have the same."""
    source, rng = random.Random(f"{shape}{warps}"), np.random.default_rng(4)
    for _ in range(4):
        layout, axis = bit_permutation(source, shape, warps), source.randrange(len(shape))
        for types in ([F32, I32], [F64, I64]):
            inputs = operands(layout, types, rng)
            values, (array, indices) = tuple(inputs), inputs.values()
            indices[...] = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
            found = execute(Reduce(values, axis, combine(types, largest_first)), warps, inputs)[0]
            np.testing.assert_array_equal(found[0], array.max(axis=axis))
            np.testing.assert_array_equal(found[1], array.argmax(axis=axis))
        inputs = operands(layout, [I32, I32], rng)
        execute(Reduce(tuple(inputs), axis, combine([I32, I32], affine)), warps, inputs)
        for reverse in (False, True):
            scan = Scan(tuple(inputs), axis, combine([I32, I32], affine), reverse=reverse)
            for got, want in zip(
                execute(scan, warps, inputs)[0], affine_prefixes([*inputs.values()], axis, reverse)
            ):
                np.testing.assert_array_equal(got, want)


def affine_prefixes(parts: Sequence[np.ndarray], axis: int, reverse: bool) -> list[np.ndarray]:
    factors, constants = (np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0).copy() for x in parts)
    for place in range(1, len(factors)):
        constants[place : place + 1] += constants[place - 1 : place] * factors[place : place + 1]
        factors[place] *= factors[place - 1]
    results = [np.moveaxis(x, 0, axis) for x in (factors, constants)]
    return [np.flip(x, axis) for x in results] if reverse else results


@pytest.mark.parametrize("warps", [2, 3, 4, 5])
def test_order_is_kept_where_the_layout_goes_along_the_axis(warps):
    """Registers lowest, then lanes, then warps: the reduction of a function that does not commute is exact."""
    rng, layout = np.random.default_rng(5), blocked([128 << warps], [4], [32], [1 << warps], [0])
    inputs = operands(layout, [I32, I32], rng)
    found = execute(Reduce(tuple(inputs), 0, combine([I32, I32], affine)), warps, inputs)[0]
    assert found == [prefix[-1] for prefix in affine_prefixes([*inputs.values()], 0, False)]


def dear(build: Builder, arguments: list[Value]) -> list[Value]:
    """The larger value, found 16 times."""
    left, right = arguments
    for _ in range(16):
        left = build.add(rows.MaxSI(left, right)).result
    return [left]


@pytest.mark.parametrize(
    "type_, function, warps, shuffles, reads",
    [
        (F32, apply(rows.AddF), 3, 5, 2),  # All slots by each thread, in vectors of four.
        (F32, apply(rows.AddF), 4, 5 + 4, 1),
        (I32, dear, 1, 5, 1),
        (I32, dear, 3, 5 + 3 + 1, 1),  # Three combinations in the place of seven, and one result passed on.
    ],
)
def test_lanes_combine_what_warps_have_found_where_that_costs_less(type_, function, warps, shuffles, reads):
    layout = blocked([32 << warps], [1], [32], [1 << warps], [0])
    inputs = operands(layout, [type_], np.random.default_rng(6))
    _, machine = execute(Reduce(tuple(inputs), 0, combine([type_], function)), warps, inputs)
    found = sum(count for name, count in machine.count.items() if "shfl" in name), machine.count["load"]
    assert found == (shuffles, reads)


@pytest.mark.parametrize("warps", [0, 2])
def test_gathers_equal_numpy(warps):
    source, rng = random.Random(6), np.random.default_rng(6)
    kinds = set()
    for number in range(40):
        shape = source.choice(SHAPES)
        axis = source.randrange(len(shape))
        asked = tuple(source.choice([1, 8, 32]) if a == axis else size for a, size in enumerate(shape))
        types = [source.choice([I1, I8, F16, F32, I64]), source.choice([I8, I32, I64])]
        if types[1] == I8 and shape[axis] > 128:
            types[1] = I16
        layouts = [bit_permutation(source, shape, warps), bit_permutation(source, asked, warps, 0)]
        if number % 2 and asked == shape:
            layouts[1] = layouts[0]
        inputs = operands(layouts[0], types[:1], rng)
        inputs |= operands(layouts[1], types[1:], rng)
        (src, indices), (array, places) = inputs, inputs.values()
        places[...] = rng.integers(0, shape[axis], asked)
        op = Gather(src, indices, axis)
        kinds.add(scratch_bytes(op, 1 << warps) > 0)
        found = execute(op, warps, inputs)[0][0]
        np.testing.assert_array_equal(found, np.take_along_axis(array, places.astype(np.int64), axis))
    assert kinds == {False, True}


@pytest.mark.parametrize("warps", [0, 2])
@pytest.mark.parametrize("size, bins, type_", [(512, 16, I32), (64, 128, I8), (32, 2, I64), (1024, 256, I16)])
def test_histograms_equal_numpy(size, bins, type_, warps):
    source, rng = random.Random(7), np.random.default_rng(7)
    layout, result = (
        bit_permutation(source, (size,), warps),
        TensorType((bins,), I32, bit_permutation(source, (bins,), warps)),
    )
    inputs = operands(layout, [type_, I1], rng)
    values, masks = inputs
    inputs[values] = rng.integers(0, min(bins, 128), size).astype(NUMPY[type_])
    for mask in (None, masks):
        counted = inputs[values][inputs[masks]] if mask is not None else inputs[values]
        found = execute(Histogram(values, result, mask), warps, inputs)[0][0]
        np.testing.assert_array_equal(found, np.bincount(counted, minlength=bins))


def test_what_commutes():
    assert commutes(combine([F32], apply(rows.AddF)))
    assert not commutes(combine([F32, I32], largest_first))
    assert not commutes(combine([I32, I32], affine))
    assert commutes(
        combine(
            [I32, I32],
            lambda b, a: [b.add(rows.MaxSI(a[2], a[0])).result, b.add(rows.AddI(a[1], a[3])).result],
        )
    )
    assert not commutes(combine([I32, I32], lambda b, a: [b.add(rows.MaxSI(a[0], a[1])).result, a[3]]))


def test_a_warp_of_integers_takes_one_instruction():
    rng, layout = np.random.default_rng(8), blocked([128], [1], [32], [4], [0])
    for type_, cls, expected in (
        (I32, rows.AddI, {"nvvm.redux.sync.add": 1}),
        (F32, rows.AddF, {"nvvm.shfl.sync.bfly.i32": 5}),
    ):
        inputs = operands(layout, [type_], rng)
        _, machine = execute(Reduce(tuple(inputs), 0, combine([type_], apply(cls))), 2, inputs)
        assert {
            name: count for name, count in machine.count.items() if "redux" in name or "shfl" in name
        } == expected
        assert (machine.count["store"], machine.count["load"]) == (1, 1)


@pytest.mark.parametrize("lanes_hold", ["all values", "a few numbers", "no number"])
@pytest.mark.parametrize("cls, function", [(rows.MaxNumF, np.fmax), (rows.MinNumF, np.fmin)])
@pytest.mark.parametrize("warps", [0, 2, 4])
def test_extremes_of_floats_take_one_instruction_too(cls, function, warps, lanes_hold):
    rng, layout = np.random.default_rng(11), blocked([32 << warps], [1], [32], [1 << warps], [0])
    special = np.array(
        [0, -0.0, 1e-45, -1e-45, 1, -1, 3e38, -3e38, np.inf, -np.inf, np.nan, -np.nan], np.float32
    )
    inputs = operands(layout, [F32], rng)
    (source,) = inputs
    for _ in range(8):
        values = (
            rng.choice(special, 32 << warps)
            if lanes_hold == "all values"
            else np.full(32 << warps, -np.nan, np.float32)
        )
        if lanes_hold == "a few numbers":
            values[rng.integers(0, 32 << warps, 3)] = rng.choice(special[:10], 3)
        inputs[source] = values
        found, machine = execute(Reduce((source,), 0, combine([F32], apply(cls))), warps, inputs)
        np.testing.assert_array_equal(found[0], function.reduce(values))
        assert not any("shfl" in name for name in machine.count)


def test_narrow_partials_share_words():
    rng, layout = np.random.default_rng(9), blocked([4, 32], [4, 1], [1, 32], [1, 1], [1, 0])
    inputs = operands(layout, [F16], rng)
    _, machine = execute(Reduce(tuple(inputs), 1, combine([F16], apply(rows.MaxNumF))), 0, inputs)
    assert machine.count["nvvm.shfl.sync.bfly.i32"] == 2 * 5


ASSEMBLED = [
    *SIMPLE,
    (rows.AddF, BF16, None),
    (rows.MaxUI, I32, None),
    (rows.MinUI, I8, None),
    (rows.MinSI, I32, None),
    (rows.AndI, I32, None),
    (rows.OrI, I16, None),
    (rows.XOrI, I32, None),
    (rows.MaxUI, I64, None),
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_all_forms_assemble(arch):
    """Reductions of every function and type, along an axis of a whole warp and more, in one kernel."""
    block = Block()
    build, layout, target = (
        Builder(block),
        blocked([8, 128], [1, 2], [1, 32], [2, 2], [1, 0]),
        find_target(arch),
    )

    def place(element: Type, shape: Type) -> Value:
        base = block.add_argument(PointerType(element))
        return (
            build.add(Splat(base, like(shape, PointerType(element)))).result
            if isinstance(shape, TensorType)
            else base
        )

    def keep(op: Op) -> None:
        op.__dict__["scratch"] = 0 if scratch_bytes(op, 4) else None
        build.add(op)
        for result in op.results:
            build.add(Store(place(element_of(result.type), result.type), result))

    for cls, type_, _ in ASSEMBLED:
        loaded = build.add(Load(place(type_, TensorType((8, 128), type_, layout)))).result
        for axis in (0, 1):
            keep(Reduce((loaded,), axis, combine([type_], apply(cls))))
            keep(Scan((loaded,), axis, combine([type_], apply(cls))))
        indices = build.add(Load(place(I32, loaded.type))).result
        keep(Gather(loaded, indices, 0))
        keep(Gather(loaded, indices, 1))
    values = build.add(Load(place(I64, TensorType((128,), I64, blocked([128], [1], [32], [4], [0]))))).result
    keep(Histogram(values, TensorType((16,), I32, blocked([16], [1], [32], [4], [0]))))
    build.add(Return(()))
    ptx = to_ptx(lower_module(Module([Func("collectives", block, {"num_warps": 4})]), target), target)
    for name in ("add.s32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32"):
        assert f"redux.sync.{name}" in ptx
    assert assemble(ptx, arch)[0].startswith(b"\x7fELF")


def test_a_constant_is_not_passed_from_lane_to_lane() -> None:
    kernel = f"{Path(__file__).parents[2]}/zoo/kernels/undefined.py:sums_of_constants"
    made = kbuild.compile(kernel, signature={"out": "*i32:16", "n": "i32"}, target="sm_90", num_warps=1)
    assert "shfl" not in made.asm["ptx"]
    assert "-14" in made.asm["ptx"]
