"""Checks that a function keeps the IR's rules; run after every pass."""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.printer import print_op
from kbuild.compiler.ir.types import TensorType
from kbuild.errors import InternalError


def verify(func: Func) -> None:
    """Raise `InternalError` at the first operation that breaks a rule: definitions before uses, uses recorded
    on both sides, terminators last, elementwise operations over one shape and layout, and each operation's
    own rules."""
    _verify_block(func.body, set())


def _verify_block(block: Block, visible: set[Value]) -> None:
    visible = visible | set(block.arguments)
    last = block.last
    for op in block:
        for operand in op.operands:
            if operand not in visible:
                _fail(op, f"operand {operand} is not defined before it")
            if op not in operand.users:
                _fail(op, f"operand {operand} does not know this user")
        if op.is_terminator != (op is last):
            _fail(op, "a terminator must be the last operation of its block, and only there")
        if op.is_elementwise:
            expected = op.results[0].type
            for operand in op.operands:
                if operand.type is not expected:
                    _verify_elementwise(op)
                    break
        if op.has_rules:
            op.verify()
        if op.region_fields:
            for region in op.regions:
                if region.parent is not op:
                    _fail(op, "its region has another parent")
                _verify_block(region, visible)
        visible.update(op.results)


def _verify_elementwise(op: Op) -> None:
    expected = op.results[0].type
    shape, layout = (expected.shape, expected.layout) if isinstance(expected, TensorType) else ((), None)
    for operand in op.operands:
        type_ = operand.type
        if type_ is expected:
            continue
        if isinstance(type_, TensorType):
            same = type_.shape == shape and (type_.layout is layout or type_.layout == layout)
        else:
            same = not isinstance(expected, TensorType)
        if not same:
            _fail(op, "operands and results differ in shape or layout")


def _fail(op: Op, message: str) -> None:
    raise InternalError(f"{message}:\n    {print_op(op)}", op.loc)
