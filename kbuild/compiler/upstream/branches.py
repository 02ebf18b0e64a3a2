"""Blocks that branch to each other, as structured control flow.

Triton's frontend makes such blocks of returns before a function's end, and of `if` around them.  They never branch
back.  A conditional branch becomes an `scf.if` whose branches reach up to the block where both ways meet, and what
follows comes after it; where a way ends in a return, the `scf.if` yields what is returned.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.ir.types import Type
from kbuild.compiler.upstream.building import Building
from kbuild.compiler.upstream.syntax import RawBlock, RawFunction, RawOp

_END = "^end"
"""The label of the end of a function, where all returns meet."""
MAX_OPS = 1 << 17
"""Operations of a function; where ways share blocks that not all of them reach, each gets a copy."""


def structured(building: Building, raw: RawFunction) -> list[RawOp]:
    """The operations of a function's body, without branches between blocks."""
    if len(raw.body) == 1 and not any(op.successors for op in raw.body[0].ops):
        return raw.body[0].ops
    return _Structuring(building, raw).body()


class _Structuring:
    def __init__(self, building: Building, raw: RawFunction) -> None:
        self.building, self.raw = building, raw
        self.blocks = {block.label: block for block in raw.body}
        self.entry = raw.body[0].label
        self.copies = 0
        self.names = 0
        self.order = self._order()
        self.meeting = self._meeting()

    def body(self) -> list[RawOp]:
        ops, returned = self._way(self.entry, _END)
        last = self._op("tt.return", returned, self.raw.results)
        return [*ops, last]

    def _op(self, name: str, operands: list[str], types: list[Type]) -> RawOp:
        """An operation that the text does not have, at the place of the function."""
        return RawOp(name, self.raw.place, [], operands, operand_types=types, loc=self.raw.loc)

    def _next(self, label: str) -> list[str]:
        """The labels that a block may branch to; its end is that of the function if it returns."""
        block = self.blocks.get(label)
        if block is None or not block.ops:
            self.building.syntax.fail(f"block {label} does not exist, or is empty", self.raw.place)
        return [target for target, _ in block.ops[-1].successors] or [_END]

    def _order(self) -> list[str]:
        """The labels, each before those that it branches to.  Raises CompileError where blocks go around."""
        done: dict[str, None] = {}
        open_: set[str] = set()
        work: list[tuple[str, Iterator[str]]] = [(self.entry, iter(self._next(self.entry)))]
        open_.add(self.entry)
        while work:
            label, following = work[-1]
            target = next(following, None)
            if target is None:
                work.pop()
                open_.discard(label)
                done[label] = None
            elif target in open_:
                self.building.fail(
                    self.blocks[label].ops[-1], "branches back", "kbuild reads loops as scf.for and scf.while"
                )
            elif target != _END and target not in done:
                open_.add(target)
                work.append((target, iter(self._next(target))))
        return [*reversed(done)]

    def _meeting(self) -> dict[str, str]:
        """For each block, the first one that all ways from it reach: its immediate post-dominator."""
        after: dict[str, dict[str, None]] = {_END: {_END: None}}
        for label in reversed(self.order):
            first, *others = [after[target] for target in self._next(label)]
            common = {target: None for target in first if all(target in other for other in others)}
            after[label] = {label: None, **common}
        return {label: next(target for target in after[label] if target != label) for label in self.order}

    def _way(self, label: str, stop: str) -> tuple[list[RawOp], list[str]]:
        """The operations from a block up to another one, and the values that are passed to that."""
        ops: list[RawOp] = []
        passed: list[str] = []
        while label != stop:
            block = self.blocks[label]
            self.copies += len(block.ops)
            if self.copies > MAX_OPS:
                self.building.syntax.fail(
                    "the function's branches cross too often to be structured", self.raw.place
                )
            *body, last = block.ops
            ops += body
            if not last.successors:
                return ops, last.operands
            if len(last.successors) == 1:
                label, passed = last.successors[0]
            else:
                meeting = self.meeting[label]
                made, passed = self._if(last, meeting)
                ops.append(made)
                label = meeting
            if label != stop and label != _END:
                self._pass(ops, self.blocks[label], passed)
            elif label == _END:
                return ops, passed
        return ops, passed

    def _pass(self, ops: list[RawOp], block: RawBlock, passed: list[str]) -> None:
        """Give the arguments of a block the values that are passed to it."""
        if len(passed) != len(block.arguments):
            self.building.syntax.fail(
                f"block {block.label} takes {len(block.arguments)} values", self.raw.place
            )
        for (name, type_), value in zip(block.arguments, passed):
            ops.append(
                RawOp(
                    "kbuild.alias",
                    self.raw.place,
                    [(name, 1)],
                    [value],
                    operand_types=[type_],
                    loc=self.raw.loc,
                )
            )

    def _if(self, branch: RawOp, meeting: str) -> tuple[RawOp, list[str]]:
        """The `scf.if` of a branch whose ways meet at a block, and the names of what it passes to that."""
        types = (
            self.raw.results if meeting == _END else [type_ for _, type_ in self.blocks[meeting].arguments]
        )
        regions: list[list[RawBlock]] = []
        for label, passed in branch.successors:
            inner = RawBlock()
            if label == meeting:
                given = passed
            else:
                self._pass(inner.ops, self.blocks[label], passed)
                ops, given = self._way(label, meeting)
                inner.ops += ops
            inner.ops.append(self._op("scf.yield", given, types))
            regions.append([inner])
        self.names += 1
        name = f"%branch-{self.names}"
        made = RawOp(
            "scf.if", branch.place, [(name, len(types))] if types else [], branch.operands, loc=branch.loc
        )
        made.result_types, made.regions = types, regions
        return made, [f"{name}#{index}" for index in range(len(types))] if len(types) != 1 else [name]
