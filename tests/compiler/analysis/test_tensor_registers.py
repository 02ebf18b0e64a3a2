"""How many registers tensors take."""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import loop_words, words
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For

FUNC = parse_module("""\
#b = blocked{sizePerThread=[1,8], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}
tt.func @f(%n: i32, %a: tensor<32x32xf16, #b>, %z: tensor<32x32xf32, #b>) attributes {num_warps = 4} {
  %c0: i32 = arith.constant {value = 0}
  %c1: i32 = arith.constant {value = 1}
  %s: tensor<32x32xf32, #b> = scf.for %c0, %n, %c1, init=[%z] body(%i: i32, %sum: tensor<32x32xf32, #b>) {
    %p: tensor<32x32xf32, #b> = tt.dot %a, %a, %z
    %next: tensor<32x32xf32, #b> = arith.addf %sum, %p
    scf.yield %next
  }
  tt.return
}
""").kernel


def test_a_thread_holds_its_share_of_a_tensor_and_two_short_elements_in_a_word() -> None:
    n, a, z = FUNC.arguments
    assert [words([value]) for value in (n, a, z)] == [0, 4, 8]
    assert words([n, a, z]) == 12


def test_a_loop_holds_what_it_carries_and_its_largest_dot() -> None:
    (loop,) = (op for op in FUNC.body if isinstance(op, For))
    assert loop_words(loop) == 8 + 8


def test_a_tensor_of_one_number_takes_none() -> None:
    """The operations that use it take the scalar, or have the constant in them."""
    body = parse_module("""\
#b = blocked{sizePerThread=[1,8], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}
tt.func @f(%n: i32) attributes {num_warps = 4} {
  %z: tensor<32x32xf32, #b> = arith.constant {value = 0.0}
  %s: tensor<32x32xi32, #b> = tt.splat %n
  tt.return
}
""").kernel.body
    assert words(value for op in body for value in op.results) == 0
