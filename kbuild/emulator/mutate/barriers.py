"""Barriers that order nothing: no two threads touch the same bytes on their two sides, up to the next barriers.

An asynchronous operation touches memory from its issue, which a barrier must not let come too early, until a
wait for it, which a barrier passes on to others.  An acquire before a barrier, and a release after one,
concern all memory.  Within a warp, loads of global memory need no
barrier before later stores: the race detector treats them as ordered too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kbuild.emulator.engine.program import Program, Step, StepBlock
from kbuild.emulator.mutate.alone import Alone, Facts
from kbuild.emulator.mutate.mutant import Mutant
from kbuild.emulator.ptx.model import Instruction

Place = tuple[int, int]
"""Block and step; the step after the last one is the block's end."""
_ALL = "all"
_IN_WARP, _IN_CTA = frozenset({"lane"}), frozenset({"lane", "warp"})
_ORDERS = ("release", "acq_rel")
_WAITS = {
    "cp.async.wait": (("shared", True), ("global", False)),
    "cp.async.bulk.wait": (("shared", False), ("global", True)),
    "wgmma.wait_group": (("shared", False),),
}
"""The memory that asynchronous operations have touched once they are waited for, and whether they wrote it."""


@dataclass(frozen=True)
class _Access:
    """An access to memory by threads of which `facts` hold."""

    place: str
    """`shared`, `global`, `mbarrier` (which nothing but its own instructions may touch), or `all`."""
    writes: bool
    facts: Facts
    atomic: bool = False

    def conflicts(self, other: _Access, parts: frozenset[str]) -> bool:
        """Whether order matters: two threads may do these to the same bytes, this one first.  A thread is
        identified by `parts`."""
        if parts == _IN_WARP and self.place == other.place == "global" and not self.writes:
            return False
        apart = self.place != other.place and _ALL not in (self.place, other.place)
        same = parts <= {part for part, _ in self.facts & other.facts}
        return (self.writes or other.writes) and not (apart or same or (self.atomic and other.atomic))


def orders_nothing(program: Program, mutant: Mutant) -> bool:
    """Whether no access that reaches a barrier without passing another one can conflict with one that it
    reaches so."""
    places = [
        (number, index)
        for number, block in enumerate(program.blocks)
        for index, step in enumerate(block.steps)
        if step.instruction.line == mutant.before.line and step.instruction == mutant.before
    ]
    if len(places) != 1 or mutant.before.guard is not None:
        return False
    alone, within_warp = Alone(program), mutant.before.name == "bar.warp.sync"
    bounds = _like(mutant.before) if not within_warp else _bounds_warp
    before = _accesses(program, alone, places[0], _earlier, bounds, _ended)
    after = _accesses(program, alone, places[0], _later, bounds, _begun)
    parts = _IN_WARP if within_warp else _IN_CTA
    return not any(first.conflicts(second, parts) for first in before for second in after)


def _like(barrier: Instruction) -> Callable[[Instruction], bool]:
    """Barriers at which the same threads meet."""
    return lambda other: (
        other.opcode == barrier.opcode
        and "arrive" not in other.modifiers
        and other.operands == barrier.operands
    )


def _bounds_warp(other: Instruction) -> bool:
    """Barriers at which a whole warp meets."""
    whole = other.name == "bar.warp.sync" and str(other.operands[0]) == "-1"
    return whole or (other.opcode == "bar" and other.modifiers[0] in ("sync", "red"))


def _accesses(
    program: Program,
    alone: Alone,
    start: Place,
    towards: Callable[[Program, Place], list[Place]],
    bounds: Callable[[Instruction], bool],
    touched: Callable[[Step, Facts], set[_Access]],
) -> set[_Access]:
    """The accesses on the paths from a barrier in one direction, up to the next barriers."""
    found: set[_Access] = set()
    todo, seen = towards(program, start), set[Place]()
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        step = _step(program.blocks[place[0]], place[1])
        if step is not None:
            if step.guard is None and bounds(step.instruction):
                continue
            found |= touched(step, alone.at(place[0], step.instruction.guard))
        todo += towards(program, place)
    return found


