"""Atomic operations, as PTX: LLVM would drop the ordering of float atomics and loop for packed ones.

Each element is done by one thread; where others hold the element too and something uses the old values, they
get them through the operation's scratch memory.  The pass `barriers` makes threads wait for each other around
those that release or acquire.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.types import BF16, F16, FloatType, TensorType, Type, element_of
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import flat_coordinate
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, SHARED_POINTER, memory_bits
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, to_word
from kbuild.compiler.lower.memory.compare_and_swap import update_by_swapping
from kbuild.compiler.lower.memory.global_memory import vector_width, writers
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
    # Two f16 or bf16 neighbours make one packed addition.
    packed = op.kind == "fadd" and memory_bits(element) == 16 and vector_width(emit, op.ptr, op.mask) > 1
    name = _rmw_name(op, element, packed)
    return _each(emit, op, 2 if packed else 1, name, [values])


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


def _rmw_name(op: AtomicRMW, element: Type, packed: bool) -> str:
    operation, letter = _KINDS[op.kind]
    if op.kind == "fadd" and memory_bits(element) == 16:
        return f"add.noftz.{element}{'x2' if packed else ''}"
    # Signed and unsigned sums are the same; PTX has u64 but no s64 addition.
    return f"{operation}.{letter}{memory_bits(element)}"


def _each(
    emit: Emitter, op: Atomic, width: int, name: str, operands: Sequence[Sequence[str]]
) -> Sequence[str]:
    """Do the atomic `name` for each element once, or without a name by swapping; the registers of the old values."""
    element = element_of(op.value.type)
    masks = emit.registers(op.mask) if isinstance(op, AtomicRMW) and op.mask is not None else None
    owner, unique = writers(emit, op.ptr.type)
    old: list[str] = []
    for start in range(0, len(operands[0]), width):
        if start not in unique:
            own = layout(op.ptr.type).representatives()
            old += [old[own[start + place]] for place in range(width)]
            continue
        guard = emit.all_of([owner, masks[start] if masks is not None else None])
        if not name:
            assert isinstance(op, AtomicRMW)
            word = update_by_swapping(emit, op, start, guard, operands[0][start], element)
            old += from_word(emit, word, element, 1)
            continue
        inputs = [to_word(emit, values[start : start + width], element) for values in operands]
        word = _atomic(emit, op, start, name, guard, inputs)
        old += from_word(emit, word, element, width) if word else [""] * width
    return old if op.scratch is None or not op.result.users else _shared_out(emit, op, element, owner, old)


def _atomic(emit: Emitter, op: Atomic, start: int, name: str, guard: str, inputs: Sequence[str]) -> str:
    """One instruction; the word of the old value, "" when nothing uses it and `red` does."""
    base, offset = address(emit, op.ptr, start)
    narrow = name.endswith(("f16", "b16"))
    kind, constraint = ("i64", "l") if name.endswith("64") else ("i16", "h") if narrow else ("i32", "r")
    if narrow:
        inputs = [emit.instruction(f"trunc i32 {word} to i16") for word in inputs]
    reduce = not op.result.users and op.sem in ("relaxed", "release") and not name.startswith(("cas", "exch"))
    outputs = 0 if reduce else 1
    operands = [(GLOBAL_POINTER, base), *((kind, word) for word in inputs)]
    constraints = [f"={constraint}"] * outputs + ["l"] + [constraint] * len(inputs)
    predicate = ""
    if guard != "true":
        predicate = f"@${len(constraints)} "
        operands.append(("i1", guard))
        constraints.append("b")
        if outputs:
            # Where the guard fails the old value is zero, not undefined.
            operands.append((kind, "0"))
            constraints.append("0")
    values = ", ".join(f"${outputs + 1 + index}" for index in range(len(inputs)))
    instruction = f"{'red' if reduce else 'atom'}.{op.sem}.{op.scope}.global.{name}"
    result = "" if reduce else "$0, "
    template = f"{predicate}{instruction} {result}[${outputs} + {offset}], {values};"
    found = emit.asm(template, ",".join(constraints), operands, [kind] * outputs, effect=True)
    if not found:
        return ""
    return emit.instruction(f"zext i16 {found[0]} to i32") if narrow else found[0]


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
