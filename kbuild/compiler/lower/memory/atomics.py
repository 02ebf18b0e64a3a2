"""Atomic operations, as PTX: LLVM would drop the ordering of float atomics and loop for packed ones.

Each element is done by one thread; where others hold the element too and something uses the old values, they
get them through the operation's scratch memory.  The pass `barriers` makes threads wait for each other around
those that release or acquire.

A thread that has several instructions to do orders them all by one fence: each `atom.acq_rel` has a fence of its
own, which waits for the one before it.

    fence.acq_rel.gpu;                                    the release
    red.relaxed.gpu.global.add.v4.f32 [$0 + 0], {…};      neighbours in memory are updated together
    red.relaxed.gpu.global.add.v4.f32 [$0 + 2048], {…};
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kbuild.compiler.analysis.access import atomic_width
from kbuild.compiler.analysis.barriers.order import order_of
from kbuild.compiler.ir.types import BF16, F16, FloatType, TensorType, Type, element_of
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import flat_coordinate
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, SHARED_POINTER, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, per_word, to_word, to_words
from kbuild.compiler.lower.memory.compare_and_swap import update_by_swapping
from kbuild.compiler.lower.memory.global_memory import access_of, vector_width, writers
from kbuild.compiler.lower.memory.pointers import address
from kbuild.compiler.ops.tensor import Atomic, AtomicCAS, AtomicRMW
from kbuild.errors import CompileError

_KINDS = {
    "add": ("add", "u"),
    "fadd": ("add", "f"),
    "max": ("max", "s"),
    "umax": ("max", "u"),
    "min": ("min", "s"),
    "umin": ("min", "u"),
    "and": ("and", "b"),
    "or": ("or", "b"),
    "xor": ("xor", "b"),
    "xchg": ("exch", "b"),
}
"""PTX operation, and the letter of its type."""


@lower(AtomicRMW)
def lower_atomic_rmw(emit: Emitter, op: AtomicRMW) -> Sequence[str]:
    element = element_of(op.value.type)
    values = emit.registers(op.value)
    _check_type(op, element)
    if _by_swapping(emit, op, element):
        return _each(emit, op, 1, "", [values])
    width = min(atomic_width(op, emit.target), vector_width(emit, op.ptr, op.mask))
    return _each(emit, op, width, _rmw_name(op, element, width), [values])


@lower(AtomicCAS)
def lower_atomic_cas(emit: Emitter, op: AtomicCAS) -> Sequence[str]:
    bits = memory_bits(op.value.type)
    if bits == 8:
        raise CompileError(
            "there is no 8-bit atomic compare-and-swap", op.loc, "16, 32 or 64 bits are possible"
        )
    name = f"cas.b{bits}"
    return _each(emit, op, 1, name, [emit.registers(op.compare), emit.registers(op.value)])


def _check_type(op: AtomicRMW, element: Type) -> None:
    if element in (F16, BF16) and op.kind in ("fadd", "fmax", "fmin"):
        return
    if memory_bits(element) < 32:
        raise CompileError(f"there is no atomic {op.kind} of {element}", op.loc, "use 32 or 64 bits")
    if isinstance(element, FloatType) and op.kind not in ("fadd", "xchg"):
        raise CompileError(f"there is no atomic {op.kind} of {element}", op.loc)


def _by_swapping(emit: Emitter, op: AtomicRMW, element: Type) -> bool:
    """Whether the hardware has no such operation."""
    return op.kind in ("fmax", "fmin") or (element == BF16 and not emit.target.has("bf16_atomics"))


def _rmw_name(op: AtomicRMW, element: Type, width: int) -> str:
    operation, letter = _KINDS[op.kind]
    vector = f".v{width // per_word(element)}" if width > per_word(element) else ""
    if op.kind == "fadd" and memory_bits(element) == 16:
        return f"add.noftz{vector}.{element}{'x2' if width > 1 else ''}"
    # Signed and unsigned sums are the same; PTX has u64 but no s64 addition.
    return f"{operation}{vector}.{letter}{memory_bits(element)}"


def _each(
    emit: Emitter, op: Atomic, width: int, name: str, operands: Sequence[Sequence[str]]
) -> Sequence[str]:
    """Do the atomic `name` for each element once, or without a name by swapping; the registers of the old values."""
    element = element_of(op.value.type)
    masks = emit.registers(op.mask) if isinstance(op, AtomicRMW) and op.mask is not None else None
    owner, unique = writers(emit, op.ptr.type)
    starts = range(0, len(operands[0]), width)
    order = order_of(op)
    # What reads nothing cannot acquire.
    acquires = order in ("acquire", "acq_rel")
    returns = bool(op.result.users) or acquires or name.startswith(("cas", "exch"))
    old: list[str] = []
    with _ordered(emit, order, op.scope, owner, sum(start in unique for start in starts)) as each:
        instruction = f"{'atom' if returns else 'red'}.{each}.{op.scope}.global.{name}"
        for start in starts:
            if start not in unique:
                own = layout(op.ptr.type).representatives()
                old += [old[own[start + place]] for place in range(width)]
                continue
            guard = emit.all_of([owner, masks[start] if masks is not None else None])
            if not name:
                assert isinstance(op, AtomicRMW)
                word = update_by_swapping(emit, op, each, start, guard, operands[0][start], element)
                old += from_word(emit, word, element, 1)
                continue
            inputs = [to_words(emit, values[start : start + width], element) for values in operands]
            words = _atomic(emit, op, instruction, returns, start, width, guard, inputs)
            for word in words:
                old += from_word(emit, word, element, min(width, per_word(element)))
            old += [""] * (0 if words else width)
    return old if op.scratch is None or not op.result.users else _shared_out(emit, op, element, owner, old)


@contextmanager
def _ordered(emit: Emitter, order: str, scope: str, owner: str, count: int) -> Iterator[str]:
    """The order of each of `count` instructions per thread, between what orders them all."""
    if count == 1 or order == "relaxed":
        yield order
        return
    if order != "acquire":
        _fence(emit, scope, owner)
    yield "relaxed"
    if order != "release":
        _fence(emit, scope, owner)


def _fence(emit: Emitter, scope: str, owner: str) -> None:
    guarded = owner != "true"
    template = f"{'@$0 ' if guarded else ''}fence.acq_rel.{scope};"
    emit.asm(template, "b" if guarded else "", [("i1", owner)] if guarded else [], [], effect=True)


def _atomic(
    emit: Emitter,
    op: Atomic,
    instruction: str,
    returns: bool,
    start: int,
    width: int,
    guard: str,
    inputs: Sequence[Sequence[str]],
) -> list[str]:
    """One instruction for the elements from `start`; the words of the old values, none where it `returns` none."""
    base, offset = address(emit, op.ptr, start)
    access = access_of(element_of(op.value.type), width)
    narrow = access.word_bits < 32
    kind, constraint = ("i16", "h") if narrow else (access.type, access.constraint)
    if narrow:
        inputs = [[emit.instruction(f"trunc i32 {word} to i16") for word in words] for words in inputs]
    outputs = access.words if returns else 0
    operands = [(GLOBAL_POINTER, base), *((kind, word) for words in inputs for word in words)]
    constraints = [f"={constraint}"] * outputs + ["l"] + [constraint] * (len(operands) - 1)
    predicate = ""
    if guard != "true":
        predicate = f"@${len(constraints)} "
        operands.append(("i1", guard))
        constraints.append("b")
        # Where the guard fails the old values are zero, not undefined.
        operands += [(kind, "0")] * outputs
        constraints += map(str, range(outputs))
    places = range(outputs + 1, outputs + 1 + access.words * len(inputs), access.words)
    values = ", ".join(map(access.braced, places))
    result = f"{access.braced(0)}, " if returns else ""
    template = f"{predicate}{instruction} {result}[${outputs} + {offset}], {values};"
    found = emit.asm(template, ",".join(constraints), operands, [kind] * outputs, effect=True)
    return [emit.instruction(f"zext i16 {word} to i32") for word in found] if narrow else found


def _shared_out(emit: Emitter, op: Atomic, element: Type, owner: str, old: Sequence[str]) -> Sequence[str]:
    """Old values to all threads that hold the element: the thread that did the atomic writes it, all read it."""
    assert op.scratch is not None
    kind = f"i{memory_bits(element)}"
    size = memory_bits(element) // 8

    def place(register: int) -> str:
        base, constant = _place(emit, op, register)
        moved = emit.offset_pointer(
            emit.shared_pointer(op.scratch or 0), emit.mul(base, str(size)), SHARED_POINTER
        )
        return emit.offset_pointer(moved, constant * size, SHARED_POINTER)

    _, unique = writers(emit, op.ptr.type)
    with emit.when(owner):
        for register in sorted(unique):
            word = to_word(emit, [old[register]], element)
            value = emit.instruction(f"trunc i32 {word} to {kind}") if memory_bits(element) < 32 else word
            emit.line(f"store {kind} {value}, {SHARED_POINTER} {place(register)}, align {size}")
    emit.barrier()
    found = []
    for register in range(len(old)):
        loaded = emit.effect(f"load {kind}, {SHARED_POINTER} {place(register)}, align {size}")
        wide = emit.instruction(f"zext {kind} {loaded} to i32") if memory_bits(element) < 32 else loaded
        found += from_word(emit, wide, element, 1)
    return found


def _place(emit: Emitter, op: Atomic, register: int) -> tuple[str, int]:
    if not isinstance(op.ptr.type, TensorType):
        return "0", 0
    return flat_coordinate(emit, layout(op.ptr.type), register)
