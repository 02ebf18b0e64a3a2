"""Loads, stores and atomic operations in all state spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kbuild.emulator.engine.findings import Fault
from kbuild.emulator.isa.bits import flush
from kbuild.emulator.isa.floats import greatest, least
from kbuild.emulator.isa.instruction_spec import TYPES, Bound, Effects, Form, InstructionSpec, View
from kbuild.emulator.isa.moves import move
from kbuild.emulator.ptx.model import Address, Instruction, Operand, PtxError, Sink, Symbol, Vector

_SPACE_NAMES = ("global", "shared", "local", "const", "param")


def space_of(form: Form) -> str:
    """The state space that an instruction names, or `generic`."""
    for modifier in form.modifiers:
        if modifier.split("::")[0] in _SPACE_NAMES:
            return modifier.split("::")[0]
    return "generic"


def address_of(operand: Operand) -> tuple[View, int]:
    """The view of an address's base, and the offset to add to it."""
    if not isinstance(operand, Address):
        raise PtxError(f"expected an address in brackets, found {operand}")
    if isinstance(operand.base, Symbol):
        return View(Symbol(operand.base.name, operand.offset), "address"), 0
    return View(operand.base, "address"), operand.offset


def offset_by(base: np.ndarray, offset: int) -> np.ndarray:
    """Addresses some bytes further on, of the same width."""
    return (
        base + base.dtype.type(offset) if offset > 0 else base - base.dtype.type(-offset) if offset else base
    )


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The elements of an operand that may be a vector."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def _vector(form: Form, operand: Operand, instruction: Instruction) -> tuple[tuple[Operand, ...], int]:
    """The elements of a load or store and the bytes it moves per lane; those of 128 bits are two of 64."""
    items, halves = items_of(operand), 2 if form.type == "b128" else 1
    if len(items) != int(form.choose("v2", "v4", "v8", default="v1")[1:]) * halves:
        raise PtxError(f"{instruction.name} with {len(items) // halves} registers")
    size = len(items) * form.dtype.itemsize // halves
    if size > 16:
        raise PtxError(f"{instruction.name} moves {size} bytes, more than 16")
    return items, size


def _load(form: Form, instruction: Instruction) -> Bound:
    space = space_of(form)
    items, size = _vector(form, instruction.operands[0], instruction)
    wanted = [(index, item) for index, item in enumerate(items) if not isinstance(item, Sink)]
    kind = "b64" if form.type == "b128" else form.type
    targets = tuple(View(item, kind, fit="extend") for _, item in wanted)
    dtype, count, columns = TYPES[kind], len(items), [index for index, _ in wanted]
    address = instruction.operands[1]
    if space == "param" and isinstance(address, Address) and isinstance(address.base, Symbol):
        sources = tuple(
            View(Address(address.base, address.offset + index * dtype.itemsize), kind) for index, _ in wanted
        )
        return Bound(_move_each, sources + targets, wants_warps=False)
    base, offset = address_of(address)

    def function(warps: Any, start: np.ndarray, *out: np.ndarray, where: Any = True) -> None:
        found = warps.memory.load(space, offset_by(start, offset), size, where, (warps, instruction))
        if count == 1:
            np.copyto(out[0], found.view(dtype), where=where, casting="unsafe")
            return
        elements = found.view(dtype).reshape(len(start), count)
        for column, target in zip(columns, out):
            np.copyto(target, elements[:, column], where=where, casting="unsafe")

    return Bound(function, (base, *targets))


def _move_each(*views: np.ndarray, where: Any = True) -> None:
    half = len(views) // 2
    for source, target in zip(views[:half], views[half:]):
        move(source, target, where)


