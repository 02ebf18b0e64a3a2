"""Takes the operands of dots through shared memory, swizzled so that neither side has bank conflicts.

Before:
    %a: tensor<128x32xf16, #blocked> = tt.load %p
    %1: tensor<128x32xf16, #dot_operand> = ttg.convert_layout %a
After:
    %a: tensor<128x32xf16, #blocked> = tt.load %p
    %1: !ttg.memdesc<128x32xf16, #swizzled> = ttg.local_alloc src=%a
    %2: tensor<128x32xf16, #dot_operand> = ttg.local_load %1

The pass `pipeline` then lets the load write there by itself.  A transpose becomes another view of the same
memory.  What is loaded along k for a dot by scalar fma is turned; see `scalar_dots`.  Operands that only change
registers, such as the result of an earlier dot, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType, bit_width
from kbuild.compiler.layout import LinearLayout, best_swizzle, classify, swizzled, wgmma_shared
from kbuild.compiler.layout.shared import MAX_VECTOR_BITS, wavefronts
from kbuild.compiler.ops.gpu import ConvertLayout, LocalAlloc, LocalLoad, MemDescTrans
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Dot, Load, Reshape, Trans
from kbuild.compiler.transforms._support.layout_flow import (
    held_layout,
    minor_axis,
    tensor_operands,
    tensor_type,
)
from kbuild.compiler.transforms.gpu.dot.scalar_dots import is_turned
from kbuild.compiler.transforms.gpu.dot.warp_groups import behind_transpose
from kbuild.targets.wgmma import MAX_SWIZZLE_BYTES


@gpu_pass
def optimize_dot_operands(module: Module, target: object) -> None:
    """Replace conversions to operand layouts by stores to and loads from swizzled shared memory."""
    for func in module.functions.values():
        sharing = _Sharing(func)
        for convert in find_operand_conversions(func):
            sharing.rewrite(convert)
        erase_dead(func.body)


def find_operand_conversions(func: Func) -> list[ConvertLayout]:
    """The conversions that feed operands of dots, directly or through operations that move nothing, and
    move data between threads themselves."""
    found: dict[ConvertLayout, None] = {}
    for dot in func.body.walk():
        work: list[Op | None] = [dot.a.op, dot.b.op] if isinstance(dot, Dot | WarpGroupDot) else []
        while work:
            op = work.pop()
            if isinstance(op, ConvertLayout):
                if classify(held_layout(op.src), held_layout(op.result)) not in ("same", "registers"):
                    found[op] = None
            elif isinstance(op, MemDescTrans):
                work.append(op.src.op)
            elif isinstance(op, LocalAlloc):
                found |= dict.fromkeys(_of_loads(op))
            elif isinstance(op, Trans | Reshape) or (op is not None and op.has(Trait.ELEMENTWISE)):
                work.extend(operand.op for _, operand in tensor_operands(op))
    return list(found)


def _of_loads(alloc: LocalAlloc) -> Iterator[ConvertLayout]:
    """The conversions of loads that a tile is computed of, element by element: see `transposed_operands`."""
    work, seen = [alloc.src], set[Value]()
    for value in work:
        if value is None or value in seen or value.op is None:
            continue
        seen.add(value)
        if isinstance(value.op, ConvertLayout) and isinstance(value.op.src.op, Load):
            yield value.op
        elif value.op.has(Trait.ELEMENTWISE):
            work += [operand for _, operand in tensor_operands(value.op)]


class _Sharing:
    """Tiles of shared memory by the value that they hold and their order of axes."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.tiles: dict[Value, Value] = {}

    def rewrite(self, convert: ConvertLayout) -> None:
        builder = Builder.before(convert)
        source, order = behind_transpose(convert.src)
        readers = [held_layout(convert.result)]
        if order is not None:
            readers = [readers[0].transpose([order.index(axis) for axis in range(len(order))])]
        tile = self.tile(source, readers, _is_copied(convert), is_turned(convert, self.func))
        if order is not None:
            tile = builder.add(MemDescTrans(tile, order)).result
        convert.replace_by(builder.add(LocalLoad(tile, convert.result.type)))

    def tile(self, source: Value, readers: list[LinearLayout], by_tma: bool, turned: bool) -> Value:
        if source not in self.tiles:
            type_ = tensor_type(source)
            writer, bits = held_layout(source), bit_width(type_)
            layout = (_turned_layout if turned else shared_layout)(writer, bits, readers)
            if by_tma:
                layout = _copied_layout(writer, bits) or layout
            tile = MemDescType(type_.shape, type_.element, layout)
            self.tiles[source] = Builder.after_value(source).add(LocalAlloc(tile, source), source.name).result
            self._replace_equal(source)
        return self.tiles[source]

    def _replace_equal(self, source: Value) -> None:
        """Let users of equal tiles read the new one, as dots after a loop do whose operands need no conversion."""
        tile = self.tiles[source]
        for user in list(source.users):
            is_equal = isinstance(user, LocalAlloc) and user.result is not tile and user.type == tile.type
            if is_equal and user.parent is source.block:
                user.replace_by([tile])


