"""The interpreter itself: programs, blocks of operations, control flow, and the table of meanings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from kbuild.compiler.interp.formats import Array, value_dtype
from kbuild.compiler.interp.memory import GlobalMemory, SharedTile
from kbuild.compiler.interp.programs import Index, Programs, spin_of
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ops.control import Call, For, If, While
from kbuild.errors import InterpretError

Meaning = Callable[["Machine", Any], Any]
MEANINGS: dict[type[Op], Meaning] = {}
MAX_ROUNDS = 1 << 20
"""Rounds of a `while` after which it is assumed to have no end."""


def means(*classes: type[Op]) -> Callable[[Meaning], Meaning]:
    """Register a function of the machine and an operation as the meaning of some classes.

    It returns the result's value, a tuple of them, or None.  A class without a meaning takes its base's.
    """

    def register(function: Meaning) -> Meaning:
        for cls in classes:
            MEANINGS[cls] = function
        return function

    return register


def meaning_of(cls: type[Op]) -> Meaning | None:
    """The meaning of a class of operations."""
    for base in cls.__mro__:
        if base in MEANINGS:
            return MEANINGS[base]
    return None


class PendingValue:
    """A tensor that is being computed asynchronously."""

    def __init__(self, value: Array) -> None:
        self.value = value
        self.ended = False
        self.spoiled = False

    def shown(self) -> Array:
        """The value that a reader sees: all bits set, which is NaN, until it has ended."""
        if self.ended and not self.spoiled:
            return self.value
        return np.full_like(self.value, np.nan if self.value.dtype.kind == "f" else -1)

    def end(self) -> None:
        self.ended = True


class PendingCopy:
    """A copy into a tile that may not have landed."""

    def __init__(self, tile: SharedTile, values: Array) -> None:
        self.tile, self.values = tile, values
        self.has_landed = False

    def land(self) -> None:
        """The copy is complete, if it was not."""
        if not self.has_landed:
            self.tile.write(self.values)
        self.has_landed = True


class Machine:
    """One program of the grid: the values defined so far, and the memory."""

    def __init__(
        self,
        module: Module,
        memory: GlobalMemory,
        program: Index,
        grid: Index,
        shared: int,
        programs: Programs | None = None,
    ) -> None:
        self.module = module
        self.memory = memory
        self.program = program
        self.grid = grid
        self.programs = programs
        """The grid's programs, which wait for each other; None for one that is alone."""
        self.values: dict[Value, Any] = {}
        self.shared = np.full(shared, 0xFF, np.uint8)
        """Dynamic shared memory: all bits set, which is NaN, until something is written."""
        self.copies: list[PendingCopy] = []
        """Asynchronous copies issued and in no group yet."""
        self.groups: list[list[PendingCopy]] = []
        self.counting: dict[tuple[int, int], Any] = {}
        """Barriers in shared memory that count the bytes of copies, by where they are."""
        self.outgoing: list[Any] = []
        """Copies from tiles to memory that may not have been done, oldest first."""
        self.turns: Any = None
        """The parts of the program that run at once, of which this is one; None where there are none."""
        self.dots: list[PendingValue] = []
        """Asynchronous dots issued and not waited for, oldest first."""

    def part(self) -> Machine:
        """A part of the program whose warps run beside the others: it shares memory and the values so far, and
        issues copies and dots of its own."""
        other = copy(self)
        other.values = dict(self.values)
        other.copies, other.groups, other.outgoing, other.dots = [], [], [], []
        return other

    def __getitem__(self, value: Value) -> Any:
        """What reading a value gives; `values` has what is passed on."""
        found = self.values[value]
        return found.shown() if isinstance(found, PendingValue) else found

    def call(self, function: Func, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The values a function returns."""
        self.values.update(zip(function.arguments, arguments))
        return self.run(function.body)

    def run(self, block: Block, arguments: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Execute a block; the values of its terminator's operands."""
        values = self.values
        values.update(zip(block.arguments, arguments))
        for op in block:
            if op.is_terminator:
                return tuple(values[operand] for operand in op.operands)
            meaning = meaning_of(type(op))
            if meaning is None:
                raise InterpretError(f"{op.op_name} has no meaning without a GPU", op.loc)
            outcome = meaning(self, op)
            if len(op.results) == 1 and not isinstance(outcome, tuple):
                values[op.results[0]] = outcome
            elif op.results:
                values.update(zip(op.results, outcome, strict=True))
        raise InterpretError("a block ends without a terminator")

    def write_copies(self, count: int) -> None:
        """The oldest copies from tiles are done: in any order, so here the last comes first."""
        for one in reversed(self.outgoing[:count]):
            one.write(self)
        del self.outgoing[:count]

    def finish(self) -> None:
        """The program, or a part of it, ends, and its copies with it."""
        for one in self.outgoing:
            if not one.is_read:
                raise InterpretError("a program ends while TMA reads its shared memory", one.op.loc)
        self.write_copies(len(self.outgoing))


def run_grid(
    module: Module,
    memory: GlobalMemory,
    arguments: Sequence[Any],
    grid: Index,
    some: Sequence[Index] = (),
) -> None:
    """All programs of a grid, axis 0 fastest, or `some` of them, one after the other; interleaved where they wait for
    each other."""
    kernel = module.kernel
    shared = int(kernel.attrs.get("shared", 0))

    def work(programs: Programs, index: Index) -> None:
        machine = Machine(module, memory, index, grid, shared, programs)
        machine.call(kernel, arguments)
        machine.finish()

    indices = some or [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    with np.errstate(all="ignore"):
        Programs(indices, work, memory).run()


@means(For)
def run_for(machine: Machine, op: For) -> tuple[Any, ...]:
    lower, upper, step = (int(machine[value]) for value in (op.lower, op.upper, op.step))
    if step <= 0:
        raise InterpretError(f"a loop's step is {step}, and must be positive", op.loc)
    carried = tuple(machine.values[value] for value in op.init)
    dtype = value_dtype(op.lower.type)
    for index in range(lower, upper, step):
        carried = machine.run(op.body, (dtype(index), *carried))
    return carried


@means(While)
def run_while(machine: Machine, op: While) -> tuple[Any, ...]:
    carried, spin = tuple(machine[value] for value in op.init), None
    for number in range(MAX_ROUNDS):
        if number == 1:
            spin = spin_of(machine.programs, op, machine.module.functions)
        go_on, *tested = machine.run(op.before, carried)
        if not go_on:
            return tuple(tested)
        following = machine.run(op.after, tested)
        if spin is not None:
            spin.round(carried, following)
        carried = following
    raise InterpretError(f"a loop has no end after {MAX_ROUNDS} rounds", op.loc)


@means(If)
def run_if(machine: Machine, op: If) -> tuple[Any, ...]:
    condition = machine[op.condition]
    if np.ndim(condition):  # inside a combine function, which runs for many elements at once
        both = zip(machine.run(op.then_body), machine.run(op.else_body))
        return tuple(np.where(condition, one, other) for one, other in both)
    return machine.run(op.then_body if condition else op.else_body)


@means(Call)
def run_call(machine: Machine, op: Call) -> tuple[Any, ...]:
    return machine.call(machine.module.functions[op.callee], [machine[value] for value in op.args])
