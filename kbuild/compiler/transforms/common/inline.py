"""Puts the bodies of called functions in the place of the calls; only the kernel remains.

    Before:  %y: f32 = tt.call %x {callee = "twice"}
    After:   %y: f32 = arith.addf %x, %x

Each operation's location gains the call's, so errors show all calls that lead there.  Functions cannot call
themselves: a GPU kernel has no stack to grow.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ops.control import Call
from kbuild.errors import CompileError, Loc
from kbuild.targets import Target


@tensor_pass
def inline(module: Module, target: Target) -> None:
    done: set[str] = set()
    _inline_calls(module, module.kernel, done, ())
    for name in [name for name in module.functions if name != module.kernel.name]:
        del module.functions[name]


def _inline_calls(module: Module, function: Func, done: set[str], calling: tuple[str, ...]) -> None:
    """Inline all calls in a function, after those in its callees."""
    if function.name in done:
        return
    done.add(function.name)
    for op in list(function.body.walk()):
        if not isinstance(op, Call):
            continue
        if op.callee == function.name or op.callee in calling:
            raise CompileError(
                f"{op.callee} calls itself", op.loc, "recursion is not possible on a GPU: use a loop"
            )
        if op.callee not in module.functions:
            raise CompileError(f"there is no function {op.callee}", op.loc)
        callee = module.functions[op.callee]
        _inline_calls(module, callee, done, (*calling, function.name))
        replace_call(op, callee)


def replace_call(call: Call, callee: Func) -> None:
    """Put a copy of the callee's body in the place of a call."""
    mapping: dict[Value, Value] = dict(zip(callee.arguments, call.args))
    returned: list[Value] = []
    for op in callee.body:
        if op is callee.body.terminator:
            returned = [mapping.get(value, value) for value in op.operands]
        else:
            copy = op.clone(mapping)
            _set_caller(copy, call.loc)
            call.parent_block.insert(copy, call)
    call.replace_by(returned)


def _set_caller(op: Op, caller: Loc | None) -> None:
    for inner in op.walk():
        inner.loc = inner.loc.called_from(caller) if inner.loc is not None else caller
