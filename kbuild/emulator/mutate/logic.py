"""Mistakes of logic: the wrong operation, comparison, operand, lane, matrix order or address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kbuild.emulator.isa.instruction_spec import TYPES
from kbuild.emulator.mutate.mutant import Change, Operator
from kbuild.emulator.ptx.model import Address, Immediate, Instruction, Operand, Vector

_OPPOSITES = {
    "lt": "le",
    "le": "lt",
    "gt": "ge",
    "ge": "gt",
    "lo": "ls",
    "ls": "lo",
    "hi": "hs",
    "hs": "hi",
    "ltu": "leu",
    "leu": "ltu",
    "gtu": "geu",
    "geu": "gtu",
}
_EQUALITIES = {"eq": "ne", "ne": "eq", "equ": "neu", "neu": "equ"}


def _replaced(kind: str, opcode: str, other: str) -> Operator:
    """Another opcode with the same operands."""

    def changes(instruction: Instruction) -> Iterator[Change]:
        if instruction.opcode == opcode and not {"cc", "global", "shared"} & set(instruction.modifiers):
            yield (replace(instruction, opcode=other),)

    return Operator(kind, "logic", changes)


def _compared(kind: str, others: Mapping[str, str]) -> Operator:
    """Another comparison."""

    def changes(instruction: Instruction) -> Iterator[Change]:
        if instruction.opcode in ("setp", "set") and instruction.modifiers[0] in others:
            yield (
                replace(
                    instruction, modifiers=(others[instruction.modifiers[0]], *instruction.modifiers[1:])
                ),
            )

    return Operator(kind, "logic", changes)


def _without_addend(instruction: Instruction) -> Iterator[Change]:
    if (
        instruction.opcode in ("mad", "fma")
        and "cc" not in instruction.modifiers
        and "relu" not in instruction.modifiers
    ):
        yield (replace(instruction, opcode="mul", operands=instruction.operands[:3]),)


def _swapped(instruction: Instruction) -> Iterator[Change]:
    if instruction.opcode == "selp":
        target, first, second, predicate = instruction.operands
        yield (replace(instruction, operands=(target, second, first, predicate)),)


def _shifted_more(instruction: Instruction) -> Iterator[Change]:
    amount = instruction.operands[2] if instruction.opcode in ("shl", "shr") else None
    if isinstance(amount, Immediate):
        yield (replace(instruction, operands=(*instruction.operands[:2], Immediate(str(amount.value + 1)))),)


def _negated_guard(instruction: Instruction) -> Iterator[Change]:
    if instruction.guard is not None:
        yield (replace(instruction, guard=replace(instruction.guard, negated=not instruction.guard.negated)),)


def _other_lane(instruction: Instruction) -> Iterator[Change]:
    """`shfl` from another lane.  A butterfly gets the next one's mask: the sum over all
    masks is the same if these are independent."""
    if not instruction.name.startswith("shfl.sync"):
        return
    target, value, lane, *rest = instruction.operands
    if isinstance(lane, Immediate):
        other = (lane.value >> 1 or 16) if "bfly" in instruction.modifiers else lane.value ^ 1
        yield (replace(instruction, operands=(target, value, Immediate(str(other)), *rest)),)


def _other_order_of_matrix(instruction: Instruction) -> Iterator[Change]:
    """`ldmatrix` and `stmatrix` with or without `.trans`."""
    if instruction.opcode in ("ldmatrix", "stmatrix"):
        words = instruction.modifiers
        place = next(index for index, word in enumerate(words) if word in ("x1", "x2", "x4")) + 1
        has = "trans" in words
        yield (
            replace(
                instruction, modifiers=words[:place] + (() if has else ("trans",)) + words[place + has :]
            ),
        )


def _moved_address(kind: str, steps: int, operand: int) -> Operator:
    """An address one element higher or lower."""

    def changes(instruction: Instruction) -> Iterator[Change]:
        size = _element_size(instruction)
        addresses = [index for index, given in enumerate(instruction.operands) if isinstance(given, Address)]
        if size and len(addresses) > operand:
            index = addresses[operand]
            address = instruction.operands[index]
            assert isinstance(address, Address)
            moved = replace(address, offset=address.offset + steps * size)
            yield (replace(instruction, operands=_with(instruction.operands, index, moved)),)

    return Operator(kind, "logic", changes)


def _element_size(instruction: Instruction) -> int:
    """Bytes of the elements that an instruction moves; 0 for one that is not an access, or of parameters."""
    if instruction.opcode in ("ld", "st", "atom", "red") and "param" not in instruction.modifiers:
        return TYPES[instruction.modifiers[-1]].itemsize
    if instruction.opcode in ("ldmatrix", "stmatrix"):
        return 16
    if instruction.opcode == "cp" and instruction.modifiers[:2] in (("async", "ca"), ("async", "cg")):
        size = instruction.operands[2]
        return size.value if isinstance(size, Immediate) else 0
    return 0


def _with(operands: tuple[Operand, ...], index: int, operand: Operand) -> tuple[Operand, ...]:
    return (*operands[:index], operand, *operands[index + 1 :])


def _exchanged(kind: str, operand: int) -> Operator:
    """The first two registers of a matrix of `mma` in the wrong order."""

    def changes(instruction: Instruction) -> Iterator[Change]:
        if instruction.opcode == "mma":
            registers = instruction.operands[operand]
            if isinstance(registers, Vector) and len(registers.items) > 1:
                first, second, *rest = registers.items
                changed = replace(registers, items=(second, first, *rest))
                yield (replace(instruction, operands=_with(instruction.operands, operand, changed)),)

    return Operator(kind, "logic", changes)


def _other_product(instruction: Instruction) -> Iterator[Change]:
    """`wgmma` with its last flag, which says that B is transposed or negated, inverted."""
    flag = instruction.operands[-1] if instruction.name.startswith("wgmma.mma_async") else None
    if isinstance(flag, Immediate):
        other = {0: 1, 1: 0 if len(instruction.operands) > 6 else -1, -1: 1}[flag.value]
        yield (replace(instruction, operands=(*instruction.operands[:-1], Immediate(str(other)))),)


LOGIC = (
    _replaced("xor → or", "xor", "or"),
    _replaced("or → and", "or", "and"),
    _replaced("and → or", "and", "or"),
    _replaced("add → sub", "add", "sub"),
    _replaced("sub → add", "sub", "add"),
    _replaced("min → max", "min", "max"),
    _replaced("max → min", "max", "min"),
    _compared("setp lt ↔ le, gt ↔ ge", _OPPOSITES),
    _compared("setp eq ↔ ne", _EQUALITIES),
    Operator("mad, fma → mul", "logic", _without_addend),
    Operator("selp swapped", "logic", _swapped),
    Operator("shift by one more", "logic", _shifted_more),
    Operator("predicate negated", "logic", _negated_guard),
    Operator("shfl of another lane", "logic", _other_lane),
    Operator("ldmatrix .trans", "logic", _other_order_of_matrix),
    _moved_address("address + element", 1, 0),
    _moved_address("address - element", -1, 0),
    _moved_address("source address + element", 1, 1),
    _exchanged("mma registers of A exchanged", 1),
    _exchanged("mma registers of B exchanged", 2),
    Operator("wgmma last flag", "logic", _other_product),
)
