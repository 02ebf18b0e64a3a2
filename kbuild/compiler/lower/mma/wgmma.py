"""Warpgroup dots: `wgmma.mma_async`, which LLVM knows only as inline assembly.

All steps along k of one tile of D are one asm with the tile's registers tied to themselves, so that they stay
in place:

    fence {all of D};  { wgmma {$0, …}, …;  wgmma {$0, …}, …; }  per tile;  commit

Dots that share A and whose tiles of B are neighbours (`analysis/dots/side_by_side.py`) are one instruction, of the
first; the others commit an empty group, for waits count dots.

The registers of D and of A pass through the fence: LLVM then copies and computes them before the fence, as the
instruction requires.  Those that later dots start from pass through it, too, as far as they are known: ptxas
waits for all dots in flight before it lets other instructions write accumulators.

A left operand that is computed in registers comes in parts, each with a fence and an asm of its own: ptxas
then starts on the first while the threads are still busy with the others.

The place of an operand depends on the warpgroup and on constants: the lower half of the descriptor of a tile's
start is computed once, and each step adds its distance in the asm itself, because LLVM would otherwise keep
them all in registers.  Each descriptor has a register of its own: where two steps share one, ptxas 13.5.37
treats some of their instructions as equal, and drops them.

ptxas 12 takes bits of D that it knows before a dot for known after it (`PtxasGuarantees.sees_dots_write`): for it,
what a dot starts from is hidden, unless it is zeros, which the instruction need not be given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from kbuild.compiler.analysis.dots.side_by_side import are_neighbours, side_by_side
from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType, Type, bit_width, element_of, is_float, scalar
from kbuild.compiler.layout import LinearLayout, out_of_pairs, wgmma_mode
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import SHARED_POINTER, llvm_type
from kbuild.compiler.lower.core.lowering import Results, lower
from kbuild.compiler.lower.core.opaque_copy import opaque_zero
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import to_word
from kbuild.compiler.lower.memory.shared_memory import descriptor
from kbuild.compiler.lower.mma.dot import places
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.elementwise import AddF, Fma, MulF, SubF
from kbuild.compiler.ops.gpu import WarpIf
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot, WarpGroupDotWait
from kbuild.errors import InternalError
from kbuild.targets.wgmma import GROUP_ROWS, GROUP_WARPS, WgmmaAtom, WgmmaDescriptor

DOT_MARK = "// dot "
"""In the PTX, on the line where a dot begins; the dot's number in program order follows."""
_ADDRESS_UNIT = 16
"""Bytes; descriptors count in these."""
_A_REGISTERS = 4
"""32-bit registers of A for one step, where A is in registers."""
_PARTS = 4
"""Parts in which a left operand that the threads compute is passed.  Where a producer copies the right one, the
threads wait for it with all of the left one ready, and parts would gain nothing."""


