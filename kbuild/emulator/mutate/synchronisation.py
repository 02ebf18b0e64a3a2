"""Mistakes of synchronisation: barriers, waits, fences, groups and orders that are missing or too weak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kbuild.emulator.mutate.mutant import SCRATCH, Change, Operator
from kbuild.emulator.ptx.model import Immediate, Instruction, Register

_ORDERS = ("acq_rel", "acquire", "release")


def _named(*starts: str) -> Callable[[Instruction], bool]:
    """Whether an instruction's name begins with one of these words and modifiers."""
    return lambda instruction: any((instruction.name + ".").startswith(start + ".") for start in starts)


def _dropped(kind: str, *starts: str) -> Operator:
    """Removes the instructions whose name begins so."""
    concerned = _named(*starts)

    def changes(instruction: Instruction) -> Iterator[Change]:
        if concerned(instruction):
            yield ()

    return Operator(kind, "sync", changes)


def _one_more(kind: str, *starts: str) -> Operator:
    """Lets a wait leave one more group under way."""
    concerned = _named(*starts)

    def changes(instruction: Instruction) -> Iterator[Change]:
        if concerned(instruction) and instruction.operands and isinstance(instruction.operands[0], Immediate):
            more = Immediate(str(instruction.operands[0].value + 1))
            yield (replace(instruction, operands=(more, *instruction.operands[1:])),)

    return Operator(kind, "sync", changes)


def _barrier_wait_passed(instruction: Instruction) -> Iterator[Change]:
    """A test of an mbarrier that always reports the phase complete."""
    if _named("mbarrier.try_wait", "mbarrier.test_wait")(instruction):
        zero = Immediate("0")
        yield (
            replace(
                instruction,
                opcode="setp",
                modifiers=("eq", "u32"),
                operands=(instruction.operands[0], zero, zero),
            ),
        )


def _other_parity(instruction: Instruction) -> Iterator[Change]:
    if _named("mbarrier.try_wait.parity", "mbarrier.test_wait.parity")(instruction):
        first, place, parity, *rest = instruction.operands
        scratch = Register(SCRATCH)
        flipped = replace(
            instruction,
            opcode="xor",
            modifiers=("b32",),
            operands=(scratch, parity, Immediate("1")),
            guard=None,
        )
        yield flipped, replace(instruction, operands=(first, place, scratch, *rest))


def _other_count(kind: str, start: str, step: int) -> Operator:
    """A different number in the last operand: of bytes expected, of arrivals."""
    concerned = _named(start)

    def changes(instruction: Instruction) -> Iterator[Change]:
        if not concerned(instruction):
            return
        *others, count = instruction.operands
        if isinstance(count, Immediate):
            yield (replace(instruction, operands=(*others, Immediate(str(count.value + step)))),)
        elif isinstance(count, Register):
            scratch = Register(SCRATCH)
            changed = replace(
                instruction,
                opcode="add",
                modifiers=("s32",),
                operands=(scratch, count, Immediate(str(step))),
                guard=None,
            )
            yield changed, replace(instruction, operands=(*others, scratch))

    return Operator(kind, "sync", changes)


def _weakened(instruction: Instruction) -> Iterator[Change]:
    """An atomic operation, load or store that orders nothing."""
    if instruction.opcode in ("atom", "red", "ld", "st") and set(_ORDERS) & set(instruction.modifiers):
        modifiers = tuple("relaxed" if word in _ORDERS else word for word in instruction.modifiers)
        yield (replace(instruction, modifiers=modifiers),)


def _first_program_alone(name: str, word: str, rank_or_mask: str) -> Operator:
    """Replaces the CTA of a cluster that is addressed by the first one."""

    def changes(instruction: Instruction) -> Iterator[Change]:
        if instruction.opcode == name and word in instruction.modifiers:
            yield (replace(instruction, operands=(*instruction.operands[:-1], Immediate(rank_or_mask))),)

    return Operator(f"{name} {word} to the first CTA", "sync", changes)


SYNCHRONISATION = (
    _dropped(
        "drop bar.sync",
        "bar.sync",
        "barrier.sync",
        "barrier.cta.sync",
        "bar.red",
        "bar.arrive",
        "barrier.arrive",
    ),
    _dropped("drop bar.warp.sync", "bar.warp.sync"),
    _dropped("drop barrier.cluster", "barrier.cluster"),
    _dropped("drop cp.async.wait_group", "cp.async.wait_group", "cp.async.wait_all"),
    _one_more("cp.async.wait_group N+1", "cp.async.wait_group"),
    _dropped("drop cp.async.commit_group", "cp.async.commit_group"),
    _dropped("drop cp.async.mbarrier.arrive", "cp.async.mbarrier.arrive"),
    _dropped("drop cp.async.bulk.wait_group", "cp.async.bulk.wait_group"),
    _one_more("cp.async.bulk.wait_group N+1", "cp.async.bulk.wait_group"),
    _dropped("drop cp.async.bulk.commit_group", "cp.async.bulk.commit_group"),
    _dropped("drop wgmma.wait_group", "wgmma.wait_group"),
    _one_more("wgmma.wait_group N+1", "wgmma.wait_group"),
    _dropped("drop wgmma.fence", "wgmma.fence"),
    _dropped("drop wgmma.commit_group", "wgmma.commit_group"),
    _dropped("drop fence.proxy", "fence.proxy"),
    _dropped(
        "drop fence",
        "fence.acq_rel",
        "fence.sc",
        "fence.mbarrier_init",
        "membar",
        "fence.acquire",
        "fence.release",
    ),
    _dropped("drop mbarrier.arrive", "mbarrier.arrive", "mbarrier.arrive_drop"),
    _dropped("drop mbarrier.init", "mbarrier.init"),
    Operator("pass mbarrier wait", "sync", _barrier_wait_passed),
    Operator("other mbarrier parity", "sync", _other_parity),
    _other_count("expect_tx bytes + 16", "mbarrier.arrive.expect_tx", 16),
    _other_count("expect_tx bytes - 16", "mbarrier.arrive.expect_tx", -16),
    _other_count("mbarrier.init count + 1", "mbarrier.init", 1),
    _first_program_alone("mapa", "shared::cluster", "0"),
    _first_program_alone("cp", "multicast::cluster", "1"),
    Operator("weaken order of atomics", "sync", _weakened),
)