def _is_copied(convert: ConvertLayout) -> bool:
    """Whether a tile should lie as TMA leaves it: wgmma reads what a thread loads from it in 32-bit elements."""
    if bit_width(convert.type) < 32:  # To be widened: `ldmatrix` reads those tiles without conflicts, too.
        return any(_feeds_tf32(user) for user in convert.result.users)
    return any(isinstance(user, WarpGroupDot) and user.swapped for user in convert.result.users)


def _feeds_tf32(op: Op, depth: int = 8) -> bool:
    """Whether what an operation computes element by element goes to a dot of warpgroups in tf32."""
    if isinstance(op, WarpGroupDot):
        return op.input_precision == "tf32" and op.atom.endswith("tf32")
    follows = op.has(Trait.ELEMENTWISE) or isinstance(op, LocalAlloc | MemDescTrans)
    return depth > 0 and follows and any(_feeds_tf32(user, depth - 1) for user in op.results[0].users)


def _copied_layout(writer: LinearLayout, bits: int) -> LinearLayout | None:
    """The layout in which TMA leaves a matrix: panels as wide as its widest swizzle, if there are whole ones.
    Reading a fragment of 32-bit elements along the contiguous axis meets two-way bank conflicts at most."""
    minor = minor_axis(writer)
    if writer.rank != 2 or writer.shape[minor] * bits < 8 * MAX_SWIZZLE_BYTES:
        return None
    return wgmma_shared(writer.shape, bits, MAX_SWIZZLE_BYTES, minor == 0)


def _turned_layout(writer: LinearLayout, bits: int, readers: list[LinearLayout]) -> LinearLayout:
    """The swizzled layout of a matrix that is contiguous along the other axis than `writer`, whose threads store their
    neighbours one by one.  They meet the fewest bank conflicts, while readers keep vectors of 16 bytes."""
    minor, vector = minor_axis(writer), MAX_VECTOR_BITS // bits
    order, run = (1 - minor, minor), writer.contiguous_per_thread(minor_axis(writer))
    layouts = [
        swizzled(writer.shape, together, run, 1 << phases, order)
        for phases in range(6)
        for together in (vector, 2 * vector, 4 * vector)
        if together << phases <= writer.shape[1 - minor]
    ]
    layouts = layouts or [swizzled(writer.shape, 1, 1, 1, order)]
    return min(
        layouts, key=lambda layout: sum(wavefronts(other, layout, bits) for other in (writer, *readers))
    )


def shared_layout(writer: LinearLayout, bits: int, readers: list[LinearLayout]) -> LinearLayout:
    """The swizzled layout of a tile written as `writer`, contiguous along the same axis, and read as
    `readers`.

    Where only single elements are written the banks cannot be filled, whatever the swizzle: then the readers
    decide.
    """
    minor = minor_axis(writer)
    order = [minor, *(axis for axis in reversed(range(writer.rank)) if axis != minor)]
    writers = [writer] if writer.contiguous_per_thread(minor) * bits >= 32 else []
    return swizzled(writer.shape, *best_swizzle(writer.shape, order, bits, readers, writers), order)
