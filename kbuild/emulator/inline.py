"""Calls put into their callers, so that the engine sees one flat list of statements per kernel.

Parameters of a call are variables that both sides name; the callee's names for them become the caller's.  Everything else of a
callee gets a suffix of its own for each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kbuild.emulator.ptx import (
    Address,
    Function,
    Guard,
    Instruction,
    Label,
    Module,
    Not,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Variable,
    Vector,
)


@dataclass(frozen=True)
class Flat:
    """A kernel without calls of defined functions."""

    statements: tuple[Instruction | Label, ...]
    registers: Mapping[str, str]
    """Type of each register."""
    variables: tuple[Variable, ...]
    """Shared and local variables that functions declare."""
    parameters: tuple[Variable, ...]


def flatten(module: Module, entry: Function) -> Flat:
    """The statements of a kernel with all calls inlined.  Raises PtxError for recursion."""
    flattener = _Flattener(module)
    statements = tuple(flattener.expand(entry, {}, "", (entry.name,)))
    return Flat(statements, flattener.registers, tuple(flattener.variables), entry.parameters)


class _Flattener:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.calls = 0

    def expand(
        self, function: Function, names: dict[str, str], suffix: str, stack: tuple[str, ...]
    ) -> Iterator[Instruction | Label]:
        """The statements of one function; `names` says what its parameters are called by the caller."""
        self.registers.update((name + suffix, kind) for name, kind in function.registers.items())
        names = {**names, **{statement.name: statement.name + suffix for statement in _declared(function)}}
        renamer = _Renamer(names, suffix)
        end = f"$end{suffix}"
        for statement in function.body or ():
            if isinstance(statement, Label):
                yield Label(renamer.name(statement.name))
            elif isinstance(statement, Variable) and statement.space in ("shared", "local"):
                self.variables.append(replace(statement, name=names[statement.name]))
            elif isinstance(statement, Instruction):
                if statement.opcode == "call":
                    yield from self._call(renamer.instruction(statement), stack)
                elif statement.opcode == "ret" and suffix:
                    yield replace(renamer.instruction(statement), opcode="bra", modifiers=(), operands=(Symbol(end),))
                else:
                    yield renamer.instruction(statement)
        if suffix:
            yield Label(end)

    def _call(self, instruction: Instruction, stack: tuple[str, ...]) -> Iterator[Instruction | Label]:
        lists = [operand.items for operand in instruction.operands if isinstance(operand, Vector)]
        target = next((operand for operand in instruction.operands if not isinstance(operand, Vector)), None)
        if not isinstance(target, Symbol):
            raise PtxError(f"line {instruction.line}: only direct calls are known: {instruction}")
        function = self.module.function(target.name)
        if function.body is None:
            yield instruction
            return
        if function.name in stack:
            raise PtxError(f"line {instruction.line}: recursive call of {function.name}")
        if instruction.guard is not None:
            raise PtxError(f"line {instruction.line}: a call under a predicate is not known: {instruction}")
        results = lists[0] if function.results else ()
        arguments = lists[-1] if function.parameters else ()
        formal = (*function.results, *function.parameters)
        actual = (*results, *arguments)
        if len(formal) != len(actual) or not all(isinstance(operand, Symbol) for operand in actual):
            raise PtxError(f"line {instruction.line}: {instruction} does not fit the declaration of {function.name}")
        names = {variable.name: str(operand) for variable, operand in zip(formal, actual)}
        self.calls += 1
        yield from self.expand(function, names, f"@{self.calls}", (*stack, function.name))


def _declared(function: Function) -> Iterator[Label | Variable]:
    for statement in function.body or ():
        if isinstance(statement, Label | Variable):
            yield statement


@dataclass(frozen=True)
class _Renamer:
    """Puts a callee's own names in place of the ones it was written with."""

    names: Mapping[str, str]
    suffix: str

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def instruction(self, instruction: Instruction) -> Instruction:
        if not self.suffix:
            return instruction
        guard = instruction.guard
        if guard is not None:
            guard = Guard(Register(guard.register.name + self.suffix), guard.negated)
        return replace(instruction, operands=tuple(map(self.operand, instruction.operands)), guard=guard)

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            return Register(operand.name + self.suffix)
        if isinstance(operand, Symbol):
            return Symbol(self.name(operand.name), operand.offset)
        if isinstance(operand, Not):
            return Not(Register(operand.register.name + self.suffix))
        if isinstance(operand, Vector):
            return Vector(tuple(map(self.operand, operand.items)), operand.brackets)
        if isinstance(operand, Pair):
            first, second = self.operand(operand.first), self.operand(operand.second)
            return replace(operand, first=first, second=second)
        if isinstance(operand, Address):
            base, coordinates = self.operand(operand.base), operand.coordinates
            return replace(operand, base=base, coordinates=self.operand(coordinates) if coordinates else None)
        return operand
