"""Which arrays addresses belong to, and which arrays a kernel writes."""

from __future__ import annotations

from kbuild.compiler.analysis.bases import base_of, may_be_written, written_bases
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.tensor import Load, PointerWrite


def kernel(body: str) -> Func:
    return parse_module(f"""\
tt.func @f(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %table: !tt.ptr<i64>, %n: i32, %x: f32) {{
  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
  %r: tensor<8xi32> = tt.make_range {{start = 0, end = 8}}
{body}
  tt.return
}}
""").kernel


def written(func: Func) -> set[str] | None:
    bases = written_bases(func)
    return None if bases is None else {base.name for base in bases}


def test_an_address_is_computed_from_one_pointer() -> None:
    func = kernel("""
  %all: tensor<8x!tt.ptr<f32>> = tt.splat %a
  %each: tensor<8x!tt.ptr<f32>> = tt.addptr %all, %r
  %row: tensor<1x8x!tt.ptr<f32>> = tt.expand_dims %each {axis = 0}
  %y: tensor<1x8xf32> = tt.load %row
""")
    (load,) = (op for op in func.body if isinstance(op, Load))
    assert base_of(load.ptr) is func.arguments[0]
    assert written(func) == set() and not may_be_written(load.ptr, func)


def test_a_loop_may_move_a_pointer_on() -> None:
    func = kernel("""
  %end: !tt.ptr<f32> = scf.for %c0, %n, %c1, init=[%a] body(%i: i32, %p: !tt.ptr<f32>) {
    tt.store %p, %x
    %next: !tt.ptr<f32> = tt.addptr %p, %c1
    scf.yield %next
  }
""")
    assert written(func) == {"a"}


def test_every_operation_that_writes_by_pointers_counts() -> None:
    func = kernel("""
  tt.store %a, %x
  %old: f32 = tt.atomic_rmw %b, %x {kind = "fadd"}
""")
    assert written(func) == {"a", "b"}
    assert all(may_be_written(op.ptr, func) for op in func.body if isinstance(op, PointerWrite))


def test_an_address_out_of_memory_may_be_that_of_any_array() -> None:
    func = kernel("""
  %number: i64 = tt.load %table
  %p: !tt.ptr<f32> = tt.int_to_ptr %number
  tt.store %p, %x
""")
    assert written(func) is None and may_be_written(func.arguments[0], func)


def test_an_address_out_of_memory_may_be_where_another_array_is_written() -> None:
    func = kernel("""
  %number: i64 = tt.load %table
  %p: !tt.ptr<f32> = tt.int_to_ptr %number
  %y: f32 = tt.load %p
  tt.store %b, %y
""")
    unseen, known = (
        op.ptr for op in func.body if isinstance(op, Load | PointerWrite) and op.ptr is not func.arguments[2]
    )
    assert (
        may_be_written(unseen, func)
        and may_be_written(known, func)
        and not may_be_written(func.arguments[0], func)
    )


def test_a_loop_may_alternate_between_arrays() -> None:
    func = kernel("""
  %last: !tt.ptr<f32> = scf.for %c0, %n, %c1, init=[%a] body(%i: i32, %p: !tt.ptr<f32>) {
    tt.store %p, %x
    scf.yield %b
  }
""")
    assert written(func) == {"a", "b"} and may_be_written(func.arguments[1], func)
    assert base_of(next(op for op in func.body.walk() if isinstance(op, PointerWrite)).ptr) is None


def test_so_may_a_while_loop() -> None:
    func = kernel("""
  %last: !tt.ptr<f32> = scf.while %a before(%p: !tt.ptr<f32>) {
    %more: i1 = arith.cmpi %n, %c0 {predicate = "sgt"}
    scf.condition %more, values=[%p]
  } after(%q: !tt.ptr<f32>) {
    tt.store %q, %x
    scf.yield %b
  }
""")
    assert written(func) == {"a", "b"}


def test_an_address_may_be_chosen() -> None:
    func = kernel("""
  %first: i1 = arith.cmpi %n, %c0 {predicate = "sgt"}
  %p: !tt.ptr<f32> = arith.select %first, %a, %b
  tt.store %p, %x
""")
    assert written(func) == {"a", "b"} and not may_be_written(func.arguments[2], func)
