"""What the producer's thread runs: the loops around the loads, and in them what the loads' indices are
computed from.

scf.for %tile … {                                scf.for %tile … {
  %row = …                                         %row = …
  %acc = scf.for %k … {                            scf.for %k … {
    %a = tt.load …                                   copies of a and b, when their buffers are free
    %b = tt.load …                  becomes        }
    dot                                          }
  }
  store %acc
}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import is_tensor
from kbuild.compiler.ops.control import For, Yield

Issue = Callable[[Builder, dict[Value, Value], list[Value]], list[Value]]
"""Writes what an iteration of the loop issues: where to, the copies of values, and the carried state, of
which it gives the next."""


class Skeleton:
    """The part of a function that some values of one loop depend on, by control flow and by data."""

    def __init__(self, loop: For, roots: Iterable[Value]) -> None:
        self.loop = loop
        self.kept: set[Op] = set()
        """Operations to be copied."""
        self.carried: dict[For, set[int]] = {}
        """Numbers of the carried values to be copied of each loop in the copy."""
        self.is_possible = True
        """Whether the copy costs little and has no effects."""
        self._work = list(roots)
        self._enter(loop)
        while self._work and self.is_possible:
            self._need(self._work.pop())

    def _enter(self, loop: For) -> None:
        op: Op | None = loop
        while op is not None and not isinstance(op, Func):
            if not isinstance(op, For):
                self.is_possible = False
                return
            self._keep_loop(op)
            op = op.parent_op

    def _keep_loop(self, loop: For) -> None:
        if loop not in self.kept:
            self.kept.add(loop)
            self.carried[loop] = set()
            self._work += [loop.lower, loop.upper, loop.step]

    def _need(self, value: Value) -> None:
        if is_tensor(value.type):
            self.is_possible = False
        elif value.op is None:
            self._need_argument(value)
        elif isinstance(value.op, For):
            self._keep_loop(value.op)
            self._need_carried(value.op, value.index)
        elif value.op not in self.kept:
            if value.op.regions or not value.op.has(Trait.PURE):
                self.is_possible = False
            self.kept.add(value.op)
            self._work += value.op.operands

    def _need_argument(self, value: Value) -> None:
        loop = value.block.parent
        if isinstance(loop, For):
            self._keep_loop(loop)
            if value.index:
                self._need_carried(loop, value.index - 1)

    def _need_carried(self, loop: For, number: int) -> None:
        if number not in self.carried[loop]:
            self.carried[loop].add(number)
            self._work += [loop.init[number], loop.yielded[number]]

    def copy(
        self, block: Block, target: Block, state: list[Value], issue: Issue, before: Issue
    ) -> list[Value]:
        """Append the copy of a function's block to `target`; the loop and those around it carry the state,
        which `issue` changes in each iteration of the loop, and `before` each time the loop begins.  Gives
        the state at the end."""
        self.issue, self.before = issue, before
        return self._copy(block, Builder(target), {}, state)

    def _copy(
        self, block: Block, builder: Builder, mapping: dict[Value, Value], state: list[Value]
    ) -> list[Value]:
        for op in block:
            if op not in self.kept:
                continue
            if isinstance(op, For):
                state = self.before(builder, mapping, state) if op is self.loop else state
                state = self._copy_loop(op, builder, mapping, state)
            else:
                builder.add(op.clone(mapping))
        return state

    def _copy_loop(
        self, loop: For, builder: Builder, mapping: dict[Value, Value], state: list[Value]
    ) -> list[Value]:
        kept = sorted(self.carried[loop])
        around = any(inner is self.loop for inner in loop.walk())
        passed = state if around else []
        old = [loop.induction, *(loop.carried[number] for number in kept)]
        names = [*(argument.name for argument in old), *("" for _ in passed)]
        body = Block([argument.type for argument in old] + [value.type for value in passed], names)
        mapping.update(zip(old, body.arguments))
        bounds = [mapping.get(value, value) for value in (loop.lower, loop.upper, loop.step)]
        init = [mapping.get(loop.init[number], loop.init[number]) for number in kept]
        inner, inside = Builder(body, loc=loop.loc), body.arguments[len(old) :]
        following = self._copy(loop.body, inner, mapping, inside)
        if loop is self.loop:
            following = self.issue(inner, mapping, inside)
        inner.add(Yield((*(mapping.get(loop.yielded[n], loop.yielded[n]) for n in kept), *following)))
        copy = builder.add(For(bounds[0], bounds[1], bounds[2], (*init, *passed), body, num_stages=1))
        mapping.update((loop.results[number], copy.results[place]) for place, number in enumerate(kept))
        return copy.results[len(kept) :] if around else state
