"""The walk from operations to LLVM text, and the registry of handlers.

    @lower(Trans)
    def lower_trans(emit: Emitter, op: Trans) -> Sequence[str]:
        return emit.registers(op.src)

A handler returns the registers of the operation's result: a sequence of names, best a lazy one (`emit.lazy`);
for several results a `Results` of such sequences; nothing for none.  Operations run in program order; each
has a chunk of its own, in which its lazy registers are written later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kbuild.compiler.ir.core import Block, Op, registered_ops
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.errors import InternalError


class Results(list[Sequence[str]]):
    """The registers of each result of an operation with several."""


Handler = Callable[[Emitter, Any], "Sequence[str] | Results | None"]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Any])
_HANDLERS: dict[type[Op], Handler] = {}


def lower(*classes: type[Op]) -> Callable[[AnyHandler], AnyHandler]:
    """Register the handler of some classes of operations."""

    def register(handler: AnyHandler) -> AnyHandler:
        for cls in classes:
            assert cls not in _HANDLERS, f"{cls.op_name} has two handlers"
            _HANDLERS[cls] = handler
        return handler

    return register


def unhandled_ops() -> list[str]:
    """The operations that have no handler of their own, by mnemonic."""
    return sorted(name for name, cls in registered_ops().items() if cls not in _HANDLERS)


def lower_block(emit: Emitter, block: Block) -> None:
    """Lower the operations of a block, in order, into the current LLVM block and those that they begin."""
    for op in block:
        if op.loc is not emit.loc:
            emit.loc = op.loc
        emit.new_chunk()
        lower_op(emit, op)


def lower_op(emit: Emitter, op: Op) -> None:
    """Lower one operation into the current chunk, and bind its results."""
    handler = _HANDLERS.get(type(op))
    if handler is None:
        raise InternalError(f"{op.op_name} cannot be lowered to LLVM", op.loc)
    registers = handler(emit, op)
    if not op.results:
        return
    assert registers is not None, f"the handler of {op.op_name} gave no registers"
    depth = emit.depth(op.operands) + 1
    results = registers if isinstance(registers, Results) else [registers]
    for result, own in zip(op.results, results, strict=True):
        emit.bind(result, own, depth)


def lower_combine(emit: Emitter, combine: Block, arguments: Sequence[Sequence[str]]) -> list[list[str]]:
    """Apply the function of scalars that a reduction or scan carries.

    `arguments` gives, for each parameter of the function, any number of registers (the same number for all);
    the function is applied to the first of each, the second of each, and so on.  The results in the same
    form.
    """
    for parameter, registers in zip(combine.arguments, arguments, strict=True):
        emit.bind(parameter, registers)
    for op in combine:
        if op is not combine.last:
            lower_op(emit, op)
    return [list(emit.registers(value)) for value in combine.terminator.operands]
