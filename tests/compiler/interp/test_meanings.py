"""Every operation has a meaning, and small kernels do what they say."""

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.interp.elementwise import function_of
from kbuild.compiler.ir.core import registered_ops
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ops.elementwise import Elementwise
from kbuild.errors import InterpretError

WITHOUT_MEANING = {"tt.func", "tt.elementwise_inline_asm"}
"""A function is called, not executed; PTX needs a GPU."""


def run(text: str, *arguments: object, grid: tuple[int, ...] = (1,)) -> None:
    interp.run(parse_module(text, "k.ttir"), list(arguments), grid)


def test_every_operation_has_a_meaning() -> None:
    ops = {name: cls for name, cls in registered_ops().items() if name not in WITHOUT_MEANING}
    assert not [
        name
        for name, cls in ops.items()
        if not cls.traits & Trait.TERMINATOR and interp.meaning_of(cls) is None
    ]
    assert not [
        name for name, cls in ops.items() if issubclass(cls, Elementwise) and function_of(cls) is None
    ]


ADD = """\
tt.func @add(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32) {
  %pid: i32 = tt.get_program_id {axis = 0}
  %size: i32 = arith.constant {value = 64}
  %start: i32 = arith.muli %pid, %size
  %range: tensor<64xi32> = tt.make_range {start = 0, end = 64}
  %0: tensor<64xi32> = tt.splat %start
  %offsets: tensor<64xi32> = arith.addi %0, %range
  %1: tensor<64xi32> = tt.splat %n
  %mask: tensor<64xi1> = arith.cmpi %offsets, %1 {predicate = "slt"}
  %2: tensor<64x!tt.ptr<f32>> = tt.splat %x
  %3: tensor<64x!tt.ptr<f32>> = tt.addptr %2, %offsets
  %4: tensor<64x!tt.ptr<f32>> = tt.splat %y
  %5: tensor<64x!tt.ptr<f32>> = tt.addptr %4, %offsets
  %6: tensor<64xf32> = tt.load %3, mask=%mask
  %7: tensor<64xf32> = tt.load %5, mask=%mask
  %sum: tensor<64xf32> = arith.addf %6, %7
  %8: tensor<64x!tt.ptr<f32>> = tt.splat %out
  %9: tensor<64x!tt.ptr<f32>> = tt.addptr %8, %offsets
  tt.store %9, %sum, mask=%mask
  tt.return
}
"""


def test_vector_addition_over_a_grid() -> None:
    x, y, out = np.arange(100, dtype=np.float32), np.ones(100, np.float32), np.zeros(100, np.float32)
    run(ADD, x, y, out, 100, grid=(2,))
    np.testing.assert_array_equal(out, x + 1)


def test_an_access_out_of_bounds_is_reported_with_its_line() -> None:
    arrays = [np.zeros(100, np.float32) for _ in range(3)]
    text = ADD.replace("tt.load %3, mask=%mask", 'tt.load %3 loc("add.py":5:9)')
    with pytest.raises(InterpretError) as caught:
        run(text, *arrays, 100, grid=(2,))
    assert str(caught.value) == (
        "add.py:5:9: error: read out of bounds: 28 of 64 elements, the first at [36]: "
        "x[100], of 100 elements\n"
        "help: mask the access"
    )


def test_arguments_must_fit() -> None:
    array = np.zeros(100, np.float32)
    for arguments, message in (
        ((array, array, array), "add takes 4 arguments, not 3"),
        ((array, array, 3, 100), "argument out is !tt.ptr<f32>, which takes an array, not 3"),
        ((array, array, array, array), "argument n is i32, which takes a number, not an array"),
        (
            (array, array, array.astype(np.float16), 1),
            "argument out is !tt.ptr<f32>, which takes an array of float32, not float16",
        ),
    ):
        with pytest.raises(InterpretError, match=message.replace("(", r"\(")):
            run(ADD, *arguments)