@lower(WarpGroupDot)
def lower_warp_group_dot(emit: Emitter, op: WarpGroupDot) -> Sequence[str]:
    sums = _accumulator(emit, op)
    if sums.is_multiplied:
        emit.next_dot()
        emit.asm("wgmma.commit_group.sync.aligned;", "", [], [], effect=True)
        return [sums.registers[first] for first in sums.layout.representatives()]
    together = _one_instruction(emit, op)
    atom = sums.atom.of_width(sum(each.atom.n for each in together)) if len(together) > 1 else sums.atom
    order = sums.order
    first, second = (op.b, op.a) if op.swapped else (op.a, op.b)
    in_shared = isinstance(first.type, MemDescType)
    in_block = first.block is op.parent
    left = (
        _SharedOperand(emit, first, 0, atom, sums.layout, order)
        if in_shared
        else _RegisterOperand(emit, first, atom, order, in_block)
    )
    in_pairs = isinstance(left, _RegisterOperand) and left.in_pairs
    right = _SharedOperand(emit, second, 1, atom, sums.layout, order, in_pairs)
    mark = f"{DOT_MARK}{emit.next_dot()}"
    started = [sums, *(_accumulator(emit, dot) for dot in _dots_behind(op) if dot.c in emit.values)]
    use_acc = None if op.use_acc is None else emit.scalar(op.use_acc)
    for steps in left.parts(emit, right.depth // atom.k):
        _fence(emit, mark, started, left.unpinned())
        started = []  # From here on only the dot itself writes them.
        for row, column in sums.tiles:
            tile = [(each, index) for each in together for index in each.tiles[row, column]]
            before = [each.registers[index] for each, index in tile]
            results = _multiply(emit, atom, (left, row), (right, column), before, steps, use_acc)
            for (each, index), register in zip(tile, results):
                each.registers[index] = register
    for each in together:
        each.is_multiplied = True
    emit.asm("wgmma.commit_group.sync.aligned;", "", [], [], effect=True)
    if not op.is_async:
        sums.registers = _wait(emit, 0, sums.registers, [op.c.type] * len(sums.registers))
    return [sums.registers[first] for first in sums.layout.representatives()]


class _Accumulator:
    """D of a dot: where the tiles of its instructions lie, and the registers, at first those it starts from."""

    def __init__(self, emit: Emitter, op: WarpGroupDot) -> None:
        self.atom = atom = emit.target.wgmma_atom(op.atom)
        self.order = (1, 0) if op.swapped else (0, 1)
        self.layout = layout(op.c.type).transpose(self.order)
        self.registers = list(emit.registers(op.c))
        self.is_multiplied = False
        where = places(self.layout)
        rows = sorted({row for row, _ in where if row % GROUP_ROWS == 0})
        columns = sorted({column for _, column in where if column % atom.n == 0})
        steps = [(8 * (i >> 1 & 1), 8 * (i >> 2) + (i & 1)) for i in range(atom.accumulator_registers)]
        self.tiles = {
            (row, column): [where[row + i, column + j] for i, j in steps]
            for row, column in product(rows, columns)
        }
        if not emit.target.ptxas.sees_dots_write and _has_known_bits(op.c):
            zero = opaque_zero(emit)
            for index in self.starts(emit):
                self.registers[index] = _hidden(emit, self.registers[index], _register(atom)[0], zero)

    def starts(self, emit: Emitter) -> list[int]:
        """The registers of tiles that do not start as zeros, which the instruction need not be given."""
        tiles = [
            tile
            for tile in self.tiles.values()
            if not _is_zero(emit, self.atom, [self.registers[i] for i in tile])
        ]
        return [index for tile in tiles for index in tile]


def _accumulator(emit: Emitter, op: WarpGroupDot) -> _Accumulator:
    """D of a dot; the same object each time, because an earlier dot may have fenced what this one starts from."""
    if op not in emit.accumulators:
        emit.accumulators[op] = _Accumulator(emit, op)
    return emit.accumulators[op]


def _one_instruction(emit: Emitter, op: WarpGroupDot) -> list[_Accumulator]:
    """The accumulators of the dots that the instruction of a dot makes, its own first."""
    run = [op]
    for dot in side_by_side(op)[1:]:
        is_alike = _starts_at_zero(emit, op) == _starts_at_zero(emit, dot)
        if not is_alike or not are_neighbours(run[-1], dot):
            break
        run.append(dot)
    return [_accumulator(emit, dot) for dot in run]


def _starts_at_zero(emit: Emitter, op: WarpGroupDot) -> bool:
    sums = _accumulator(emit, op)
    return _is_zero(emit, sums.atom, sums.registers)


def _dots_behind(op: WarpGroupDot) -> Iterator[WarpGroupDot]:
    """The dots of a block that are issued while this one may be in flight."""
    following = op.next if op.is_async else None
    while following is not None and not following.regions:
        if isinstance(following, WarpGroupDotWait) and following.pendings == 0:
            return
        if isinstance(following, WarpGroupDot):
            yield following
        following = following.next


class _SharedOperand:
    """An operand in shared memory; `in_pairs` says that its elements along k are in that order (`layout.in_pairs`)."""

    def __init__(
        self,
        emit: Emitter,
        value: Value,
        index: int,
        atom: WgmmaAtom,
        result: LinearLayout,
        order: tuple[int, int] = (0, 1),
        in_pairs: bool = False,
    ) -> None:
        assert isinstance(value.type, MemDescType)
        shape, tile = tuple(value.type.tile_shape[axis] for axis in order), value.type.layout.transpose(order)
        if in_pairs:
            tile = out_of_pairs(tile, 1 - index)
        type_ = MemDescType(shape, value.type.element, tile)
        mode = wgmma_mode(type_.layout, bit_width(type_))
        pointer, start = descriptor(emit, value)
        if mode is None or not mode[0] or start:
            raise InternalError(f"wgmma cannot read a tile of shared memory like {type_.layout}")
        outer, depth = (0, 1) if index == 0 else (1, 0)
        swizzle_bytes, first_axis_contiguous = mode
        transposed = first_axis_contiguous == (index == 0)
        panel_rows = type_.tile_shape[depth if transposed else outer]
        self.tile = WgmmaDescriptor(swizzle_bytes, panel_rows, transposed)
        self.transposed, self.element_bytes, self.k = transposed, bit_width(type_) // 8, atom.k
        self.depth = type_.tile_shape[depth]
        # Lane 0 of each group's first warp holds D's element at the origin of what the group computes.
        groups = tuple(result.unflatten(basis)[index] for basis in result.bases_of("warp")[2:])
        self.base = self._base(
            emit, pointer, tuple(self.tile.offset(origin, 0, self.element_bytes) for origin in groups)
        )

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

    def unpinned(self) -> list[str]:
        """Registers that the instruction reads and LLVM could write at any time before it."""
        return []

    def distance(self, origin: int, step: int) -> int:
        """What a step of the tile at `origin`, along m or n, adds to the descriptor."""
        return self.tile.offset(origin, step * self.k, self.element_bytes) // _ADDRESS_UNIT


class _RegisterOperand:
    """A in registers: of each step the four words that the fragment has, row + 8 in odd ones, the second half
    of k in the later two, unless the elements along k are `in_pairs`: then each thread has neighbours.  `changes` says
    that the block of the dot computes them, and does so again in the next iteration."""

    transposed = False

    def __init__(
        self, emit: Emitter, value: Value, atom: WgmmaAtom, order: tuple[int, int], changes: bool
    ) -> None:
        self.changes, self.is_computed = changes, value.op is not None and value.op.has(Trait.ELEMENTWISE)
        self.in_pairs = atom.k_width == 1 and 1 not in layout(value.type).transpose(order).bases_along(
            "lane", 1
        )
        if changes:
            self.words = _words_of(emit, value, atom, order, self.in_pairs)
        else:
            # Packed in a loop around the dot, they would be overwritten while the previous iteration's dot
            # reads them.
            with emit.at_home(value):
                self.words = _words_of(emit, value, atom, order, self.in_pairs)

    def parts(self, emit: Emitter, steps: int) -> Iterator[range]:
        """The steps along k by the parts in which they become ready, each pinned when it is asked for."""
        in_parts = self.changes and self.is_computed and emit.warps.barrier is None
        size = max(steps // _PARTS, 1) if in_parts else steps
        for start in range(0, steps, size):
            if self.changes:
                for words in self.words.values():
                    words[start : start + size] = [
                        _pinned(emit, each) for each in words[start : start + size]
                    ]
            yield range(start, start + size)

    def unpinned(self) -> list[str]:
        """Registers that the instruction reads and LLVM could write at any time before it."""
        return (
            []
            if self.changes
            else [word for steps in self.words.values() for words in steps for word in words]
        )


def _words_of(
    emit: Emitter, value: Value, atom: WgmmaAtom, order: tuple[int, int], in_pairs: bool
) -> dict[int, list[list[str]]]:
    """The words of A by the row at which a tile begins, and by the step along k."""
    fragment = layout(value.type).transpose(order)
    where, registers, width = places(fragment), emit.registers(value), atom.k_width
    half = 1 if in_pairs else 4 * width
    result: dict[int, list[list[str]]] = {}
    for row in sorted({row for row, _ in where if row % GROUP_ROWS == 0}):
        result[row] = []
        for step in range(fragment.shape[1] // atom.k):
            words = [
                [(row + 8 * (i & 1), step * atom.k + half * (i >> 1) + element) for element in range(width)]
                for i in range(_A_REGISTERS)
            ]
            result[row].append(
                [to_word(emit, [registers[where[at]] for at in word], value.type) for word in words]
            )
    return result


def _fence(emit: Emitter, mark: str, started: Sequence[_Accumulator], words: Sequence[str]) -> None:
    """A fence after which only dots write the registers of D that some start from, which it redefines, and
    `words` of A."""
    places = [(sums, index) for sums in started for index in sums.starts(emit)]
    kinds = [_register(sums.atom) for sums, _ in places]
    types = [type_ for type_, _ in kinds]
    operands = [(type_, sums.registers[index]) for type_, (sums, index) in zip(types, places)]
    operands += [("i32", word) for word in words]
    constraints = [
        *(f"={letter}" for _, letter in kinds),
        *map(str, range(len(places))),
        *("r" for _ in words),
    ]
    fenced = emit.asm(
        f"wgmma.fence.sync.aligned; {mark}", ",".join(constraints), operands, types, effect=True
    )
    for (sums, index), register in zip(places, fenced):
        sums.registers[index] = register


def _register(atom: WgmmaAtom) -> tuple[str, str]:
    """The LLVM type of a register of D, and the letter of its constraints."""
    accumulator = scalar(atom.accumulator)
    return llvm_type(accumulator), "f" if is_float(accumulator) else "r"


def _is_zero(emit: Emitter, atom: WgmmaAtom, sums: Sequence[str]) -> bool:
    """Whether a tile of D starts as zeros, which the instruction need not be given."""
    return all(register == emit.constant(0, scalar(atom.accumulator)) for register in sums)


def _has_known_bits(start: Value) -> bool:
    """Whether ptxas may know bits of what a dot starts from: it does not of what loops carry, of dots, or of
    floating-point arithmetic."""
    return start.op is not None and not isinstance(
        start.op, For | While | WarpIf | WarpGroupDot | WarpGroupDotWait | AddF | SubF | MulF | Fma
    )


def _hidden(emit: Emitter, register: str, type_: str, zero: str) -> str:
    """The same value, as the exclusive or with a zero that ptxas does not know."""
    bits = register if type_ == "i32" else emit.instruction(f"bitcast {type_} {register} to i32")
    mixed = emit.xor(bits, zero)
    return mixed if type_ == "i32" else emit.instruction(f"bitcast i32 {mixed} to {type_}")


def _pinned(emit: Emitter, words: Sequence[str]) -> list[str]:
    """Copies that ptxas leaves in place: where it sees what computes the words, it may compute them into
    registers that a dot in flight still reads, and then does not let dots overlap."""
    count = len(words)
    moves = "\n".join(f"mov.b32 ${index}, ${count + index};" for index in range(count))
    constraints = ",".join(["=r"] * count + ["r"] * count)
    return emit.asm(moves, constraints, [("i32", word) for word in words], ["i32"] * count, effect=True)


def group_number(emit: Emitter) -> str:
    """The number of the thread's warpgroup, in the entry block, as a value that ptxas knows to be the same in
    a warp."""
    return emit.uniform(emit.shift(emit.thread_id(), -(32 * GROUP_WARPS - 1).bit_length()))


def _multiply(
    emit: Emitter,
    atom: WgmmaAtom,
    left: tuple[_SharedOperand | _RegisterOperand, int],
    right: tuple[_SharedOperand, int],
    sums: Sequence[str],
    steps: range,
    use_acc: str | None,
) -> list[str]:
    """Some steps along k of one tile of D, `left` and `right` giving the operand and where in it the tile
    begins.  The first step of all adds to what D holds if `use_acc` holds, or is None."""
    (a, row), (b, column) = left, right
    kind, letter = _register(atom)
    count = len(sums)
    starts_at_zero = _is_zero(emit, atom, sums)
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
    chosen = use_acc is not None and not starts_at_zero and steps.start == 0
    if chosen:
        operands.append(("i1", str(use_acc)))
        constraints.append("b")
    accumulators = f"{{{', '.join(f'${index}' for index in range(count))}}}"
    ending = atom.immediates(isinstance(a, _SharedOperand), a.transposed, b.transposed)
    lines: list[str] = []
    for step in steps:
        lines += _descriptor(b, f"b{step}", place, b.distance(column, step))
        if isinstance(a, _SharedOperand):
            lines += _descriptor(a, f"a{step}", place + 1, a.distance(row, step))
            source = f"a{step}"
        else:
            first = place + 1 + _A_REGISTERS * (step - steps.start)
            source = f"{{{', '.join(f'${first + index}' for index in range(_A_REGISTERS))}}}"
        scale = "0" if starts_at_zero and step == 0 else "1"
        if chosen and step == 0:
            scale = f"${place + len(operands) - len(tied) - 1}"
        lines.append(f"{atom.instruction} {accumulators}, {source}, b{step}, {scale}{ending};")
    template = "\n".join(
        ["{", *lines, "}"]
    )  # The braces keep the names to this asm, however often LLVM copies it.
    return emit.asm(template, ",".join(constraints), operands, [kind] * count, effect=True)


def _descriptor(operand: _SharedOperand, name: str, place: int, distance: int) -> list[str]:
    """Declares a register and gives it the descriptor of a step, so far from the operand's start."""
    return [
        f".reg .b32 low_{name};",
        f".reg .b64 {name};",
        f"add.s32 low_{name}, ${place}, {distance};",
        f"mov.b64 {name}, {{low_{name}, {operand.tile.constant >> 32}}};",
    ]


@lower(WarpGroupDotWait)
def lower_warp_group_dot_wait(emit: Emitter, op: WarpGroupDotWait) -> Results:
    if not op.values:
        emit.asm(f"wgmma.wait_group.sync.aligned {op.pendings};", "", [], [], effect=True)
        return Results()
    registers = [register for value in op.values for register in emit.registers(value)]
    types = [value.type for value in op.values for _ in emit.registers(value)]
    waited = iter(_wait(emit, op.pendings, registers, types))
    return Results([next(waited) for _ in emit.registers(value)] for value in op.values)


def _wait(emit: Emitter, pendings: int, registers: Sequence[str], types: Sequence[Type]) -> list[str]:
    """Wait, with the registers, of elements of these types, tied: nothing that reads them moves up before it."""
    kinds = [llvm_type(element_of(type_)) for type_ in types]
    results = ["=f" if is_float(element_of(type_)) else "=r" for type_ in types]
    constraints = ",".join([*results, *map(str, range(len(registers)))])
    operands = list(zip(kinds, registers))
    return emit.asm(f"wgmma.wait_group.sync.aligned {pendings};", constraints, operands, kinds, effect=True)


@lower(FenceAsyncShared)
def lower_fence_async_shared(emit: Emitter, op: FenceAsyncShared) -> None:
    emit.asm("fence.proxy.async.shared::cta;", "", [], [], effect=True)
