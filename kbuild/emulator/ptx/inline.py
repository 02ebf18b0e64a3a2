"""Calls put into their callers, so that the engine sees one flat list of statements per kernel, of simple
branches and registers.

Parameters of a call are variables that both sides name; the callee's names for them become the caller's.
Everything else of a callee gets a suffix of its own for each call.

A register of 128 bits becomes a vector of its halves.  `brx.idx` becomes a comparison and a branch for each
of its labels; the instruction itself stays after them, for an invalid index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kbuild.emulator.ptx.model import (
    Address,
    BranchTargets,
    Immediate,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    Predicate,
    PtxError,
    PtxFunction,
    PtxModule,
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


def flatten(module: PtxModule, entry: PtxFunction) -> Flat:
    """The statements of a kernel with all calls inlined.  Raises PtxError for recursion."""
    flattener = _Flattener(module)
    statements = tuple(flattener.expand(entry, {}, "", (entry.name,)))
    return Flat(statements, flattener.registers, tuple(flattener.variables), entry.parameters)


class _Flattener:
    def __init__(self, module: PtxModule) -> None:
        self.module = module
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.calls = 0
        self.switches = 0

    def expand(
        self, function: PtxFunction, names: dict[str, str], suffix: str, stack: tuple[str, ...]
    ) -> Iterator[Instruction | Label]:
        """The statements of one function; `names` says what its parameters are called by the caller."""
        for name, kind in function.registers.items():
            halves = _halves(name + suffix) if kind == "b128" else (Register(name + suffix),)
            self.registers.update((half.name, "b64" if kind == "b128" else kind) for half in halves)
        wide = frozenset(name for name, kind in function.registers.items() if kind == "b128")
        names = {**names, **{statement.name: statement.name + suffix for statement in _declared(function)}}
        renamer = _Renamer(names, suffix, wide)
        end = f"$end{suffix}"
        targets = {
            statement.name: statement.labels
            for statement in function.body or ()
            if isinstance(statement, BranchTargets)
        }
        for statement in function.body or ():
            if isinstance(statement, Label):
                yield Label(renamer.name(statement.name))
            elif isinstance(statement, Variable) and statement.space in ("shared", "local"):
                self.variables.append(replace(statement, name=names[statement.name]))
            elif isinstance(statement, Instruction):
                if statement.opcode == "brx":
                    yield from self._branches(statement, renamer, targets)
                elif statement.opcode == "call":
                    yield from self._call(renamer.instruction(statement), stack)
                elif statement.opcode == "ret" and suffix:
                    yield replace(
                        renamer.instruction(statement), opcode="bra", modifiers=(), operands=(Symbol(end),)
                    )
                else:
                    yield renamer.instruction(statement)
        if suffix:
            yield Label(end)

    def _branches(
        self, instruction: Instruction, renamer: _Renamer, targets: Mapping[str, tuple[str, ...]]
    ) -> Iterator[Instruction | Label]:
        """`brx.idx index, list`: branches of two ways."""
        index, among = instruction.operands if len(instruction.operands) == 2 else (None, None)
        if index is None or not isinstance(among, Symbol) or among.name not in targets:
            raise PtxError(f"line {instruction.line}: {instruction} names no list of .branchtargets")
        self.switches += 1
        over, chosen = Label(f"$over#{self.switches}"), Register(f"%chosen#{self.switches}")
        self.registers[chosen.name] = "pred"
        instruction = renamer.instruction(
            replace(instruction, operands=(index, Immediate(str(len(targets[among.name])))))
        )
        if instruction.guard is not None:
            skips = Predicate(instruction.guard.register, not instruction.guard.negated)
            yield replace(instruction, opcode="bra", modifiers=(), operands=(Symbol(over.name),), guard=skips)
        for number, label in enumerate(targets[among.name]):
            given = (chosen, instruction.operands[0], Immediate(str(number)))
            yield replace(instruction, opcode="setp", modifiers=("eq", "u32"), operands=given, guard=None)
            target = (Symbol(renamer.name(label)),)
            yield replace(instruction, opcode="bra", modifiers=(), operands=target, guard=Predicate(chosen))
        yield replace(instruction, guard=None)
        yield over

    def _call(self, instruction: Instruction, stack: tuple[str, ...]) -> Iterator[Instruction | Label]:
        lists = [operand.items for operand in instruction.operands if isinstance(operand, Vector)]
        target = next((operand for operand in instruction.operands if not isinstance(operand, Vector)), None)
        if isinstance(target, Register):
            yield from self._calls_by_address(instruction, target, lists, stack)
            return
        if not isinstance(target, Symbol):
            raise PtxError(f"line {instruction.line}: a call of nothing: {instruction}")
        function = self.module.function(target.name)
        if function.body is None:
            yield instruction
            return
        if function.name in stack:
            raise PtxError(
                f"line {instruction.line}: recursive call of {function.name}",
                help="the emulator puts calls into their callers; a loop with a stack of its own can be run",
            )
        if instruction.guard is not None:
            raise PtxError(f"line {instruction.line}: a call under a predicate is not known: {instruction}")
        results = lists[0] if function.results else ()
        arguments = lists[-1] if function.parameters else ()
        formal = (*function.results, *function.parameters)
        actual = (*results, *arguments)
        if len(formal) != len(actual) or not all(isinstance(operand, Symbol) for operand in actual):
            raise PtxError(
                f"line {instruction.line}: {instruction} does not fit the declaration of {function.name}"
            )
        names = {variable.name: str(operand) for variable, operand in zip(formal, actual)}
        self.calls += 1
        yield from self.expand(function, names, f"@{self.calls}", (*stack, function.name))

    def _calls_by_address(
        self,
        instruction: Instruction,
        target: Register,
        lists: Sequence[tuple[Operand, ...]],
        stack: tuple[str, ...],
    ) -> Iterator[Instruction | Label]:
        """A call of whichever function has an address: a comparison and a call for each that it may be."""
        self.switches += 1
        number = self.switches
        plain = replace(instruction, guard=None)
        chosen, address = Register(f"%called#{number}"), Register(f"%function#{number}")
        self.registers |= {chosen.name: "pred", address.name: "b64"}
        done = Label(f"$called#{number}")
        vectors = [operand for operand in instruction.operands if isinstance(operand, Vector)]
        counts = [len(items) for items in lists if items]
        for place, function in enumerate(self.addressed):
            if [size for size in (len(function.results), len(function.parameters)) if size] != counts:
                continue
            over = Label(f"$not_called#{number}.{place}")
            yield replace(plain, opcode="mov", modifiers=("u64",), operands=(address, Symbol(function.name)))
            yield replace(plain, opcode="setp", modifiers=("eq", "u64"), operands=(chosen, target, address))
            yield replace(
                plain,
                opcode="bra",
                modifiers=(),
                operands=(Symbol(over.name),),
                guard=Predicate(chosen, True),
            )
            call = replace(instruction, operands=(Symbol(function.name), *vectors))
            yield from self._call(call, stack)
            yield replace(plain, opcode="bra", modifiers=(), operands=(Symbol(done.name),))
            yield over
        yield replace(plain, opcode="trap", modifiers=(), operands=())
        yield done

    @cached_property
    def addressed(self) -> list[PtxFunction]:
        """The functions whose address is taken."""
        named = {
            operand.name
            for function in self.module.functions
            for instruction in function.instructions
            if instruction.opcode != "call"
            for operand in instruction.operands
            if isinstance(operand, Symbol)
        }
        named |= {
            each for variable in self.module.variables for each in variable.initial if isinstance(each, str)
        }
        return [
            one
            for one in self.module.functions
            if one.name in named and one.body is not None and not one.is_entry
        ]


def _halves(name: str) -> tuple[Register, Register]:
    """The low and the high half of a register."""
    return Register(f"{name}#low"), Register(f"{name}#high")


def _declared(function: PtxFunction) -> Iterator[Label | Variable]:
    for statement in function.body or ():
        if isinstance(statement, Label | Variable):
            yield statement


@dataclass(frozen=True)
class _Renamer:
    """Puts a callee's own names in place of the ones it was written with."""

    names: Mapping[str, str]
    suffix: str
    wide: frozenset[str]
    """The callee's registers of 128 bits."""

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def instruction(self, instruction: Instruction) -> Instruction:
        if not self.suffix and not self.wide:
            return instruction
        guard = instruction.guard
        if guard is not None:
            guard = Predicate(Register(guard.register.name + self.suffix), guard.negated)
        return replace(instruction, operands=tuple(map(self.operand, instruction.operands)), guard=guard)

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            name = operand.name + self.suffix
            return Vector(_halves(name)) if operand.name in self.wide else Register(name)
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