def test_control_flow() -> None:
    out = np.zeros(3, np.int32)
    run(
        """\
tt.func @f(%p: !tt.ptr<i32>, %n: i32) {
  %zero: i32 = arith.constant {value = 0}
  %one: i32 = arith.constant {value = 1}
  %two: i32 = arith.constant {value = 2}
  %sum: i32 = scf.for %zero, %n, %one, init=[%zero] body(%i: i32, %a: i32) {
    %next: i32 = arith.addi %a, %i
    scf.yield %next
  }
  tt.store %p, %sum
  %power: i32 = scf.while %one before(%w: i32) {
    %go: i1 = arith.cmpi %w, %n {predicate = "slt"}
    scf.condition %go, values=[%w]
  } after(%v: i32) {
    %twice: i32 = arith.muli %v, %two
    scf.yield %twice
  }
  %p1: !tt.ptr<i32> = tt.addptr %p, %one
  tt.store %p1, %power
  %big: i1 = arith.cmpi %sum, %n {predicate = "sgt"}
  %chosen: i32 = scf.if %big then_body() {
    scf.yield %sum
  } else_body() {
    scf.yield %n
  }
  %p2: !tt.ptr<i32> = tt.addptr %p, %two
  tt.store %p2, %chosen
  tt.return
}
""",
        out,
        10,
    )
    assert out.tolist() == [45, 16, 45]


REDUCE = """\
tt.func @f(%x: !tt.ptr<f32>, %sums: !tt.ptr<f32>, %where: !tt.ptr<i32>, %prefixes: !tt.ptr<f32>) {
  %rows: tensor<4xi32> = tt.make_range {start = 0, end = 4}
  %columns: tensor<8xi32> = tt.make_range {start = 0, end = 8}
  %0: tensor<4x1xi32> = tt.expand_dims %rows {axis = 1}
  %1: tensor<4x8xi32> = tt.broadcast %0
  %2: tensor<1x8xi32> = tt.expand_dims %columns {axis = 0}
  %3: tensor<4x8xi32> = tt.broadcast %2
  %eight: tensor<4x8xi32> = arith.constant {value = 8}
  %4: tensor<4x8xi32> = arith.muli %1, %eight
  %5: tensor<4x8xi32> = arith.addi %4, %3
  %6: tensor<4x8x!tt.ptr<f32>> = tt.splat %x
  %7: tensor<4x8x!tt.ptr<f32>> = tt.addptr %6, %5
  %8: tensor<4x8xf32> = tt.load %7
  %9: tensor<4xf32> = tt.reduce %8 {axis = 1} combine(%a: f32, %b: f32) {
    %c: f32 = arith.addf %a, %b
    tt.reduce.return %c
  }
  %largest, %place: tensor<4xf32>, tensor<4xi32> = tt.reduce %8, %3 {axis = 1} combine(%u: f32, %i: i32, %v: f32, %j: i32) {
    %keep: i1 = arith.cmpf %u, %v {predicate = "oge"}
    %w: f32 = arith.select %keep, %u, %v
    %k: i32 = arith.select %keep, %i, %j
    tt.reduce.return %w, %k
  }
  %10: tensor<4x8xf32> = tt.scan %8 {axis = 1, reverse = true} combine(%d: f32, %e: f32) {
    %f: f32 = arith.addf %d, %e
    tt.reduce.return %f
  }
  %11: tensor<4x!tt.ptr<f32>> = tt.splat %sums
  %12: tensor<4x!tt.ptr<f32>> = tt.addptr %11, %rows
  tt.store %12, %9
  %13: tensor<4x!tt.ptr<i32>> = tt.splat %where
  %14: tensor<4x!tt.ptr<i32>> = tt.addptr %13, %rows
  tt.store %14, %place
  %15: tensor<4x8x!tt.ptr<f32>> = tt.splat %prefixes
  %16: tensor<4x8x!tt.ptr<f32>> = tt.addptr %15, %5
  tt.store %16, %10
  tt.return
}
"""


def test_reductions_and_scans_run_their_combine_function() -> None:
    x = np.random.default_rng(1).integers(0, 9, (4, 8)).astype(np.float32)
    sums, where, prefixes = np.zeros(4, np.float32), np.zeros(4, np.int32), np.zeros((4, 8), np.float32)
    run(REDUCE, x, sums, where, prefixes)
    np.testing.assert_array_equal(sums, x.sum(1))
    np.testing.assert_array_equal(where, x.argmax(1))
    np.testing.assert_array_equal(prefixes, x[:, ::-1].cumsum(1)[:, ::-1])