def _store(form: Form, instruction: Instruction) -> Bound:
    space = space_of(form)
    address = instruction.operands[0]
    items, size = _vector(form, instruction.operands[1], instruction)
    dtype = np.dtype(f"u{min(form.dtype.itemsize, 8)}")
    if space == "param" and isinstance(address, Address) and isinstance(address.base, Symbol):
        bits = f"b{8 * dtype.itemsize}"
        targets = (
            View(Address(address.base, address.offset + index * dtype.itemsize), bits)
            for index in range(len(items))
        )
        return Bound(
            _move_each, (*(View(item, bits, fit="low") for item in items), *targets), wants_warps=False
        )
    base, offset = address_of(address)
    whole = np.dtype("u8") if size == 16 else np.dtype(f"u{size}")

    def function(warps: Any, start: np.ndarray, *values: np.ndarray, where: Any = True) -> None:
        if len(values) == 1:
            data = values[0].view(dtype)
        else:
            elements = np.empty((len(start), len(values)), dtype)
            for column, value in enumerate(values):
                elements[:, column] = value
            data = elements.view(whole)
            data = data if size == 16 else data.ravel()
        warps.memory.store(space, offset_by(start, offset), data, size, where, (warps, instruction))

    bits = f"b{8 * dtype.itemsize}"
    return Bound(function, (base, *(View(item, bits, fit="low") for item in items)))


def _update(form: Form) -> Callable[..., np.ndarray]:
    """`update(old, b[, c])` on bits: the new value of an atomic operation."""
    operation = form.choose("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")
    if operation == "exch":
        return lambda old, b: b
    if operation == "cas":
        return lambda old, b, c: np.where(old == b, c, old)
    if operation in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[operation]
    if operation == "inc":
        return lambda old, b: np.where(old >= b, 0, old + 1).astype(old.dtype)
    if operation == "dec":
        return lambda old, b: np.where((old == 0) | (old > b), b, old - 1).astype(old.dtype)
    if form.type in ("bf16", "bf16x2"):
        return _bfloat_update(operation)
    element = np.dtype("f2") if form.type == "f16x2" else form.dtype
    floating = element.kind == "f"
    apply = {
        "add": np.add,
        "min": least if floating else np.minimum,
        "max": greatest if floating else np.maximum,
    }[operation]
    if operation == "add" and form.type == "f32" and not (form.has("shared") or form.has("shared::cta")):
        # In global memory sums of f32 flush subnormal numbers; in shared memory they do not.
        return lambda old, b: flush(flush(old.view(element)) + flush(b.view(element))).view(old.dtype)
    return lambda old, b: apply(old.view(element), b.view(element)).view(old.dtype)


def _bfloat_update(operation: str) -> Callable[..., np.ndarray]:
    from_bits = lambda bits: (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)  # noqa: E731
    apply = {"add": np.add, "min": least, "max": greatest}[operation]

    def update(old: np.ndarray, b: np.ndarray) -> np.ndarray:
        raw = apply(from_bits(old), from_bits(b)).view(np.uint32).astype(np.uint64)
        return (
            ((raw + 0x7FFF + (raw >> np.uint64(16) & np.uint64(1))) >> np.uint64(16))
            .astype(np.uint16)
            .view(old.dtype)
        )

    return update


def _atomic(form: Form, instruction: Instruction) -> Bound:
    """`atom` returns the old value, `red` does not; a vector is updated element by element, and aligned as a
    whole."""
    space = space_of(form)
    returns = form.opcode == "atom"
    operands = instruction.operands[1:] if returns else instruction.operands
    operands = operands[:-1] if form.has("L2::cache_hint") else operands
    base, offset = address_of(operands[0])
    size = form.dtype.itemsize
    update = _update(form)
    lists = [items_of(operand) for operand in operands[1:]]
    if any(len(items) != len(lists[0]) for items in lists):
        raise PtxError(f"{instruction.name} has vectors of different lengths")
    width, count = len(lists[0]), len(lists)
    if width != int(form.choose("v2", "v4", "v8", default="v1")[1:]) or not 4 <= max(width * size, 4) <= 16:
        raise PtxError(f"{instruction.name} with {width} registers")
    bits = f"b{8 * size}"
    sources = tuple(View(item, bits) for items in lists for item in items)
    given = items_of(instruction.operands[0]) if returns else ()
    wanted = [element for element, item in enumerate(given) if not isinstance(item, Sink)]
    targets = tuple(View(given[element], bits) for element in wanted)

    def function(warps: Any, start: np.ndarray, *views: np.ndarray, where: Any = True) -> None:
        if width > 1:
            _check_aligned(offset_by(start, offset), width * size, where)
        for element in range(width):
            values = [views[number * width + element] for number in range(count)]
            old = warps.memory.atomic(
                space,
                offset_by(start, offset + element * size),
                size,
                update,
                values,
                where,
                (warps, instruction),
            )
            if element in wanted:
                np.copyto(views[count * width + wanted.index(element)], old, where=where)

    return Bound(function, (base, *sources, *targets))


