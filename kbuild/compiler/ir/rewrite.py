"""Rewrites: small functions on one operation, collected in sets that add.

    combine = Rewrites()

    @combine.on(Trans)
    def trans_of_trans(op):
        '''trans(trans(x, p), q) = trans(x, p∘q)'''
        match op.src.op:
            case Trans(inner, order):
                return Trans(inner, tuple(order[i] for i in op.order))

A rule returns what replaces the operation: a value, an operation not yet in a block (its operands may be
such, too), a list of them, the operation itself when the rule changed it in place, or None for "does not
apply".  The driver inserts, replaces, erases what nothing uses any more, and looks again at whatever that
touched until nothing applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.traits import Trait

Replacement = Value | Op | Sequence[Value | Op] | None
Rule = Callable[[Any], Replacement]


class Rewrites:
    """Rules by operation class."""

    def __init__(self, rules: dict[type[Op], list[Rule]] | None = None) -> None:
        self.rules: dict[type[Op], list[Rule]] = rules or {}

    def on(self, *classes: type[Op]) -> Callable[[Rule], Rule]:
        """Register a rule for some classes of operations."""

        def register(rule: Rule) -> Rule:
            for cls in classes:
                self.rules.setdefault(cls, []).append(rule)
            return rule

        return register

    def __add__(self, other: Rewrites) -> Rewrites:
        merged = {cls: list(rules) for cls, rules in self.rules.items()}
        for cls, rules in other.rules.items():
            merged.setdefault(cls, []).extend(rules)
        return Rewrites(merged)

    def apply(self, func: Func) -> Counter[str]:
        """Rewrite until nothing applies; how often each rule did."""
        hits: Counter[str] = Counter()
        worklist = list(func.body.walk())
        worklist.reverse()
        while worklist:
            op = worklist.pop()
            if op.parent is None:
                continue
            if is_dead(op):
                worklist.extend(operand.owner for operand in op.operands if isinstance(operand.owner, Op))
                op.erase()
                continue
            rules = self.rules.get(type(op))
            if rules is None:
                continue
            operands = list(op.operands)
            for rule in rules:
                replacement = rule(op)
                if replacement is None:
                    continue
                hits[rule.__name__] += 1
                users = [user for result in op.results for user in result.users]
                inserted = [op] if replacement is op else _replace(op, replacement)
                worklist.extend(operand.owner for operand in operands if isinstance(operand.owner, Op))
                worklist.extend(users)
                if op.region_fields and replacement is op:
                    worklist.extend(inner for region in op.regions for inner in region.walk())
                worklist.extend(reversed(inserted))
                break
        return hits


def is_dead(op: Op) -> bool:
    """Whether nothing uses the results of an operation and it has no effect."""
    for result in op.results:
        if result.users:
            return False
    return not op.is_terminator and not has_effects(op)


def has_effects(op: Op) -> bool:
    """Whether an operation, or one inside it, may change more than its results."""
    if op.has(Trait.WRITES):
        return True
    if op.region_fields:
        return any(has_effects(inner) for region in op.regions for inner in region)
    return not (op.has(Trait.PURE) or op.has(Trait.READS) or op.has(Trait.TERMINATOR))


def _replace(op: Op, replacement: Replacement) -> list[Op]:
    inserted: list[Op] = []
    items = [replacement] if isinstance(replacement, Value | Op) else list(replacement or ())
    values: list[Value] = []
    for item in items:
        if isinstance(item, Op):
            insert_tree(item, op, inserted)
            values.extend(item.results)
        else:
            if item.op is not None:
                insert_tree(item.op, op, inserted)
            values.append(item)
    op.replace_by(values)
    return inserted


def insert_tree(op: Op, before: Op, inserted: list[Op] | None = None) -> None:
    """Insert an operation that is in no block, and first those of its operands that are in none, before
    another."""
    if op.parent is not None:
        return
    for operand in op.operands:
        if operand.op is not None:
            insert_tree(operand.op, before, inserted)
    if op.loc is None:
        op.loc = before.loc
    before.parent_block.insert(op, before)
    if inserted is not None:
        inserted.append(op)


def erase_dead(block: Block) -> None:
    """Remove operations without effect that nothing uses, inside out and last to first."""
    op = block.last
    while op is not None:
        previous = op.prev
        if op.region_fields:
            for region in op.regions:
                erase_dead(region)
        if is_dead(op):
            op.erase()
        op = previous