def test_block_pointers_check_boundaries() -> None:
    x, out = np.arange(5 * 6, dtype=np.float16).reshape(5, 6), np.full((8, 8), -1, np.float16)
    run(
        """\
tt.func @f(%x: !tt.ptr<f16>, %out: !tt.ptr<f16>) {
  %two: i32 = arith.constant {value = 2}
  %zero: i32 = arith.constant {value = 0}
  %1: i64 = arith.constant {value = 1}
  %5: i64 = arith.constant {value = 5}
  %6: i64 = arith.constant {value = 6}
  %8: i64 = arith.constant {value = 8}
  %p: !tt.ptr<tensor<8x8xf16>> = tt.make_tensor_ptr %x, shape=[%5, %6], strides=[%6, %1], offsets=[%zero, %zero] {order = [1, 0]}
  %moved: !tt.ptr<tensor<8x8xf16>> = tt.advance %p, offsets=[%two, %zero]
  %v: tensor<8x8xf16> = tt.load %moved {boundary_check = [0, 1], padding = "zero"}
  %o: i32 = arith.constant {value = 0}
  %q: !tt.ptr<tensor<8x8xf16>> = tt.make_tensor_ptr %out, shape=[%8, %8], strides=[%8, %1], offsets=[%o, %o] {order = [1, 0]}
  tt.store %q, %v
  tt.return
}
""",
        x,
        out,
    )
    assert (out[:3, :6] == x[2:]).all() and not out[3:].any() and not out[:, 6:].any()


ASYNC = """\
#linear = linear{register=[[1]], lane=[[2], [4], [8], [16], [32]], warp=[[0], [0]]}
#shared = linear{offset=[[1], [2], [4], [8], [16], [32]]}

tt.func @f(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>) attributes {num_warps = 4} {
  %zero: i32 = arith.constant {value = 0}
  %range: tensor<64xi32, #linear> = tt.make_range {start = 0, end = 64}
  %0: tensor<64x!tt.ptr<f32>, #linear> = tt.splat %x
  %1: tensor<64x!tt.ptr<f32>, #linear> = tt.addptr %0, %range
  %buffers: !ttg.memdesc<2 x 64xf32, #shared> = ttg.local_alloc
  %tile: !ttg.memdesc<64xf32, #shared> = ttg.memdesc_index %buffers, %zero
  ttg.async_copy_global_to_local %1, %tile
  ttg.async_commit_group
  ttg.async_commit_group
  ttg.async_wait {num = 1}
  %2: tensor<64xf32, #linear> = ttg.local_load %tile
  %3: tensor<64x!tt.ptr<f32>, #linear> = tt.splat %out
  %4: tensor<64x!tt.ptr<f32>, #linear> = tt.addptr %3, %range
  tt.store %4, %2
  tt.return
}
"""


def test_an_asynchronous_copy_lands_at_its_wait_and_not_before() -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(ASYNC, x, out)
    np.testing.assert_array_equal(out, x)
    run(ASYNC.replace("num = 1", "num = 2"), x, out)
    assert np.isnan(out).all()


def test_a_masked_asynchronous_copy_keeps_all_bits_of_integers() -> None:
    mask = """\
  %few: tensor<64xi32, #linear> = arith.constant {value = 60}
  %mask: tensor<64xi1, #linear> = arith.cmpi %range, %few {predicate = "slt"}
  ttg.async_copy_global_to_local %1, %tile, mask=%mask
"""
    text = ASYNC.replace("f32", "i64").replace("  ttg.async_copy_global_to_local %1, %tile\n", mask)
    x, out = np.arange(64) + (np.iinfo(np.int64).min + 1), np.ones(64, np.int64)
    run(text, x, out)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 60, x, 0))


def test_shared_memory_placed_by_allocate_may_overlap() -> None:
    intruder = """\
  %zeros: tensor<64xf32, #linear> = arith.constant {value = 0.0}
  %bad: !ttg.memdesc<64xf32, #shared> = ttg.local_alloc src=%zeros {offset = OFFSET}
  %2: tensor<64xf32, #linear> = ttg.local_load %tile
"""
    text = ASYNC.replace("num_warps = 4}", "num_warps = 4, shared = 1024}")
    text = text.replace("= ttg.local_alloc\n", "= ttg.local_alloc {offset = 0}\n")
    text = text.replace("  %2: tensor<64xf32, #linear> = ttg.local_load %tile\n", intruder)
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(text.replace("OFFSET", "512"), x, out)
    np.testing.assert_array_equal(out, x)
    run(text.replace("OFFSET", "128"), x, out)
    np.testing.assert_array_equal(out, np.where(x < 32, x, 0))


