"""Removes what nothing needs: operations without effect whose results are not used, also when they are used
only to compute themselves in the next iteration of a loop, and functions that nothing calls.

    Before:  %s, %t: f32, i32 = scf.for %a, %b, %c, init=[%x, %zero] body(%i: i32, %u: f32, %v: i32) {
               %w: i32 = arith.addi %v, %one
               scf.yield %u2, %w
             }                                       (%t is not used)
    After:   %s: f32 = scf.for %a, %b, %c, init=[%x] body(%i: i32, %u: f32) {
               scf.yield %u2
             }
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ops.control import Call
from kbuild.compiler.transforms._support.carried import drop_dead_carried
from kbuild.targets import Target


@tensor_pass
def dce(module: Module, target: Target) -> None:
    kernel = module.kernel
    for function in module.functions.values():
        drop_dead_carried(function)
    called = {
        op.callee
        for function in module.functions.values()
        for op in function.body.walk()
        if isinstance(op, Call)
    }
    for name in [name for name in module.functions if name != kernel.name and name not in called]:
        del module.functions[name]
