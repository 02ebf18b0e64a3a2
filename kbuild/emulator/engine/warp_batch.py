"""Runs a batch: masks, divergence and reconvergence, parting, step budget.

A batch is a run of consecutive warps that execute the same blocks; its registers are numpy arrays over all
of their threads. Diverged threads run one side after the other and meet again at the immediate post-dominator
of the branch.  Where the sides talk to other warps, the warps that differ become batches of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from kbuild.emulator.async_ops.timing import Timing
from kbuild.emulator.engine.barriers import lanes_to_warps
from kbuild.emulator.engine.findings import Fault, Finding
from kbuild.emulator.engine.memory import Memory
from kbuild.emulator.engine.program import Program, Step, StepBlock
from kbuild.emulator.engine.registers import RegisterFile
from kbuild.emulator.engine.schedule import Schedule
from kbuild.emulator.ptx.model import Instruction, Register

Mask = Any
"""True for all lanes, or a bool per lane."""


_Ready = tuple[Callable[..., Any], tuple[Any, ...], Step]
"""A step with its lanes, and its function with the checks before it."""


class Waiting(Protocol):
    """The condition that a batch waits for."""

    def ready(self) -> bool: ...

    def describe(self) -> str: ...


class Run(Protocol):
    """The part of a launch that its warps use."""

    steps: int
    """Instructions run so far."""

    @property
    def program(self) -> Program: ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def warps(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def step_budget(self) -> int: ...

    @property
    def timing(self) -> Timing: ...

    @property
    def observers(self) -> Sequence[Any]: ...

    @property
    def printed(self) -> list[str]: ...

    def watched(self, batch: WarpBatch, step: Step) -> Callable[..., Any]: ...

    def watched_among(self, batch: WarpBatch, steps: tuple[Step, ...]) -> tuple[int, ...]: ...

    def wait_for_earlier(self) -> None: ...


class EnclosingCluster(Protocol):
    """The part of a cluster that its batches use."""

    gives_way: bool


class EnclosingCta(Protocol):
    """The part of a CTA that its batches use."""

    index: tuple[int, int, int]

    @property
    def launch(self) -> Run: ...

    @property
    def cluster(self) -> EnclosingCluster: ...

    @property
    def memory(self) -> Memory: ...

    def batch(self, first: int, count: int) -> WarpBatch: ...

    def replace(self, old: Sequence[WarpBatch], new: Sequence[WarpBatch]) -> None: ...

    def lanes_ended(self) -> None: ...


class Stop(Exception):
    """Ends the run, with its finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class DivergenceLevel:
    """One level of divergence: the lanes of `mask` are at `block`, and are done with this level when they
    come to `until`."""

    __slots__ = ("block", "mask", "until")

    def __init__(self, block: int, mask: Mask, until: int) -> None:
        self.block, self.mask, self.until = block, mask, until


