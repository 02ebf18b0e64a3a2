"""Computes equal things once: a pure operation equal to one that is visible from it takes that one's results,
and so does a load when nothing was written in between.

    Before:  %0: tensor<64xi32> = tt.splat %n
             %1: tensor<64xi1> = arith.cmpi %i, %0 {predicate = "slt"}
             %2: tensor<64xi32> = tt.splat %n
             %3: tensor<64xi1> = arith.cmpi %i, %2 {predicate = "slt"}
    After:   %0: tensor<64xi32> = tt.splat %n
             %1: tensor<64xi1> = arith.cmpi %i, %0 {predicate = "slt"}

Regions (of reductions and scans) are equal when their operations are, one by one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kbuild.compiler.ir.core import Block, Module, Op, Value
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import has_effects
from kbuild.compiler.ir.traits import Trait
from kbuild.targets import Target


@tensor_pass
def cse(module: Module, target: Target) -> None:
    for function in module.functions.values():
        _Elimination().block(function.body)


class _Elimination:
    def __init__(self) -> None:
        self.known: dict[Hashable, Op] = {}
        """The operations visible from here."""
        self.version = 0
        """Counts writes: loads are equal only within one version of memory."""

    def block(self, block: Block) -> None:
        """Eliminate within a block; what it defines is not visible after it."""
        added: list[Hashable] = []
        for op in block:
            if op.has(Trait.WRITES):
                self.version += 1
            elif op.has(Trait.PURE):
                self.eliminate(op, operation_key(op, {}), added)
            elif op.region_fields:
                self.regions(op)
            elif op.has(Trait.READS):
                self.eliminate(op, (self.version, operation_key(op, {})), added)
        for key in added:
            del self.known[key]

    def regions(self, op: Op) -> None:
        writes = has_effects(op)
        # Memory as the second iteration finds it is not the memory before the loop.
        self.version += writes
        for region in op.regions:
            self.block(region)
            self.version += writes

    def eliminate(self, op: Op, key: Hashable, added: list[Hashable]) -> None:
        earlier = self.known.get(key)
        if earlier is None:
            self.known[key] = op
            added.append(key)
        else:
            op.replace_by(earlier.results)


def operation_key(op: Op, inner: dict[Value, int]) -> Hashable:
    """What equal operations have in common; `inner` numbers the values of the region that holds it."""
    operands: list[Any] = [inner.get(operand, operand) for operand in op.operands]
    if op.has(Trait.COMMUTES):
        operands.sort(key=id)
    types = tuple(result.type for result in op.results) if "type" in op.fields or "types" in op.fields else ()
    return (
        type(op),
        tuple(operands),
        attributes_key(op),
        types,
        *[_region_key(region, inner) for region in op.regions],
    )


def attributes_key(op: Op) -> Hashable:
    """What equal operations have in common besides operands and types."""
    segments = tuple(op._segments) if len(op._segments) > 1 else ()
    return segments, tuple(_attribute_key(op.__dict__[field]) for field in op.attribute_fields)


def _region_key(block: Block, outer: dict[Value, int]) -> Hashable:
    inner = dict(outer)
    for argument in block.arguments:
        inner[argument] = len(inner)
    keys: list[Hashable] = [tuple(argument.type for argument in block.arguments)]
    for op in block:
        keys.append(operation_key(op, inner))
        for result in op.results:
            inner[result] = len(inner)
    return tuple(keys)


def _attribute_key(value: Any) -> Hashable:
    """An attribute such that only equal ones are equal: True is not 1, and 0.0 is not -0.0."""
    return (type(value), repr(value)) if isinstance(value, float | bool) else value
