"""Products of warpgroups: `wgmma.mma_async`, which LLVM knows only as inline assembly.

All steps along k of one tile of D are one asm with the tile's registers tied to themselves, so that they stay in place:

    fence;  { wgmma {$0, …}, …;  wgmma {$0, …}, …; }  per tile;  commit

A left operand that is computed in registers comes in parts, each with a fence and an asm of its own: ptxas then starts on the
first while the threads are still busy with the others.

Where an operand lies is a matter of the warpgroup and of constants: the lower half of the descriptor of a tile's start is
computed once, and each step adds its distance in the asm itself, for LLVM would otherwise keep them all in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from kbuild.compiler.ir.core import Trait, Value
from kbuild.compiler.ir.types import MemDescType, Type, bit_width, element_of, is_float
from kbuild.compiler.layout import LinearLayout, wgmma_mode
from kbuild.compiler.lower.emit import Emitter
from kbuild.compiler.lower.index import linear
from kbuild.compiler.lower.literals import SHARED_POINTER, llvm_type
from kbuild.compiler.lower.lowering import Results, lower
from kbuild.compiler.lower.mma import places
from kbuild.compiler.lower.shapes import layout
from kbuild.compiler.lower.shared import descriptor
from kbuild.compiler.lower.words import to_word
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.targets.wgmma import GROUP_ROWS, GROUP_WARPS, Descriptor, WgmmaAtom
from kbuild.errors import InternalError

_ADDRESS_UNIT = 16
"""Bytes; descriptors count in these."""
_A_REGISTERS = 4
"""32-bit registers of A for one step, where A is in registers."""
_PARTS = 4
"""Parts in which a left operand that the threads compute is handed over.  Where a producer brings the right one, the threads wait
for that with all of the left one ready, and parts would gain nothing."""


@lower(WarpGroupDot)
def lower_warp_group_dot(emit: Emitter, op: WarpGroupDot) -> Sequence[str]:
    atom = emit.target.wgmma_atom(op.atom)
    order = (1, 0) if op.swapped else (0, 1)
    first, second = (op.b, op.a) if op.swapped else (op.a, op.b)
    result = layout(op.c.type).transpose(order)
    where = places(result)
    rows = sorted({row for row, _ in where if row % GROUP_ROWS == 0})
    columns = sorted({column for _, column in where if column % atom.n == 0})
    sums = list(emit.registers(op.c))
    in_shared = isinstance(first.type, MemDescType)
    in_block = first.block is op.parent
    left = (_SharedOperand(emit, first, 0, atom, result, order) if in_shared
            else _RegisterOperand(emit, first, atom, order, in_block))  # fmt: skip
    right = _SharedOperand(emit, second, 1, atom, result, order)
    for steps in left.parts(emit, right.depth // atom.k):
        emit.asm("wgmma.fence.sync.aligned;", "", [], [], effect=True)
        for row, column in product(rows, columns):
            tile = [where[row + 8 * (i >> 1 & 1), column + 8 * (i >> 2) + (i & 1)] for i in range(atom.accumulator_registers)]
            before = [sums[index] for index in tile]
            for index, register in zip(tile, _multiply(emit, atom, (left, row), (right, column), before, steps)):
                sums[index] = register
    emit.asm("wgmma.commit_group.sync.aligned;", "", [], [], effect=True)
    if not op.is_async:
        sums = _wait(emit, 0, sums, op.c.type)
    return [sums[first] for first in result.representatives()]


class _SharedOperand:
    """An operand in shared memory."""

    def __init__(
        self, emit: Emitter, value: Value, index: int, atom: WgmmaAtom, result: LinearLayout, order: tuple[int, int] = (0, 1)
    ) -> None:
        assert isinstance(value.type, MemDescType)
        shape = tuple(value.type.tile_shape[axis] for axis in order)
        type_ = MemDescType(shape, value.type.element, value.type.layout.transpose(order))
        mode = wgmma_mode(type_.layout, bit_width(type_))
        pointer, start = descriptor(emit, value)
        if mode is None or not mode[0] or start:
            raise InternalError(f"wgmma cannot read a tile of shared memory like {type_.layout}")
        outer, depth = (0, 1) if index == 0 else (1, 0)
        swizzle_bytes, first_axis_contiguous = mode
        transposed = first_axis_contiguous == (index == 0)
        panel_rows = type_.tile_shape[depth if transposed else outer]
        self.tile = Descriptor(swizzle_bytes, panel_rows, transposed)
        self.transposed, self.element_bytes, self.k = transposed, bit_width(type_) // 8, atom.k
        self.depth = type_.tile_shape[depth]
        # Lane 0 of each group's first warp holds D's element at the origin of what the group computes.
        groups = tuple(result.unflatten(basis)[index] for basis in result.bases_of("warp")[2:])
        self.base = self._base(emit, pointer, tuple(self.tile.offset(origin, 0, self.element_bytes) for origin in groups))

    def _base(self, emit: Emitter, pointer: str, groups: tuple[int, ...]) -> str:
        """The lower half of the descriptor of the group's part of the tile; the upper one is constant."""
        address = emit.instruction(f"ptrtoint {SHARED_POINTER} {pointer} to i32")
        if any(groups):
            with emit.at_entry():
                moved = linear(emit, group_number(emit), groups)
            address = emit.add(address, moved)
        units = emit.and_(emit.shift(address, -4), str(0x3FFF))
        return emit.or_(units, str(self.tile.constant & 0xFFFFFFFF))

    def parts(self, emit: Emitter, steps: int) -> list[range]:
        """The steps along k that are there at the same time."""
        return [range(steps)]

    def distance(self, origin: int, step: int) -> int:
        """What a step of the tile at `origin`, along m or n, adds to the descriptor."""
        return self.tile.offset(origin, step * self.k, self.element_bytes) // _ADDRESS_UNIT