class WarpBatch:
    """Consecutive warps of a CTA that run together.  Belongs to a register file, and is used again by the
    CTAs that get it."""

    def __init__(self, program: Program, file: RegisterFile, first: int, count: int) -> None:
        self.program = program
        self.file = file
        self.first, self.count = first, count
        self.first_thread, self.size = 32 * first, 32 * count
        self.stack: list[DivergenceLevel] = []
        self.waiting: Waiting | None = None
        self.turns = 0
        self.cta: EnclosingCta
        self.memory: Memory
        self.launch: Run
        self._lanes: dict[int, Any] = {}
        self._prepared_for: Run | None = None
        self._ready: dict[tuple[int, bool], list[_Ready]] = {}
        """For each block, with all lanes or some: its steps with the observers' checks of this launch."""
        self._plain: dict[tuple[int, bool], tuple[tuple[Step, ...], list[_Ready]]] = {}
        """The same without these, for all launches."""

    @property
    def warps(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def done(self) -> bool:
        return not self.stack

    def begin(self, cta: EnclosingCta, stack: list[DivergenceLevel]) -> None:
        """Take up the work of a CTA's warps."""
        if cta.launch is not self._prepared_for:  # Another one's observers watch other steps.
            self._ready, self._prepared_for = {}, cta.launch
        self.cta, self.memory, self.launch = cta, cta.memory, cta.launch
        self.stack, self.waiting, self.turns = stack, None, 0

    def warps_in(self, where: Mask) -> list[int]:
        """The warps that have a lane in a mask."""
        return lanes_to_warps(where, self.first, self.count)

    def lanes(self, slot: int) -> Any:
        """The batch's lanes of a slot."""
        found = self._lanes.get(slot)
        if found is None:
            found = self._lanes[slot] = self.file.lanes(
                slot, self.first_thread, self.first_thread + self.size
            )
        return found

    def _prepare(self, number: int, whole: bool) -> list[_Ready]:
        """The steps of a block with their lanes, for all lanes (`whole`) or some."""
        steps, key = self.program.steps_of(number, whole), (number, whole)
        if key not in self._plain or self._plain[key][0] is not steps:
            self._plain[key] = steps, [self._with_lanes(step, step.function) for step in steps]
        ready = self._plain[key][1]
        watched = self.launch.watched_among(self, steps)
        if watched:
            ready = ready.copy()
            for place in watched:
                ready[place] = self._with_lanes(steps[place], self.launch.watched(self, steps[place]))
        self._ready[key] = ready
        return ready

    def _with_lanes(self, step: Step, function: Callable[..., Any]) -> _Ready:
        known = self._lanes
        lanes = tuple([known[slot] if slot in known else self.lanes(slot) for slot in step.slots])
        if step.guard is not None:
            function = _guarded(function, self.lanes(step.guard), step.negated)
        return function, (self, *lanes) if step.wants_warps else lanes, step

    def run(self, blocks: int) -> None:
        """Run up to `blocks` blocks, or until the batch waits, parts or ends.  Raises Stop."""
        launch, ready = self.launch, self._ready
        self.turns += 1
        for _ in range(blocks):
            entry = self.stack[-1]
            block = self.program.blocks[entry.block]
            if self.count > 1 and self._parts_before(block, entry):
                return
            key = entry.block, entry.mask is True
            steps = ready.get(key) or self._prepare(*key)
            launch.steps += len(block.steps) + 1
            waiting = self._execute(steps, entry.mask)
            if launch.steps > launch.step_budget:
                last = block.branch or (block.steps[-1].instruction if block.steps else None)
                raise Stop(self.finding("step-budget", f"no end after {launch.steps} instructions", last))
            if block.spins:
                self.cta.cluster.gives_way = True
            if not self.leave(block, entry) or self.done:
                return
            if waiting is not None:
                self.waiting = waiting
                return
            if block.spins:
                return

    def _execute(self, steps: list[_Ready], mask: Mask) -> Waiting | None:
        waiting, step = None, None
        masked = {} if mask is True else {"where": mask}
        try:
            for function, lanes, step in steps:  # noqa: B007
                waiting = function(*lanes, **masked)
        except Fault as fault:
            raise Stop(self.finding(fault.kind, fault.message, step.instruction if step else None)) from None
        return waiting if step is not None and step.effects.waits else None

    def finding(self, kind: str, message: str, instruction: Instruction | None) -> Finding:
        """Something found at an instruction of this batch."""
        place = None if instruction is None else self.program.module.place(instruction)
        return Finding(kind, message, instruction, place, self.cta.index, tuple(self.warps))

    # Control flow

    def leave(self, block: StepBlock, entry: DivergenceLevel) -> bool:
        """Go to where the block's end leads.  False where the batch parted for that, and has ended."""
        end = len(self.program.blocks)
        if block.target is None:
            entry.block += 1
        elif block.guard is None:
            entry.block = block.target
        else:
            predicate = self.lanes(block.guard)
            taken = ~predicate if block.negated else predicate
            if entry.mask is not True:
                taken = taken & entry.mask
            if not taken.any():
                entry.block += 1
            elif taken.all() if entry.mask is True else (taken == entry.mask).all():
                entry.block = block.target
            elif self.count > 1 and block.separates and (pieces := self._part(taken, entry)):
                for piece in pieces:
                    piece.leave(block, piece.stack[-1])
                return False
            else:
                self._diverge(block, entry, taken.copy())
        if entry.block == end or self.stack[-1].block == end:
            self._exit()
        else:
            self._join()
        return True

    def _diverge(self, block: StepBlock, entry: DivergenceLevel, taken: np.ndarray) -> None:
        """Both sides of a branch, each until the reconvergence point."""
        assert block.target is not None
        other = ~taken if entry.mask is True else entry.mask & ~taken
        meeting, following, until = block.reconvergence, entry.block + 1, entry.until
        entry.block = meeting
        if meeting == until:
            self.stack.pop()
        for target, mask in ((following, other), (block.target, taken)):
            if target != meeting or meeting == len(self.program.blocks):
                self.stack.append(DivergenceLevel(target, mask, meeting))

    def _join(self) -> None:
        """Levels whose lanes have come to their end are done."""
        while len(self.stack) > 1 and self.stack[-1].block == self.stack[-1].until:
            self.stack.pop()

    def _exit(self) -> None:
        """The lanes of the innermost level end.

        No other level has these lanes: where one side of a branch can end, the end is where the sides would
        meet.
        """
        while self.stack and self.stack[-1].block == len(self.program.blocks):
            self.stack.pop()
        self._join()
        self.cta.lanes_ended()

    # Parting and joining

    def _parts_before(self, block: StepBlock, entry: DivergenceLevel) -> bool:
        """Part where the block's first step makes only some warps wait, or warps at different barriers."""
        step = block.steps[0] if block.steps else None
        if step is None or not step.effects.waits:
            return False
        if step.guard is not None:
            predicate = self.lanes(step.guard)
            if self._part(~predicate if step.negated else predicate, entry):
                return True
        if step.effects.collective != "cta" or not any(
            isinstance(operand, Register) for operand in step.instruction.operands
        ):
            return False
        # Number and threads of a barrier come first; each warp has one of each, or the barrier refuses it.
        return any(self._part_by(self._of_warps(self.lanes(slot), entry)) for slot in step.slots[:2])

    def _of_warps(self, values: np.ndarray, entry: DivergenceLevel) -> np.ndarray:
        """For each warp the value that its first lane at a level has."""
        lanes = np.ones(self.size, bool) if entry.mask is True else entry.mask
        first = lanes.reshape(-1, 32).argmax(axis=1)
        return np.asarray(values.reshape(-1, 32)[np.arange(self.count), first])

    def _part(self, taken: np.ndarray, entry: DivergenceLevel) -> list[WarpBatch]:
        """Become several batches where warps differ in which of their lanes are `taken`; none where they do
        not."""
        lanes = np.ones(self.size, bool) if entry.mask is True else entry.mask
        some = np.any((taken & lanes).reshape(-1, 32), axis=1)
        rest = np.any((lanes & ~taken).reshape(-1, 32), axis=1)
        return self._part_by(np.asarray(some + 2 * rest))

    def _part_by(self, kinds: np.ndarray) -> list[WarpBatch]:
        """Become several batches of neighbours of one kind; none where all warps are."""
        starts = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), self.count]
        if len(starts) == 2:
            return []
        pieces = [self.piece(first, last) for first, last in pairwise(starts)]
        self.cta.replace([self], pieces)
        return pieces

    def piece(self, first: int, last: int) -> WarpBatch:
        """A batch of the warps from `first` to before `last`, counted within this one, at the same place."""
        lanes = slice(32 * first, 32 * last)
        stack = []
        for entry in self.stack:
            mask = True if entry.mask is True or entry.mask[lanes].all() else entry.mask[lanes].copy()
            if mask is True or mask.any():
                stack.append(DivergenceLevel(entry.block, mask, entry.until))
        batch = self.cta.batch(self.first + first, last - first)
        batch.begin(self.cta, stack)
        batch.turns = self.turns
        return batch


def _guarded(function: Callable[..., Any], predicate: np.ndarray, negated: bool) -> Callable[..., Any]:
    """A step under a predicate: nothing where it holds for no lane."""

    def run(*lanes: Any, where: Mask = True) -> Any:
        chosen = ~predicate if negated else predicate
        if where is not True:
            chosen = chosen & where
        elif chosen.all():
            return function(*lanes)
        if chosen.any():
            return function(*lanes, where=chosen.copy() if chosen is predicate else chosen)
        return None

    return run