def test_atomics_see_each_other() -> None:
    counter, tickets = np.zeros(2, np.int32), np.zeros(8, np.int32)
    run(
        """\
tt.func @f(%counter: !tt.ptr<i32>, %tickets: !tt.ptr<i32>) {
  %range: tensor<8xi32> = tt.make_range {start = 0, end = 8}
  %one: tensor<8xi32> = arith.constant {value = 1}
  %same: tensor<8x!tt.ptr<i32>> = tt.splat %counter
  %old: tensor<8xi32> = tt.atomic_rmw %same, %one {kind = "add"}
  %0: tensor<8x!tt.ptr<i32>> = tt.splat %tickets
  %1: tensor<8x!tt.ptr<i32>> = tt.addptr %0, %range
  tt.store %1, %old
  %c1: i32 = arith.constant {value = 1}
  %lock: !tt.ptr<i32> = tt.addptr %counter, %c1
  %c0: i32 = arith.constant {value = 0}
  %was: i32 = tt.atomic_cas %lock, %c0, %c1
  %again: i32 = tt.atomic_cas %lock, %was, %was
  tt.return
}
""",
        counter,
        tickets,
    )
    assert counter.tolist() == [8, 1] and tickets.tolist() == list(range(8))


def test_elements_of_an_atomic_with_one_address_come_one_after_the_other() -> None:
    """Elements 0, 2, 4, … are for one place each, 1, 3, 5 and 7 for the same; element 6 is masked."""
    places = np.array([1, 7, 2, 7, 3, 7, 4, 7], np.int32)
    sums, values = np.arange(8, dtype=np.float32), 2.0 ** np.arange(8, dtype=np.float32)
    before = np.zeros(8, np.float32)
    run(
        """\
tt.func @f(%places: !tt.ptr<i32>, %values: !tt.ptr<f32>, %sums: !tt.ptr<f32>, %before: !tt.ptr<f32>) {
  %range: tensor<8xi32> = tt.make_range {start = 0, end = 8}
  %0: tensor<8x!tt.ptr<i32>> = tt.splat %places
  %1: tensor<8x!tt.ptr<i32>> = tt.addptr %0, %range
  %place: tensor<8xi32> = tt.load %1
  %2: tensor<8x!tt.ptr<f32>> = tt.splat %values
  %3: tensor<8x!tt.ptr<f32>> = tt.addptr %2, %range
  %value: tensor<8xf32> = tt.load %3
  %six: tensor<8xi32> = arith.constant {value = 6}
  %chosen: tensor<8xi1> = arith.cmpi %range, %six {predicate = "ne"}
  %4: tensor<8x!tt.ptr<f32>> = tt.splat %sums
  %5: tensor<8x!tt.ptr<f32>> = tt.addptr %4, %place
  %old: tensor<8xf32> = tt.atomic_rmw %5, %value, mask=%chosen {kind = "fadd"}
  %6: tensor<8x!tt.ptr<f32>> = tt.splat %before
  %7: tensor<8x!tt.ptr<f32>> = tt.addptr %6, %range
  tt.store %7, %old, mask=%chosen
  tt.return
}
""",
        places,
        values,
        sums,
        before,
    )
    assert before.tolist() == [1, 7, 2, 9, 3, 17, 0, 49]
    assert sums.tolist() == [0, 2, 6, 19, 4, 5, 6, 177]


def test_assertions_stop_the_kernel() -> None:
    with pytest.raises(InterpretError, match=r"assertion failed in program \(0, 0, 0\): n is odd"):
        run(
            """\
tt.func @f(%n: i32) {
  %one: i32 = arith.constant {value = 1}
  %bit: i32 = arith.andi %n, %one
  %even: i1 = arith.cmpi %bit, %one {predicate = "ne"}
  tt.assert %even {message = "n is odd"}
  tt.return
}
""",
            3,
        )