class _RegisterOperand:
    """A in registers: of each step the four words that the fragment has, row + 8 in odd ones, the second half of k in the
    later two.  `changes` says that the block of the product computes them, and does so again in the next iteration."""

    transposed = False

    def __init__(self, emit: Emitter, value: Value, atom: WgmmaAtom, order: tuple[int, int], changes: bool) -> None:
        fragment = layout(value.type).transpose(order)
        where, registers, width = places(fragment), emit.registers(value), atom.k_width
        steps = range(fragment.shape[1] // atom.k)
        self.changes, self.is_computed = changes, value.op is not None and value.op.has(Trait.ELEMENTWISE)
        self.words: dict[int, list[list[str]]] = {}
        for row in sorted({row for row, _ in where if row % GROUP_ROWS == 0}):
            self.words[row] = []
            for step in steps:
                words = [
                    [(row + 8 * (i & 1), step * atom.k + 4 * width * (i >> 1) + element) for element in range(width)]
                    for i in range(_A_REGISTERS)
                ]
                packed = [to_word(emit, [registers[where[at]] for at in word], value.type) for word in words]
                self.words[row].append(packed)

    def parts(self, emit: Emitter, steps: int) -> Iterator[range]:
        """The steps along k by the parts in which they become ready, each pinned when it is asked for."""
        in_parts = self.changes and self.is_computed and not emit.partition
        size = max(steps // _PARTS, 1) if in_parts else steps
        for start in range(0, steps, size):
            if self.changes:
                for words in self.words.values():
                    words[start : start + size] = [_pinned(emit, each) for each in words[start : start + size]]
            yield range(start, start + size)


def _pinned(emit: Emitter, words: Sequence[str]) -> list[str]:
    """Copies that ptxas leaves in place: where it sees what computes the words, it may compute them into registers that a
    product in flight still reads, and then lets no products overlap."""
    count = len(words)
    moves = "\n".join(f"mov.b32 ${index}, ${count + index};" for index in range(count))
    constraints = ",".join(["=r"] * count + ["r"] * count)
    return emit.asm(moves, constraints, [("i32", word) for word in words], ["i32"] * count, effect=True)


def group_number(emit: Emitter) -> str:
    """The number of the thread's warpgroup, in the entry block, as a value that ptxas knows to be the same in a warp."""
    number = emit.shift(emit.thread_id(), -(32 * GROUP_WARPS - 1).bit_length())
    operands = [("i32", "-1"), ("i32", number), ("i32", "0"), ("i32", "31")]
    return emit.call("llvm.nvvm.shfl.sync.idx.i32", "i32", operands)


def _multiply(
    emit: Emitter,
    atom: WgmmaAtom,
    left: tuple[_SharedOperand | _RegisterOperand, int],
    right: tuple[_SharedOperand, int],
    sums: Sequence[str],
    steps: range,
) -> list[str]:
    """Some steps along k of one tile of D, `left` and `right` giving the operand and where in it the tile begins."""
    (a, row), (b, column) = left, right
    kind, letter = llvm_type(atom.accumulator), "f" if is_float(atom.accumulator) else "r"
    count = len(sums)
    starts_at_zero = all(register == emit.constant(0, atom.accumulator) for register in sums)
    tied = [] if starts_at_zero else [(kind, register) for register in sums]
    operands = [*tied, ("i32", b.base)]
    constraints = [f"=&{letter}"] * count + [str(index) for index in range(len(tied))] + ["r"]
    place = count + len(tied)
    if isinstance(a, _SharedOperand):
        operands.append(("i32", a.base))
        constraints.append("r")
    else:
        operands += [("i32", word) for words in a.words[row][steps.start : steps.stop] for word in words]
        constraints += ["r"] * (len(operands) - len(tied) - 1)
    accumulators = f"{{{', '.join(f'${index}' for index in range(count))}}}"
    ending = atom.immediates(isinstance(a, _SharedOperand), a.transposed, b.transposed)
    lines = ["{", ".reg .b32 low;", ".reg .b64 a, b;"]
    for step in steps:
        lines += _at(b, "b", place, b.distance(column, step))
        if isinstance(a, _SharedOperand):
            lines += _at(a, "a", place + 1, a.distance(row, step))
            source = "a"
        else:
            first = place + 1 + _A_REGISTERS * (step - steps.start)
            source = f"{{{', '.join(f'${first + index}' for index in range(_A_REGISTERS))}}}"
        scale = 0 if starts_at_zero and step == 0 else 1
        lines.append(f"{atom.instruction} {accumulators}, {source}, b, {scale}{ending};")
    lines.append("}")
    return emit.asm("\n".join(lines), ",".join(constraints), operands, [kind] * count, effect=True)


def _at(operand: _SharedOperand, register: str, place: int, distance: int) -> list[str]:
    """Puts the descriptor of a step, so far from the operand's start, into a register."""
    return [f"add.s32 low, ${place}, {distance};", f"mov.b64 {register}, {{low, {operand.tile.constant >> 32}}};"]


@lower(WarpGroupDotWait)
def lower_warp_group_dot_wait(emit: Emitter, op: WarpGroupDotWait) -> Results:
    lengths = [len(emit.registers(value)) for value in op.values]
    kinds = {llvm_type(value.type) for value in op.values}
    if len(kinds) > 1:
        raise InternalError("one wait for products of different types", op.loc)
    registers = [register for value in op.values for register in emit.registers(value)]
    if not registers:
        emit.asm(f"wgmma.wait_group.sync.aligned {op.pendings};", "", [], [], effect=True)
        return Results()
    waited = _wait(emit, op.pendings, registers, op.values[0].type)
    results, start = Results(), 0
    for length in lengths:
        results.append(waited[start : start + length])
        start += length
    return results


def _wait(emit: Emitter, pendings: int, registers: Sequence[str], type_: Type) -> list[str]:
    """Wait, with the registers tied: nothing that reads them moves up before it."""
    element = element_of(type_)
    kind, letter, count = llvm_type(element), "f" if is_float(element) else "r", len(registers)
    constraints = ",".join([f"={letter}"] * count + [str(index) for index in range(count)])
    operands = [(kind, register) for register in registers]
    return emit.asm(f"wgmma.wait_group.sync.aligned {pendings};", constraints, operands, [kind] * count, effect=True)


@lower(FenceAsyncShared)
def lower_fence_async_shared(emit: Emitter, op: FenceAsyncShared) -> None:
    emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)