def _ended(step: Step, facts: Facts) -> set[_Access]:
    """The accesses completed by an instruction, and what its threads learn by it."""
    instruction = step.instruction
    for name, effects in _WAITS.items():
        if instruction.name.startswith(name):
            return {_Access(place, writes, facts) for place, writes in effects}
    if step.effects.asynchronous:
        return set()
    if _acquires(step):
        return {_Access(_ALL, True, facts)}
    return _touched(step, facts)


def _begun(step: Step, facts: Facts) -> set[_Access]:
    """The accesses that an instruction may make from now on, and what it publishes."""
    if step.instruction.name.startswith(tuple(_WAITS)):
        return set()
    if _releases(step):
        return {_Access(_ALL, True, facts)}
    return _touched(step, facts)


def _acquires(step: Step) -> bool:
    """Whether threads learn from an instruction what others have done."""
    instruction = step.instruction
    waits = instruction.opcode == "mbarrier" and instruction.modifiers[0] in ("try_wait", "test_wait")
    return waits or bool({"acquire", "acq_rel"} & set(instruction.modifiers)) or _is_fence(instruction)


def _releases(step: Step) -> bool:
    """Whether others may learn from an instruction what its threads have done."""
    instruction = step.instruction
    arrives = instruction.name.startswith(("mbarrier.arrive", "cp.async.mbarrier"))
    return arrives or bool(set(_ORDERS) & set(instruction.modifiers)) or _is_fence(instruction)


def _is_fence(instruction: Instruction) -> bool:
    """Whether relaxed accesses next to an instruction acquire or release by it."""
    fence = instruction.opcode == "fence" and instruction.modifiers[0] != "proxy"
    return (
        fence
        or instruction.opcode in ("membar", "griddepcontrol", "call")
        or instruction.name.startswith("barrier.cluster")
    )


def _touched(step: Step, facts: Facts) -> set[_Access]:
    """The memory that an instruction reads and writes."""
    instruction, effects = step.instruction, step.effects
    if instruction.opcode in ("fence", "wgmma") and not effects.asynchronous:
        return set()
    if instruction.opcode == "mbarrier":
        return {_Access("mbarrier", instruction.modifiers[0] not in ("try_wait", "test_wait"), facts)}
    found = set()
    named = {word.partition("::")[0] for word in instruction.modifiers} & {
        "shared",
        "global",
        "local",
        "param",
        "const",
    }
    for spaces, writes in ((effects.reads, False), (effects.writes, True)):
        for space in spaces:
            place = min(named, default=_ALL) if space == "generic" else space
            if place in ("shared", "global", _ALL):
                found.add(_Access(place, writes or effects.atomic, facts, effects.atomic))
    if effects.asynchronous and any("mbarrier" in word for word in instruction.modifiers):
        found.add(_Access("mbarrier", True, facts))
    return found


def _step(block: StepBlock, index: int) -> Step | None:
    return block.steps[index] if index < len(block.steps) else None


def _later(program: Program, place: Place) -> list[Place]:
    number, index = place
    block = program.blocks[number]
    if index < len(block.steps):
        return [(number, index + 1)]
    return [(target, 0) for target in _successors(program, number)]


def _earlier(program: Program, place: Place) -> list[Place]:
    number, index = place
    if index > 0:
        return [(number, index - 1)]
    return [
        (source, len(block.steps))
        for source, block in enumerate(program.blocks)
        if number in _successors(program, source)
    ]


def _successors(program: Program, number: int) -> list[int]:
    block, end = program.blocks[number], len(program.blocks)
    following = [] if block.target is None else [block.target]
    if block.target is None or block.guard is not None:
        following.append(number + 1)
    return [target for target in following if target < end]