def _check_aligned(addresses: np.ndarray, size: int, where: Any) -> None:
    """Raise Fault for an address that is not a multiple of the vector's size."""
    wrong = addresses % addresses.dtype.type(size) != 0
    wrong = wrong if where is True else wrong & where
    if wrong.any():
        worst = int(addresses[np.argmax(wrong)])
        raise Fault("misaligned", f"the address {worst:#x} is not aligned to the {size} bytes of the vector")


def _nothing(form: Form, instruction: Instruction) -> Bound:
    return Bound(lambda where=True: None, wants_warps=False)


_SPACES = "[global|shared|local|const|param|param::entry|param::func|shared::cta|shared::cluster]"
_ORDER = "[weak|volatile|relaxed|acquire|release|acq_rel|mmio][cta|cluster|gpu|sys]"
_CACHE = (
    "[nc][ca|cg|cs|lu|cv|wb|wt][L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate]"
    "[L2::evict_normal|L2::evict_first|L2::evict_last][L2::cache_hint][L2::64B|L2::128B|L2::256B]"
)
_DATA = "{b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64|f16|bf16|f16x2}"
_ATOMIC = "[relaxed|acquire|release|acq_rel][cta|cluster|gpu|sys][global|shared|shared::cta|shared::cluster][L2::cache_hint]"
_ANY = ("generic",)

ROWS = [
    InstructionSpec(
        "ld" + _ORDER + _SPACES + _CACHE + "[v2|v4]" + _DATA,
        "",
        "load",
        handler=_load,
        effects=Effects(reads=_ANY),
        unordered=True,
    ),
    InstructionSpec(
        "st" + _ORDER + _SPACES + _CACHE + "[v2|v4]" + _DATA,
        "",
        "store",
        handler=_store,
        effects=Effects(writes=_ANY),
        unordered=True,
    ),
    *(
        InstructionSpec(
            f"{opcode}{_ATOMIC}{operation}",
            "",
            summary,
            handler=_atomic,
            effects=Effects(reads=_ANY, writes=_ANY, atomic=True),
            unordered=True,
        )
        for opcode in ("atom", "red")
        for operation, summary in (
            (".add[noftz]{u32|s32|u64|s64|f16|f16x2|bf16|bf16x2|f32|f64}", "atomic sum"),
            (".add{v2|v4}.f32", "atomic sums of vectors"),
            (
                "{add|min|max}.noftz{v2|v4|v8}{f16|f16x2|bf16|bf16x2}",
                "atomic sums, smaller or larger of vectors of halves",
            ),
            ("{min|max}{u32|s32|u64|s64}", "atomic smaller or larger"),
            ("{and|or|xor}{b32|b64}", "atomic logic"),
            ("{inc|dec}.u32", "atomic count up or down with wrap"),
        )
    ),
    InstructionSpec(
        "atom" + _ATOMIC + ".exch{b32|b64|u32|s32|u64|f32}",
        "",
        "atomic exchange",
        handler=_atomic,
        effects=Effects(reads=_ANY, writes=_ANY, atomic=True),
        unordered=True,
    ),
    InstructionSpec(
        "atom" + _ATOMIC + ".cas{b16|b32|b64|u32|s32|u64}",
        "",
        "atomic compare and swap",
        handler=_atomic,
        effects=Effects(reads=_ANY, writes=_ANY, atomic=True),
        unordered=True,
    ),
    InstructionSpec("prefetch[global|local]{L1|L2|tensormap}", "", "hint", handler=_nothing, unordered=True),
    InstructionSpec("prefetch[const|param].tensormap", "", "hint", handler=_nothing, unordered=True),
    InstructionSpec("prefetchu.L1", "", "hint", handler=_nothing),
    InstructionSpec("discard[global].L2", "", "hint", handler=_nothing),
    InstructionSpec("applypriority[global].L2::evict_normal", "", "hint", handler=_nothing),
]
assert set(_DATA[1:-1].split("|")) <= set(TYPES)
