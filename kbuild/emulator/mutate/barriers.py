"""Barriers that order nothing: on one side of them, up to the next barrier, no thread touches what others may touch."""

from __future__ import annotations

from collections.abc import Callable

from kbuild.emulator.mutate.mutant import Mutant
from kbuild.emulator.program import Block, Program, Step

_SHARED = ("shared", "global", "generic")
Place = tuple[int, int]
"""Block and step; the step after the last one is the block's end."""


def orders_nothing(program: Program, mutant: Mutant) -> bool:
    """Whether no access that reaches a barrier without passing another one can conflict with one that it reaches so."""
    places = [
        (number, index)
        for number, block in enumerate(program.blocks)
        for index, step in enumerate(block.steps)
        if step.instruction.line == mutant.before.line and step.instruction == mutant.before
    ]
    if len(places) != 1:
        return False
    before, after = (_accesses(program, places[0], towards) for towards in (_earlier, _later))
    return not ((before["writes"] and (after["reads"] or after["writes"])) or (before["reads"] and after["writes"]))


def _accesses(program: Program, start: Place, towards: Callable[[Program, Place], list[Place]]) -> dict[str, bool]:
    """Whether there are reads and writes on the ways from a barrier in one direction, as far as the next barriers."""
    found = {"reads": False, "writes": False}
    todo, seen = towards(program, start), set[Place]()
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        step = _step(program.blocks[place[0]], place[1])
        if step is not None:
            effects = step.effects
            if effects.collective == "cta" and effects.waits and step.guard is None:
                continue
            found["reads"] |= bool(set(effects.reads) & set(_SHARED)) or effects.asynchronous
            found["writes"] |= bool(set(effects.writes) & set(_SHARED)) or effects.atomic or effects.asynchronous
        todo += towards(program, place)
    return found


def _step(block: Block, index: int) -> Step | None:
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
    return [(source, len(block.steps)) for source, block in enumerate(program.blocks) if number in _successors(program, source)]


def _successors(program: Program, number: int) -> list[int]:
    block, end = program.blocks[number], len(program.blocks)
    following = [] if block.target is None else [block.target]
    if block.target is None or block.guard is not None:
        following.append(number + 1)
    return [target for target in following if target < end]
