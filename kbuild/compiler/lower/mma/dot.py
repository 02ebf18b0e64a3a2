"""Dots: by tensor-core instructions where `tt.dot` names one, by scalar fma otherwise.

An instruction's fragments are found by coordinates: lane 0 of warp 0 holds, of every tile, the element at the
tile's origin and those at fixed distances from it (PTX ISA, "Matrix fragments for mma"; see
targets/mma_sync.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import FloatType, Type, element_of, is_float, scalar
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import View, layout
from kbuild.compiler.lower.core.words import to_word
from kbuild.compiler.ops.gpu import ConvertLayout, LocalLoad
from kbuild.compiler.ops.tensor import Dot, Load
from kbuild.errors import InternalError
from kbuild.targets.mma_sync import MmaAtom

Coordinates = tuple[int, ...]


@lower(Dot)
def lower_dot(emit: Emitter, op: Dot) -> Sequence[str]:
    if op.atom:
        return _by_tensor_cores(emit, op, emit.target.atom(op.atom))
    return _by_fma(emit, op)


def places(layout_: LinearLayout) -> dict[Coordinates, int]:
    """The register of each element that lane 0 of warp 0 holds, by coordinates; the first of equal ones."""
    result: dict[Coordinates, int] = {}
    for register, flat in enumerate(layout_.registers()):
        result.setdefault(layout_.unflatten(flat), register)
    return result


def _by_tensor_cores(emit: Emitter, op: Dot, atom: MmaAtom) -> Sequence[str]:
    a, b, c = (places(layout(value.type)) for value in (op.a, op.b, op.c))
    registers = [emit.registers(value) for value in (op.a, op.b)]
    is_hidden = [_must_be_hidden(emit, atom, value) for value in (op.a, op.b)]
    sums = list(emit.registers(op.c))
    origins = [
        coordinates for coordinates in c if coordinates[-2] % atom.m == 0 and coordinates[-1] % atom.n == 0
    ]
    rows = sorted({coordinates[:-1] for coordinates in origins})
    columns = sorted({(*coordinates[:-2], coordinates[-1]) for coordinates in origins})
    depths = range(0, max(coordinates[-1] for coordinates in a) + 1, atom.k)
    for depth in depths:
        left = {
            row: _operand(emit, atom, op.a.type, registers[0], a, _a_elements(atom, row, depth), is_hidden[0])
            for row in rows
        }
        right = {
            column: _operand(
                emit, atom, op.b.type, registers[1], b, _b_elements(atom, column, depth), is_hidden[1]
            )
            for column in columns
        }
        for row in rows:
            for column in columns:
                if row[:-1] == column[:-1]:
                    tile = [c[element] for element in _c_elements(atom, row, column[-1])]
                    results = _multiply(emit, atom, left[row], right[column], [sums[index] for index in tile])
                    for index, result in zip(tile, results):
                        sums[index] = result
    return [sums[first] for first in layout(op.c.type).representatives()]


def _a_elements(atom: MmaAtom, row: Coordinates, depth: int) -> list[list[Coordinates]]:
    """The elements of each register of A: odd registers are 8 rows further down, later pairs 4·k_width
    columns on."""
    width = atom.k_width
    return [
        [
            (*row[:-1], row[-1] + 8 * (index & 1), depth + 4 * width * (index >> 1) + element)
            for element in range(width)
        ]
        for index in range(atom.a_registers)
    ]


def _b_elements(atom: MmaAtom, column: Coordinates, depth: int) -> list[list[Coordinates]]:
    width = atom.k_width
    return [
        [(*column[:-1], depth + 4 * width * index + element, column[-1]) for element in range(width)]
        for index in range(atom.b_registers)
    ]


def _c_elements(atom: MmaAtom, row: Coordinates, column: int) -> list[Coordinates]:
    return [
        (*row[:-1], row[-1] + 8 * (index >> 1), column + (index & 1))
        for index in range(atom.accumulator_registers)
    ]


def _operand(
    emit: Emitter,
    atom: MmaAtom,
    type_: Type,
    registers: Sequence[str],
    where: dict[Coordinates, int],
    elements: Sequence[Sequence[Coordinates]],
    is_hidden: bool,
) -> list[str]:
    words = [to_word(emit, [registers[where[element]] for element in word], type_) for word in elements]
    if is_hidden:
        words = [emit.instruction(f"xor i32 {word}, {emit.unknown_zero()}") for word in words]
    if atom.operand_register == "i32":
        return words
    return [emit.instruction(f"bitcast i32 {word} to {atom.operand_register}") for word in words]


def _must_be_hidden(emit: Emitter, atom: MmaAtom, operand: Value) -> bool:
    """Whether ptxas must not find out that words of an operand are constant.  Where it finds a constant fp8 word
    late, such as through a shuffle, it widens the upper half wrongly: ptxas 12.8 to 13.5 write uninitialized
    memory there."""
    is_widened = atom.is_fp8 and emit.target.has("fp8_mma_as_f16")
    return is_widened and not _is_loaded(operand)


def _is_loaded(value: Value) -> bool:
    """Whether every element of a value was read from memory, so that none is known before the kernel runs."""
    while isinstance(value.op, ConvertLayout | View):
        value = value.op.src
    return isinstance(value.op, LocalLoad) or (isinstance(value.op, Load) and value.op.mask is None)


def _multiply(emit: Emitter, atom: MmaAtom, a: list[str], b: list[str], c: list[str]) -> list[str]:
    kind = llvm_type(scalar(atom.accumulator))
    operands = [(atom.operand_register, word) for word in (*a, *b)] + [(kind, register) for register in c]
    kinds = [kind] * atom.accumulator_registers
    return emit.unpack(emit.call(atom.intrinsic, f"{{{', '.join(kinds)}}}", operands), kinds)


def _by_fma(emit: Emitter, op: Dot) -> Sequence[str]:
    """Each thread accumulates its elements of C one product at a time; it holds the rows of A and columns of B
    that they need."""
    a, b = places(layout(op.a.type)), places(layout(op.b.type))
    left, right = emit.registers(op.a), emit.registers(op.b)
    sums = list(emit.registers(op.c))
    target = element_of(op.c.type)
    result = layout(op.c.type)
    depth = range(_shape(op.a.type)[-1])
    held = places(result)
    order = serpentine(held)
    for k in depth:
        for *batch, row, column in order:
            register = held[(*batch, row, column)]
            try:
                x, y = left[a[(*batch, row, k)]], right[b[(*batch, k, column)]]
            except KeyError:
                raise InternalError(
                    "tt.dot without an instruction: a thread lacks operands of its results", op.loc
                ) from None
            x, y = _widened(emit, x, op.a.type, target), _widened(emit, y, op.b.type, target)
            sums[register] = multiply_add(emit, x, y, sums[register], target)
    return [sums[first] for first in result.representatives()]


def serpentine(elements: Iterable[Coordinates]) -> list[Coordinates]:
    """Elements row by row, every other row from its end, so that each shares its row or its column with the one
    before: ptxas keeps that operand for the next fma."""
    rows: dict[Coordinates, list[Coordinates]] = {}
    for at in sorted(elements):
        rows.setdefault(at[:-1], []).append(at)
    return [at for number, row in enumerate(rows.values()) for at in (row[::-1] if number % 2 else row)]


def _shape(type_: Type) -> tuple[int, ...]:
    return layout(type_).shape


def _widened(emit: Emitter, register: str, type_: Type, target: Type) -> str:
    source = element_of(type_)
    if source == target:
        return register
    operation = "fpext" if is_float(target) else "sext"
    if isinstance(source, FloatType) and source.bits == 8:
        raise InternalError("tt.dot without an instruction takes no f8 operands")
    return emit.instruction(f"{operation} {llvm_type(source)} {register} to {llvm_type(target)}")


def multiply_add(emit: Emitter, x: str, y: str, total: str, target: Type) -> str:
    kind = llvm_type(target)
    if is_float(target):
        name = {"double": "f64", "float": "f32", "half": "f16", "bfloat": "bf16"}[kind]
        return emit.call(f"llvm.fma.{name}", kind, [(kind, x), (kind, y), (kind, total)])
    return emit.add(emit.mul(x, y, kind), total, kind)
