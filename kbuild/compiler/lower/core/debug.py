"""Barriers, assertions, printing, and PTX written by the author."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.ir.types import (
    F32,
    F64,
    I1,
    FloatType,
    IntType,
    PointerType,
    TensorType,
    Type,
    element_of,
    is_tensor,
)
from kbuild.compiler.lower.core.casts import convert_floats
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import coordinate
from kbuild.compiler.lower.core.literals import GLOBAL_POINTER, llvm_type, memory_bits
from kbuild.compiler.lower.core.lowering import Results, lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, per_word, to_word
from kbuild.compiler.ops.tensor import Assert, Barrier, GridDependencyWait, InlineAsm, LaunchDependents, Print
from kbuild.errors import CompileError


@lower(Barrier)
def lower_barrier(emit: Emitter, op: Barrier) -> None:
    if op.cluster:
        emit.asm("fence.mbarrier_init.release.cluster;", "", [], [], effect=True)
        emit.asm("barrier.cluster.arrive.aligned;", "", [], [], effect=True)
        emit.asm("barrier.cluster.wait.aligned;", "", [], [], effect=True)
    else:
        emit.barrier()


@lower(GridDependencyWait, LaunchDependents)
def lower_grid_dependency(emit: Emitter, op: GridDependencyWait | LaunchDependents) -> None:
    """Writes nothing where launches do not overlap.  LLVM's intrinsics claim to leave memory alone, so that
    accesses would move across them."""
    if emit.target.has("griddepcontrol"):
        kind = "wait" if isinstance(op, GridDependencyWait) else "launch_dependents"
        emit.asm(f"griddepcontrol.{kind};", "", [], [], effect=True)


# Assertions and printing call what CUDA's driver links into every kernel: vprintf and __assertfail.


def _global_string(emit: Emitter, text: str) -> str:
    """The generic pointer of a zero-terminated string in global memory."""
    data = text.encode() + b"\0"
    name = f"@text{len(emit.globals)}"
    body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    emit.globals.append(f'{name} = private unnamed_addr addrspace(1) constant [{len(data)} x i8] c"{body}"')
    return emit.instruction(f"addrspacecast {GLOBAL_POINTER} {name} to ptr")


@lower(Assert)
def lower_assert(emit: Emitter, op: Assert) -> None:
    """Where the condition fails, print the message with file, line and function, and stop the kernel.  No warp
    goes on before all have checked a tensor: the code that follows may do harm where the condition fails, and
    be in another layout."""
    conditions = emit.registers(op.condition)
    holds = emit.all_of([conditions[index] for index in range(len(conditions))])
    if holds == "true":
        return
    kernel = emit.func.name
    file, line = (op.loc.file, op.loc.line) if op.loc is not None else ("unknown", 0)
    function = op.loc.function if op.loc is not None and op.loc.function else kernel
    with emit.when(emit.instruction(f"xor i1 {holds}, true")):
        texts = [_global_string(emit, text) for text in (op.message, file, function)]
        operands = [("ptr", texts[0]), ("ptr", texts[1]), ("i32", str(line)), ("ptr", texts[2]), ("i64", "1")]
        emit.call("__assertfail", "void", operands)
    if is_tensor(op.condition.type):
        emit.barrier()


@lower(Print)
def lower_print(emit: Emitter, op: Print) -> None:
    """One line per element: `pid (0, 0, 0) idx (3) prefix: value`, as Triton prints it."""
    with emit.at_entry():
        program = [emit.call(f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", "i32", []) for axis in "xyz"]
    if not op.args:
        with emit.when(emit.compare("eq", emit.thread_id(), "0")):
            _print_line(emit, f"pid (%u, %u, %u){op.prefix}\n", [("i32", register) for register in program])
        return
    for number, value in enumerate(op.args):
        signed = number >= len(op.signed) or op.signed[number]
        registers = emit.registers(value)
        element = element_of(value.type)
        for register in range(len(registers)):
            index: list[tuple[str, str]] = []
            if is_tensor(value.type):
                own = layout(value.type)
                parts = [coordinate(emit, own, axis, register) for axis in range(own.rank)]
                index = [("i32", emit.add(base, str(constant))) for base, constant in parts]
            form, kind, printed = _printable(emit, registers[register], element, op.hexadecimal, signed)
            place = f" idx ({', '.join(['%u'] * len(index))})" if index else " idx ()"
            operand = f" (operand {number})" if len(op.args) > 1 else ""
            text = f"pid (%u, %u, %u){place}{op.prefix}{operand}{form}\n"
            _print_line(emit, text, [*(("i32", axis) for axis in program), *index, (kind, printed)])


def _printable(
    emit: Emitter, register: str, element: Type, hexadecimal: bool, signed: bool
) -> tuple[str, str, str]:
    """The printf conversion, LLVM type and register that print an element, promoted as C does."""
    if isinstance(element, PointerType):
        return "%p", "i64", emit.instruction(f"ptrtoint {GLOBAL_POINTER} {register} to i64")
    if isinstance(element, FloatType) and not hexadecimal:
        wide = [register]
        if element not in (F32, F64):
            wide = convert_floats(emit, wide, element, F32)
        if element != F64:
            wide = [emit.instruction(f"fpext float {wide[0]} to double")]
        return "%f", "double", wide[0]
    bits = memory_bits(element)
    kind = "i64" if bits == 64 else "i32"
    if isinstance(element, FloatType) or hexadecimal:
        word = to_word(emit, [register], element)
        return (f"0x%0{bits // 4}llx" if bits == 64 else f"0x%0{bits // 4}x"), kind, word
    assert isinstance(element, IntType)
    if element.bits < 32:
        extend = "sext" if signed and element != I1 else "zext"
        register = emit.instruction(f"{extend} {llvm_type(element)} {register} to i32")
    letter = "d" if signed else "u"
    return (f"%ll{letter}" if bits == 64 else f"%{letter}"), kind, register


def _print_line(emit: Emitter, text: str, values: Sequence[tuple[str, str]]) -> None:
    """vprintf takes its arguments as a struct in local memory."""
    struct = f"{{{', '.join(kind for kind, _ in values)}}}"
    with emit.at_entry():
        buffer = emit.effect(f"alloca {struct}, align 8")
    for place, (kind, register) in enumerate(values):
        field = emit.instruction(f"getelementptr {struct}, ptr {buffer}, i32 0, i32 {place}")
        emit.line(f"store {kind} {register}, ptr {field}, align {8 if kind in ('i64', 'double') else 4}")
    emit.call("vprintf", "i32", [("ptr", _global_string(emit, text)), ("ptr", buffer)], effect=True)


@lower(InlineAsm)
def lower_inline_asm(emit: Emitter, op: InlineAsm) -> Results:
    """The author's PTX, applied to `packed` elements of each operand at a time; narrow elements come in
    32-bit words."""
    sources = [emit.registers(argument) for argument in op.args]
    elements = [element_of(argument.type) for argument in op.args]
    outputs = [element_of(result.type) for result in op.results]
    shaped = op.args[0].type if op.args else op.results[0].type
    count = (
        len(sources[0])
        if sources
        else layout(shaped).size("register")
        if isinstance(shaped, TensorType)
        else 1
    )
    if count % op.packed:
        raise CompileError(
            f"inline_asm_elementwise packs {op.packed} elements, but each thread holds {count}",
            op.loc,
            "use a larger block or a smaller pack",
        )
    groups: dict[int, list[list[str]]] = {}

    def group(start: int) -> list[list[str]]:
        if start not in groups:
            parts = [source[start : start + op.packed] for source in sources]
            groups[start] = _apply_asm(emit, op, elements, outputs, parts)
        return groups[start]

    def result(number: int) -> Sequence[str]:
        lazy = emit.lazy(count, lambda index: group(index - index % op.packed)[number][index % op.packed])
        return lazy if op.pure else lazy[:]

    return Results([result(number) for number in range(len(outputs))])


def _apply_asm(
    emit: Emitter,
    op: InlineAsm,
    elements: Sequence[Type],
    outputs: Sequence[Type],
    parts: Sequence[Sequence[str]],
) -> list[list[str]]:
    operands = [
        operand for part, element in zip(parts, elements) for operand in _asm_operands(emit, part, element)
    ]
    counts = [op.packed // _group(element, op.packed) for element in outputs]
    kinds = [_asm_type(element, op.packed) for element, count in zip(outputs, counts) for _ in range(count)]
    found = emit.asm(op.asm, op.constraints.replace(" ", ""), operands, kinds, effect=not op.pure)
    results = []
    for element, count in zip(outputs, counts):
        own = [found.pop(0) for _ in range(count)]
        results.append(_asm_results(emit, own, element, op.packed))
    return results


def _group(element: Type, packed: int) -> int:
    """How many elements share an operand: as many as a word holds, or all when they are fewer."""
    return min(per_word(element), packed)


def _asm_type(element: Type, packed: int) -> str:
    """The LLVM type of an operand: a word when several elements or 8 bits share it, else the element's own."""
    if isinstance(element, PointerType):
        return "i64"
    if memory_bits(element) * _group(element, packed) == 16:
        return "i16"
    return "i32" if memory_bits(element) < 32 else llvm_type(element)


def _asm_operands(emit: Emitter, registers: Sequence[str], element: Type) -> list[tuple[str, str]]:
    step, kind = _group(element, len(registers)), _asm_type(element, len(registers))
    if kind == llvm_type(element):
        return [(kind, register) for register in registers]
    words = [
        to_word(emit, registers[start : start + step], element) for start in range(0, len(registers), step)
    ]
    return [(kind, emit.instruction(f"trunc i32 {word} to i16") if kind == "i16" else word) for word in words]


def _asm_results(emit: Emitter, registers: Sequence[str], element: Type, packed: int) -> list[str]:
    kind, step = _asm_type(element, packed), _group(element, packed)
    if kind == llvm_type(element):
        return list(registers)
    words = [
        emit.instruction(f"zext i16 {register} to i32") if kind == "i16" else register
        for register in registers
    ]
    return [part for word in words for part in from_word(emit, word, element, step)]
