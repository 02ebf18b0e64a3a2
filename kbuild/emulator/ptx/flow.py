"""The control-flow graph of a kernel: blocks, where diverged threads meet again, and which branches must not
be run as one.

A block ends at a branch, before a label, and after every instruction that communicates with other warps: it is
the unit of a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kbuild.emulator.isa.table import form_of
from kbuild.emulator.ptx.inline import Flat
from kbuild.emulator.ptx.model import Instruction, Label, Predicate, PtxError, Register, Symbol


@dataclass
class BasicBlock:
    """Straight-line code."""

    instructions: list[Instruction] = field(default_factory=list)
    """Without the branch, return or exit that ends it."""
    target: int | None = None
    """Where the branch at the end goes; the number of blocks stands for the end of the kernel; None: no
    branch."""
    guard: Predicate | None = None
    """The condition of that branch; None: always."""
    branch: Instruction | None = None
    reconvergence: int = 0
    """The immediate post-dominator."""
    communicates: bool = False
    """Whether one of its instructions may wait for other warps, or they for it."""
    separates: bool = False
    """Whether warps that take different sides of its branch must be scheduled on their own."""
    spins: bool = False
    """Whether its branch goes back to reload memory that other CTAs may change."""


def build(flat: Flat) -> list[BasicBlock]:
    """The blocks of a kernel, entry first.  Raises PtxError for a branch to nowhere."""
    blocks, labels = _split(flat)
    for block in blocks:
        if block.branch is None or block.branch.opcode != "bra":
            continue
        operand = block.branch.operands[0]
        if not isinstance(operand, Symbol) or operand.name not in labels:
            raise PtxError(
                f"line {block.branch.line}: branch to {operand}, which is not a label of the function"
            )
        block.target = labels[operand.name]
    _find_reconvergence(blocks)
    for number, block in enumerate(blocks):
        if block.guard is not None:
            block.separates = _region_communicates(blocks, number)
        if block.target is not None and block.target <= number:
            block.spins = any(
                looks(inside) for member in _loop(blocks, number) for inside in blocks[member].instructions
            )
    return blocks


def _split(flat: Flat) -> tuple[list[BasicBlock], dict[str, int]]:
    blocks, labels = [BasicBlock()], {}
    for statement in flat.statements:
        if isinstance(statement, Label):
            if blocks[-1].instructions or blocks[-1].branch:
                blocks.append(BasicBlock())
            labels[statement.name] = len(blocks) - 1
            continue
        if blocks[-1].branch or blocks[-1].communicates:
            blocks.append(BasicBlock())
        if statement.opcode in ("bra", "ret", "exit"):
            form_of(statement)
            blocks[-1].branch, blocks[-1].guard = statement, statement.guard
        else:
            effects = form_of(statement).effects
            chooses = statement.opcode in ("bar", "barrier") and any(
                isinstance(operand, Register) for operand in statement.operands
            )
            if effects.waits and (statement.guard is not None or chooses) and blocks[-1].instructions:
                # So that warps which skip it can part from those that wait, and those that wait elsewhere.
                blocks.append(BasicBlock())
            blocks[-1].instructions.append(statement)
            blocks[-1].communicates = effects.communicates
    for block in blocks:
        if block.branch is not None and block.branch.opcode != "bra":
            block.target = len(blocks)
    if blocks[-1].branch is None:
        blocks[-1].target = len(blocks)
    return blocks, labels


def _loop(blocks: list[BasicBlock], number: int) -> set[int]:
    """The blocks of the loop that the branch of a block goes back to the head of."""
    head = blocks[number].target
    assert head is not None
    before: list[list[int]] = [[] for _ in range(len(blocks) + 1)]
    for block in range(len(blocks)):
        for successor in successors(blocks, block):
            before[successor].append(block)
    inside, todo = {head, number}, [number] if number != head else []
    while todo:
        for block in before[todo.pop()]:
            if block not in inside:
                inside.add(block)
                todo.append(block)
    after = [[end for end in successors(blocks, block) if end < len(blocks)] for block in range(len(blocks))]
    return inside & set(
        _postorder(after, head)
    )  # Of a loop that is entered in its middle, the former include the paths to it.


def looks(instruction: Instruction) -> bool:
    """Whether an instruction reads memory that other CTAs may be changing."""
    words = instruction.modifiers
    if "shared" in words or any(word.startswith("shared::") for word in words):
        return False
    return instruction.opcode == "atom" or (
        instruction.opcode == "ld"
        and any(word in ("volatile", "relaxed", "acquire", "mmio") for word in words)
    )


def successors(blocks: list[BasicBlock], number: int) -> list[int]:
    """Where control may go from a block; the number of blocks stands for the end."""
    block = blocks[number]
    if block.target is None:
        return [number + 1]
    return [block.target] if block.guard is None else [block.target, number + 1]


def _find_reconvergence(blocks: list[BasicBlock]) -> None:
    """Immediate post-dominators, by the iteration of Cooper, Harvey and Kennedy on the reversed graph."""
    end = len(blocks)
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for number in range(end):
        for successor in successors(blocks, number):
            before[successor].append(number)
    order = _postorder(before, end)
    position = {number: index for index, number in enumerate(order)}
    found = {end: end}
    changed = True
    while changed:
        changed = False
        for number in reversed(order[:-1]):
            known = [successor for successor in successors(blocks, number) if successor in found]
            meeting = known[0]
            for other in known[1:]:
                meeting = _meet(meeting, other, found, position)
            if found.get(number) != meeting:
                found[number], changed = meeting, True
    for number, block in enumerate(blocks):
        block.reconvergence = found.get(number, end)


def _postorder(edges: list[list[int]], start: int) -> list[int]:
    """Depth-first postorder of the nodes that `start` reaches."""
    order: list[int] = []
    seen, stack = {start}, [(start, iter(edges[start]))]
    while stack:
        node, rest = stack[-1]
        following = next((successor for successor in rest if successor not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges[following])))
    return order


def _meet(a: int, b: int, found: dict[int, int], position: dict[int, int]) -> int:
    while a != b:
        while position[a] < position[b]:
            a = found[a]
        while position[b] < position[a]:
            b = found[b]
    return a


def _region_communicates(blocks: list[BasicBlock], number: int) -> bool:
    """Whether between a branch and its reconvergence some block communicates with other warps."""
    stop = {blocks[number].reconvergence, len(blocks)}
    todo, seen = [s for s in successors(blocks, number) if s not in stop], set()
    while todo:
        block = todo.pop()
        if block in seen:
            continue
        seen.add(block)
        if blocks[block].communicates:
            return True
        todo += [successor for successor in successors(blocks, block) if successor not in stop]
    return False
