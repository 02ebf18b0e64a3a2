"""Reductions, scans, gathers and histograms of random layouts, run thread by thread and compared with numpy."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    like,
)
from kbuild.compiler.layout import LinearLayout, blocked, slice_of
from kbuild.compiler.lower import lower_module
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.control import Return
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Gather, Histogram, Load, Reduce, Scan, Splat, Store
from kbuild.targets import find_target
from tests.compiler.layout.random_layouts import random_threads
from tests.compiler.lower.simt import (
    NUMPY,
    affine,
    apply,
    bit_permutation,
    combine,
    execute,
    largest_first,
    operands,
)

SHAPES = [(64,), (1024,), (16, 32), (128, 4), (4, 128), (2, 8, 16), (1, 32), (32, 1)]


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


def divided(source: random.Random, layout: LinearLayout, axis: int) -> tuple[int, ...]:
    """Some of the registers of a reduction's results for some of the lanes along its axis."""
    registers = [*slice_of(layout, axis).bases_of("register")]
    source.shuffle(registers)
    along = [layout.unflatten(basis)[axis] > 0 for basis in layout.bases_of("lane")]
    return tuple(registers.pop() if own and registers and source.random() < 0.8 else 0 for own in along)


@pytest.mark.parametrize("warps", [0, 1, 3])
@pytest.mark.parametrize("shape", [(16, 32), (128, 4), (4, 128), (2, 8, 16), (64, 64)], ids=str)
def test_lanes_divide_the_results(shape, warps):
    source, rng = random.Random(f"{shape}{warps}divided"), np.random.default_rng(14)
    for share in (1, 1, 1, 4):
        layout, axis = bit_permutation(source, shape, warps), source.randrange(len(shape))
        inputs = operands(layout, [I32], rng)
        (value, array), scatter = next(iter(inputs.items())), divided(source, layout, axis)
        op = Reduce((value,), axis, combine([I32], apply(rows.AddI)), scatter=scatter)
        found, _ = execute(op, warps, inputs, share)
        np.testing.assert_array_equal(found[0], np.add.reduce(array, axis=axis, dtype=np.int32))
        inputs = operands(layout, [F64, I32], rng)
        op = Reduce(tuple(inputs), axis, combine([F64, I32], largest_first), True, scatter)
        found, _ = execute(op, warps, inputs, share)
        np.testing.assert_array_equal(found[0], next(iter(inputs.values())).max(axis=axis))


def test_thirty_two_rows_take_31_exchanges():
    layout, scatter = blocked([32, 32], [32, 1], [1, 32], [1, 1], [1, 0]), (1, 2, 4, 8, 16)
    for lanes, exchanges in (((), 160), (scatter, 31)):
        inputs = operands(layout, [F32], np.random.default_rng(15))
        op = Reduce((*inputs,), 1, combine([F32], apply(rows.AddF)), scatter=lanes)
        found, machine = execute(op, 0, inputs)
        np.testing.assert_allclose(found[0], next(iter(inputs.values())).sum(axis=1), rtol=1e-5)
        assert machine.count["nvvm.shfl.sync.bfly.i32"] == exchanges


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
        (I32, dear, 4, 5 + 4, 2),  # By one warp for sixteen, whose result all read.
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
