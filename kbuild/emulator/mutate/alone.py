"""The code that one thread executes alone, by the tests of a thread's own number in branches and guards."""

from __future__ import annotations

from collections.abc import Mapping

from kbuild.emulator.engine.program import Program
from kbuild.emulator.ptx.model import Immediate, Instruction, Operand, Pair, Predicate, Register, Special

Facts = frozenset[tuple[str, int]]
"""Facts about the threads that execute an instruction: their `lane` in the warp, their `warp`."""
_NOTHING: Facts = frozenset()
_ELECTED = -1
"""Stands for the lane that `elect.sync` elects; it is the same each time."""
_LANES = 31


class Alone:
    """Facts about the threads at each block and step of a program, by tests of `%tid.x`."""

    def __init__(self, program: Program) -> None:
        self._definitions: dict[str, list[Instruction]] = {}
        required = program.required_threads
        if required is not None and required[1:] == (1, 1):
            self._collect(program)
        self.blocks = self._flow(program)

    def at(self, block: int, guard: Predicate | None) -> Facts:
        """Facts about the threads that execute a step with this guard in a block."""
        return self.blocks[block] | self._given(guard)

    def is_uniform(self, operand: Operand) -> bool:
        """Whether all lanes of a warp hold the same number: one that does not depend on their own numbers."""
        made = self._definitions.get(operand.name, []) if isinstance(operand, Register) else []
        if len(made) != 1 or made[0].guard is not None or made[0].opcode not in ("and", "shr"):
            return False
        number, amount = made[0].operands[1:]
        if self._place(number)[0] != "thread" or not isinstance(amount, Immediate):
            return False
        return amount.value >= _LANES.bit_length() if made[0].opcode == "shr" else not amount.value & _LANES

    def _collect(self, program: Program) -> None:
        for statement in program.flat.statements:
            if isinstance(statement, Instruction) and statement.operands:
                target = statement.operands[0]
                for part in (target.first, target.second) if isinstance(target, Pair) else (target,):
                    if isinstance(part, Register):
                        self._definitions.setdefault(part.name, []).append(statement)

    def _flow(self, program: Program) -> list[Facts]:
        """The facts that hold on every path to each block."""
        end = len(program.blocks)
        found: list[Facts | None] = [None] * (end + 1)
        found[0], todo = _NOTHING, [0]
        while todo:
            number = todo.pop()
            before = found[number]
            if number == end or before is None:
                continue
            block = program.blocks[number]
            guard = block.branch.guard if block.branch is not None else None
            ways = [] if block.target is None else [(block.target, self._given(guard))]
            if block.target is None or guard is not None:
                ways.append((number + 1, self._given(guard, taken=False)))
            for successor, learnt in ways:
                old, new = found[successor], before | learnt
                new = new if old is None else old & new
                if new != old:
                    found[successor] = new
                    todo.append(successor)
        return [facts or _NOTHING for facts in found[:end]]

    def _given(self, guard: Predicate | None, taken: bool = True) -> Facts:
        return _NOTHING if guard is None else self._implied(guard.register.name, taken != guard.negated)

    def _implied(self, name: str, value: bool, depth: int = 8) -> Facts:
        """Facts about threads for which a predicate has a value."""
        made = self._definitions.get(name, [])
        if len(made) != 1 or made[0].guard is not None or not depth:
            return _NOTHING
        instruction, sources = made[0], made[0].operands[1:]
        if instruction.opcode == "elect":
            return frozenset({("lane", _ELECTED)}) if value and sources == (Immediate("-1"),) else _NOTHING
        parts = [source.name for source in sources if isinstance(source, Register)]
        if instruction.name == "not.pred":
            return self._implied(parts[0], not value, depth - 1)
        if instruction.name == ("and.pred" if value else "or.pred") and len(parts) == len(sources):
            return _NOTHING.union(*(self._implied(part, value, depth - 1) for part in parts))
        if (
            instruction.opcode == "setp"
            and instruction.modifiers[0] == ("eq" if value else "ne")
            and len(sources) == 2
        ):
            return self._equal(sources[0], sources[1])
        return _NOTHING

    def _equal(self, left: Operand, right: Operand) -> Facts:
        """Facts where two numbers are the same, one of them a constant."""
        if isinstance(left, Immediate):
            left, right = right, left
        if not isinstance(right, Immediate):
            return _NOTHING
        kind, scale = self._place(left)
        value = right.value
        if kind == "thread":
            return frozenset({("lane", value & _LANES), ("warp", value >> 5)})
        return frozenset({(kind, value // scale)}) if kind else _NOTHING

    def _place(self, operand: Operand) -> tuple[str, int]:
        """The part of a thread's number that a number is, and its factor."""
        if isinstance(operand, Special):
            return {"%tid.x": ("thread", 1), "%laneid": ("lane", 1)}.get(operand.name, ("", 1))
        made = self._definitions.get(operand.name, []) if isinstance(operand, Register) else []
        if len(made) != 1 or made[0].guard is not None:
            return "", 1
        instruction, sources = made[0], made[0].operands[1:]
        if instruction.opcode == "mov":
            return self._place(sources[0])
        if instruction.opcode not in ("and", "shr") or self._place(sources[0])[0] != "thread":
            return "", 1
        amount = sources[1].value if isinstance(sources[1], Immediate) else 0
        return _PARTS.get((instruction.opcode, amount & 0xFFFFFFFF), ("", 1))


_PARTS: Mapping[tuple[str, int], tuple[str, int]] = {
    ("and", _LANES): ("lane", 1),
    ("and", 992): ("warp", 32),
    ("and", 0xFFFFFFE0): ("warp", 32),
    ("shr", 5): ("warp", 1),
}
"""Operations on a thread's number that leave the number of its lane or of its warp; there are at most 1,024
threads."""
