"""Rewrites: what rules may return, and that the driver goes on until nothing applies."""

from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.rewrite import Rewrites
from kbuild.compiler.ir.verify import verify
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import AddI, Constant, MulI, SubI
from kbuild.compiler.ops.tensor import Trans

arithmetic = Rewrites()


@arithmetic.on(AddI)
def add_of_same(op):
    """x + x = x * 2"""
    if op.lhs is op.rhs:
        return MulI(op.lhs, Constant.of(2, op.lhs.type).result)
    return None


@arithmetic.on(SubI)
def subtract_of_same(op):
    """x - x = 0"""
    return Constant.of(0, op.lhs.type) if op.lhs is op.rhs else None


@arithmetic.on(Trans)
def trans_of_trans(op):
    """trans(trans(x, p), q) = trans(x, p∘q)"""
    match op.src.op:
        case Trans(inner, order):
            return Trans(inner, tuple(order[axis] for axis in op.order))
    return None


@arithmetic.on(For)
def forget_stages(op):
    """num_stages of 1 says nothing."""
    if op.num_stages == 1:
        op.num_stages = None
        return op
    return None


def rewritten(text: str) -> tuple[str, dict[str, int]]:
    module = parse_module(text)
    hits = arithmetic.apply(module.kernel)
    verify(module.kernel)
    return print_module(module), dict(hits)


def test_operands_not_yet_in_a_block_are_inserted_and_dead_ones_erased() -> None:
    text, hits = rewritten("""\
tt.func @f(%p: !tt.ptr<i32>, %x: i32) {
  %y: i32 = arith.addi %x, %x
  %zero: i32 = arith.subi %y, %y
  tt.store %p, %zero
  tt.return
}
""")
    assert (
        text
        == """\
tt.func @f(%p: !tt.ptr<i32>, %x: i32) {
  %zero: i32 = arith.constant {value = 0}
  tt.store %p, %zero
  tt.return
}
"""
    )
    assert hits["subtract_of_same"] == 1


def test_chains_collapse_and_operations_may_change_in_place() -> None:
    text, hits = rewritten("""\
tt.func @f(%p: tensor<2x4x8x!tt.ptr<i32>>, %x: tensor<2x4x8xi32>, %n: i32) {
  %a: tensor<4x2x8xi32> = tt.trans %x {order = [1, 0, 2]}
  %b: tensor<8x2x4xi32> = tt.trans %a {order = [2, 1, 0]}
  %c: tensor<2x4x8xi32> = tt.trans %b {order = [1, 2, 0]}
  scf.for %n, %n, %n {num_stages = 1} body(%i: i32) {
    tt.store %p, %c
    scf.yield
  }
  tt.return
}
""")
    assert (
        text
        == """\
tt.func @f(%p: tensor<2x4x8x!tt.ptr<i32>>, %x: tensor<2x4x8xi32>, %n: i32) {
  %c: tensor<2x4x8xi32> = tt.trans %x {order = [0, 1, 2]}
  scf.for %n, %n, %n body(%i: i32) {
    tt.store %p, %c
    scf.yield
  }
  tt.return
}
"""
    )
    assert hits == {"trans_of_trans": 2, "forget_stages": 1}


def test_sets_add() -> None:
    empty = Rewrites()
    assert (empty + arithmetic).rules.keys() == arithmetic.rules.keys()
    assert not empty.rules
