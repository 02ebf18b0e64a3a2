"""The rules for registers: a wgmma owns its own until it is waited for and requires a fence first, and reads
require writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.wgmma import WgmmaOperation
from kbuild.emulator.engine.program import Program
from kbuild.emulator.ptx.model import Address, Instruction, Not, Operand, Pair, Register, Vector
from kbuild.emulator.race.reports import Reports
from kbuild.emulator.race.sites import InstructionSite, Sites

_WITHOUT_RESULT = ("bar", "barrier", "nanosleep", "setmaxnreg", "call", "wgmma", "st", "red", "trap", "brx")
Check = Callable[[Any], None]
"""Called before a step with the mask of its lanes."""


def names_in(operands: Iterable[Operand]) -> Iterator[str]:
    """The registers that operands name."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Not):
            yield operand.register.name
        elif isinstance(operand, Pair):
            yield from names_in((operand.first, operand.second))
        elif isinstance(operand, Vector):
            yield from names_in(operand.items)
        elif isinstance(operand, Address):
            yield from names_in((operand.base,))
            if operand.coordinates is not None:
                yield from names_in(operand.coordinates.items)


def touched_by(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The registers that an instruction reads, and those that it writes.  Those of a wgmma count as neither."""
    if instruction.name.startswith("wgmma.mma_async"):
        _, a, *rest = instruction.operands
        return frozenset(names_in(rest)) | frozenset(
            () if isinstance(a, Vector) else names_in((a,))
        ), frozenset()
    operands, writes = instruction.operands, frozenset[str]()
    has_result = instruction.opcode not in _WITHOUT_RESULT or (
        instruction.opcode != "red" and "red" in instruction.modifiers
    )
    if operands and has_result and isinstance(operands[0], Register | Vector | Pair):
        writes, operands = frozenset(names_in(operands[:1])), operands[1:]
    guard = () if instruction.guard is None else (instruction.guard.register,)
    return frozenset(names_in((*operands, *guard))), writes


class WgmmaRegisters:
    """Registers of `wgmma.mma_async`: untouched while it is under way, and behind a fence when it begins."""

    def __init__(self, program: Program, sites: Sites, reports: Reports) -> None:
        self.sites = sites
        self.reports = reports
        wgmmas = [
            step.instruction
            for block in program.blocks
            for step in block.steps
            if step.instruction.name.startswith("wgmma.mma_async")
        ]
        self.registers = frozenset(name for instruction in wgmmas for name in _own(instruction))
        if "wgmma registers" not in program.known:
            program.known["wgmma registers"] = _runs(program, self.registers)
        self._runs: dict[int, list[_Touch]] = program.known["wgmma registers"]
        self._unfenced: dict[tuple[int, int], dict[str, InstructionSite]] = {}
        """For each warp of a CTA the registers touched since its last fence, and by what."""
        self._flying: dict[tuple[int, int], list[WgmmaOperation]] = {}
        self._touched: dict[int, dict[str, InstructionSite]] = {}
        """For each run of instructions (by id) the registers that it touches, and what does last."""

    def watch(self, batch: Any, instruction: Instruction) -> Check | None:
        """The check before an instruction; None: nothing to check."""
        if not self.registers:
            return None
        if instruction.name.startswith("wgmma.fence"):
            return lambda where: self._fence(batch, where)
        if instruction.name.startswith("wgmma.mma_async"):
            own = _own(instruction)
            return lambda where: self._begin(batch, where, instruction, own)
        run = self._runs.get(id(instruction))
        return None if run is None else lambda where: self._touch(batch, where, run)

    def issued(self, operation: WgmmaOperation, warp: int) -> None:
        self._flying.setdefault((id(operation.site[0].cta), warp), []).append(operation)

    def awaited(self, operation: WgmmaOperation, warp: int) -> None:
        self._flying[id(operation.site[0].cta), warp].remove(operation)

    def ended(self, cta: Any) -> None:
        """A CTA has ended: report wgmma operations that were never waited for."""
        for key in [key for key in self._flying if key[0] == id(cta)]:
            for operation in self._flying.pop(key):
                site = self.sites.of(operation.site[1])
                if self.reports.is_first("unfinished", site):
                    self.reports.add(
                        "unfinished",
                        "the CTA ends before the wgmma is waited for",
                        site,
                        operation.site[0],
                        key[1:],
                    )
        for key in [key for key in self._unfenced if key[0] == id(cta)]:
            del self._unfenced[key]

    def _fence(self, batch: Any, where: Any) -> None:
        for warp in batch.warps_in(where):
            self._unfenced.pop((id(batch.cta), warp), None)

    def _begin(self, batch: Any, where: Any, instruction: Instruction, own: frozenset[str]) -> None:
        for warp in batch.warps_in(where):
            unfenced = self._unfenced.get((id(batch.cta), warp), {})
            for name in own & unfenced.keys():
                site, other = self.sites.of(instruction), unfenced[name]
                if self.reports.is_first("wgmma-fence", site, other):
                    text = f"warp {warp} uses {name} in a wgmma after another instruction did, with no wgmma.fence between"
                    self.reports.add("wgmma-fence", text, site, batch, (warp,), other)

    def _touch(self, batch: Any, where: Any, run: list[_Touch]) -> None:
        touched = self._touched.get(id(run))
        if touched is None:
            touched = self._touched[id(run)] = {
                name: self.sites.of(each.instruction) for each in run for name in each.names
            }
        cta = id(batch.cta)
        for warp in batch.warps if where is True else batch.warps_in(where):
            key = (cta, warp)
            unfenced = self._unfenced.get(key)
            if unfenced is None:
                unfenced = self._unfenced[key] = {}
            unfenced.update(touched)
            for operation in self._flying.get(key, ()):
                if not touched.keys().isdisjoint(operation.names.of_d) or not touched.keys().isdisjoint(
                    operation.names.of_a
                ):
                    self._check_flying(batch, warp, operation, run)

    def _check_flying(self, batch: Any, warp: int, operation: WgmmaOperation, run: list[_Touch]) -> None:
        """Report what touches registers of a wgmma that is under way."""
        for each in run:
            wrong = (each.reads & operation.names.of_d) | (
                each.writes & (operation.names.of_d | operation.names.of_a)
            )
            if not wrong:
                continue
            site, other, name = self.sites.of(each.instruction), self.sites.of(operation.site[1]), min(wrong)
            if self.reports.is_first("wgmma-registers", site, other):
                action = "reads" if name in each.reads else "writes"
                text = f"warp {warp} {action} {name}, which belongs to a wgmma that has not been waited for"
                self.reports.add("wgmma-registers", text, site, batch, (warp,), other)


@dataclass(frozen=True)
class _Touch:
    """An instruction with those registers of wgmmas that it reads, and those that it writes."""

    instruction: Instruction
    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.reads | self.writes


def _runs(program: Program, registers: frozenset[str]) -> dict[int, list[_Touch]]:
    """Instructions that touch registers of wgmmas and always run one after the other, with no `wgmma`
    between; by the id of the first of them, before which all can be looked at."""
    found: dict[int, list[_Touch]] = {}
    for block in program.blocks if registers else ():
        run: list[_Touch] = []
        for step in block.steps:
            if step.instruction.opcode == "wgmma":
                run = []
                continue
            reads, writes = (names & registers for names in touched_by(step.instruction))
            touch = _Touch(step.instruction, reads, writes)
            if not touch.names:
                continue
            if step.guard is not None:
                found[id(step.instruction)] = [touch]
                continue
            if not run:
                found[id(step.instruction)] = run
            run.append(touch)
    return found


def _own(wgmma: Instruction) -> frozenset[str]:
    """The registers of D, and of A where it is in registers."""
    return frozenset(names_in(operand for operand in wgmma.operands[:2] if isinstance(operand, Vector)))


class Unwritten:
    """Reads of registers that a thread has not written.

    Registers that every path writes before a read are left alone; the threads of the others are watched.
    """

    def __init__(self, program: Program, sites: Sites, reports: Reports) -> None:
        self.sites = sites
        self.reports = reports
        if "doubtful reads" not in program.known:
            program.known["doubtful reads"] = _doubtful_reads(program)
        self._doubtful: dict[int, frozenset[str]] = program.known["doubtful reads"]
        """For each instruction (by id) the registers it reads that some path to it does not write."""
        self._watched = frozenset(name for names in self._doubtful.values() for name in names)
        self._written: dict[tuple[int, str], np.ndarray] = {}

    def watch(self, batch: Any, instruction: Instruction) -> Check | None:
        """The check before an instruction; None: nothing to check."""
        reads = self._doubtful.get(id(instruction), frozenset())
        writes = _results(instruction) & self._watched if self._watched else frozenset()
        if not reads and not writes:
            return None
        return lambda where: self._touch(batch, where, instruction, reads, writes)

    def ended(self, cta: Any) -> None:
        for key in [key for key in self._written if key[0] == id(cta)]:
            del self._written[key]

    def _touch(
        self, batch: Any, where: Any, instruction: Instruction, reads: frozenset[str], writes: frozenset[str]
    ) -> None:
        threads = slice(batch.first_thread, batch.first_thread + batch.size)
        for name in reads:
            missing = ~self._state(batch, name)[threads]
            missing = missing if where is True else missing & where
            site = self.sites.of(instruction)
            if missing.any() and self.reports.is_first("uninitialised-register", site):
                thread = batch.first_thread + int(np.argmax(missing))
                text = f"warp {thread >> 5}, lane {thread & 31} reads {name}, which it has not written"
                self.reports.add("uninitialised-register", text, site, batch, (thread >> 5,))
        for name in writes:
            state = self._state(batch, name)[threads]
            state |= where

    def _state(self, batch: Any, name: str) -> np.ndarray:
        key = (id(batch.cta), name)
        if key not in self._written:
            self._written[key] = np.zeros(32 * batch.cta.warp_count, bool)
        return self._written[key]


def _results(instruction: Instruction) -> frozenset[str]:
    """The registers that an instruction writes, at once or later."""
    if instruction.name.startswith("wgmma.mma_async"):
        return frozenset(names_in(instruction.operands[:1]))
    return touched_by(instruction)[1]


def _doubtful_reads(program: Program) -> dict[int, frozenset[str]]:
    """For each instruction the registers that it reads although some path to it does not write them."""
    blocks, end = program.blocks, len(program.blocks)
    made = [
        frozenset[str]().union(*(_results(step.instruction) for step in block.steps if step.guard is None))
        for block in blocks
    ]
    known: list[frozenset[str] | None] = [None] * (end + 1)
    known[0], todo = frozenset(), [0]
    while todo:
        number = todo.pop()
        before = known[number]
        if number == end or before is None:
            continue
        block = blocks[number]
        after = before | made[number]
        following = [number + 1] if block.target is None or block.guard is not None else []
        for successor in [*following, *(() if block.target is None else (block.target,))]:
            old = known[successor]
            new = after if old is None else old & after
            if new != old:
                known[successor] = new
                todo.append(successor)
    found = {}
    for number, block in enumerate(blocks):
        written = known[number]
        for step in block.steps if written is not None else ():
            missing = touched_by(step.instruction)[0] - (written or frozenset())
            if missing:
                found[id(step.instruction)] = missing
            if step.guard is None:
                written = (written or frozenset()) | _results(step.instruction)
    return found
