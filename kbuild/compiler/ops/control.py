"""Structured control flow and calls."""

from __future__ import annotations

from kbuild.compiler.ir.core import Block, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import I1, Type
from kbuild.errors import InternalError

TERMINATOR = Trait.TERMINATOR


class Yield(Op, name="scf.yield", traits=TERMINATOR):
    """Ends a loop body or branch with the values that it passes on."""

    values: tuple[Value, ...]


class For(Op, name="scf.for"):
    """`for i in range(lower, upper, step)` over signed integers, `step` > 0; `body` takes i and the carried
    values.

    The attributes are the hints of `tl.range`.
    """

    lower: Value
    upper: Value
    step: Value
    init: tuple[Value, ...]
    body: Block
    num_stages: int | None = None
    loop_unroll_factor: int | None = None
    disallow_acc_multi_buffer: bool = False
    flatten: bool = False
    warp_specialize: bool = False
    disable_licm: bool = False

    def infer(self) -> list[Type]:
        return [value.type for value in self.init]

    @property
    def induction(self) -> Value:
        return self.body.arguments[0]

    @property
    def carried(self) -> list[Value]:
        """The block arguments of the carried values."""
        return self.body.arguments[1:]

    @property
    def yielded(self) -> tuple[Value, ...]:
        return tuple(self.body.terminator.operands)

    def verify(self) -> None:
        types = [value.type for value in self.init]
        for name, values in (("carried", self.carried), ("yielded", self.yielded), ("results", self.results)):
            if [value.type for value in values] != types:
                raise InternalError(f"scf.for: types of {name} differ from those of init", self.loc)


class If(Op, name="scf.if"):
    """Both branches exist, and yield the results."""

    condition: Value
    then_body: Block
    else_body: Block
    types: tuple[Type, ...]

    def verify(self) -> None:
        if self.condition.type != I1:
            raise InternalError("scf.if: condition is not i1", self.loc)
        for block in (self.then_body, self.else_body):
            if [value.type for value in block.terminator.operands] != [
                result.type for result in self.results
            ]:
                raise InternalError("scf.if: a branch yields other types than the results", self.loc)


class Condition(Op, name="scf.condition", traits=TERMINATOR):
    """Ends the `before` block of a while: whether to go on, and the values for `after` or for the results."""

    condition: Value
    values: tuple[Value, ...]


class While(Op, name="scf.while"):
    """`before` tests, ending in `scf.condition`; `after` is the body and yields what `before` takes next."""

    init: tuple[Value, ...]
    before: Block
    after: Block
    types: tuple[Type, ...]


class Call(Op, name="tt.call", traits=Trait.WRITES):
    """Calls another function of the module."""

    args: tuple[Value, ...]
    callee: str
    types: tuple[Type, ...]


class Return(Op, name="tt.return", traits=TERMINATOR):
    """Ends a function with what it returns."""

    values: tuple[Value, ...]
