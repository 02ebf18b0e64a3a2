"""Splits dots into steps along K, and loads the fragments of each step while the one before is multiplied.

Before:
    %a: tensor<64x32xf16, #dotOperand> = ttg.local_load %x
    %b: tensor<32x64xf16, #dotOperand1> = ttg.local_load %y
    %d = tt.dot %a, %b, %c
After:
    %a0 = ttg.local_load (ttg.memdesc_subslice %x {offsets = [0, 0]}),   %b0 likewise
    %a1 = ttg.local_load (ttg.memdesc_subslice %x {offsets = [0, 16]}),  %b1 likewise
    %d0 = tt.dot %a0, %b0, %c
    %d  = tt.dot %a1, %b1, %d0

Only two steps' fragments are in registers at a time.  A dot by scalar fma has steps of a few k, or of one where
these are multiply-adds enough to hide the latency of its loads; an operand that is contiguous along k is loaded in
vectors for several steps, which take it apart.  An operand that is in registers already (the left one
of the second dot of attention) is taken apart by `tt.split`, which costs nothing.  So is one that is read from a tile
which could not stay in shared memory until the dot, for want of room.  The sums are formed in the same order as
before.

In a pipelined loop the fragments of the first step are loaded in the previous iteration, ahead of its last
dot, which hides the wait and the barrier between iterations; see `prefetch_next`.
"""

from __future__ import annotations

from typing import NamedTuple

from kbuild.compiler.analysis.allocation import fits_at_once, fits_until
from kbuild.compiler.analysis.liveness import Liveness, root_of
from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import MemDescType, TensorType, bit_width
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.shared import MAX_VECTOR_BITS
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import LocalAlloc, LocalLoad, MemDescSubslice
from kbuild.compiler.ops.tensor import Dot, Reshape, Split, Store, Trans
from kbuild.compiler.transforms._support.layout_flow import held_layout
from kbuild.compiler.transforms.gpu.dot.prefetch_next import carry_first_step
from kbuild.targets.target import Target


@gpu_pass
def prefetch(module: Module, target: Target, carry: bool = True) -> None:
    """Split every dot that reads an operand from shared memory; with `carry`, load the fragments of a
    pipelined loop's first step in the previous iteration."""
    for func in module.functions.values():
        dots = [op for op in func.body.walk() if isinstance(op, Dot)]
        limit = target.limits.shared_bytes
        room = None if not dots or fits_at_once(func, limit) else _Room(func, limit)
        for op in dots:
            if not op.max_num_imprecise_acc:
                _split_dot(op, target.atom(op.atom).k if op.atom else _scalar_step(op), room)
        for op in list(func.body.walk()):
            if carry and isinstance(op, For):
                carry_first_step(op)


_HIDING = 64
"""Multiply-adds of a thread that hide the latency of loads from shared memory, with those of the other warps."""


class _Room(NamedTuple):
    """The shared memory of a function whose tiles do not all lie apart."""

    func: Func
    limit: int

    def waiting(self, dot: Dot, loads: list[LocalLoad]) -> list[LocalLoad]:
        """The loads that can wait for a dot: if there is no room for all their tiles until then, not those that come
        first in the text."""
        start = Liveness(self.func).start
        loads = sorted(loads, key=start.__getitem__)
        for count in range(len(loads) + 1):
            tiles = [root_of(load.src) for load in loads[count:]]
            if fits_until(self.func, tiles, dot, self.limit):
                return loads[count:]
        return loads


def _scalar_step(dot: Dot) -> int:
    """The values of k in a step of a dot by scalar fma."""
    return max(1, _HIDING // len(held_layout(dot.c).unique_registers()))


def step_words(dot: Dot) -> float:
    """32-bit registers for the operands of a dot by scalar fma whose steps are loaded from shared memory: what a load
    gives, and a step of the load before it."""
    total, step = 0.0, _scalar_step(dot)
    for value, axis in ((dot.a, 1), (dot.b, 0)):
        assert isinstance(value.op, LocalLoad) and isinstance(value.type, TensorType)
        loaded = max(step, _vector(value.op, axis))
        total += words([value]) * min(1, (loaded + step) / value.type.shape[axis])
    return total


def _split_dot(dot: Dot, step: int, room: _Room | None) -> None:
    type_ = dot.a.type
    assert isinstance(type_, TensorType)
    if type_.rank != 2 or type_.shape[1] <= step:
        return
    operands = [_SteppedOperand(dot, value, axis, step) for value, axis in ((dot.a, 1), (dot.b, 0))]
    if not all(operand.divides for operand in operands) or not any(operand.load for operand in operands):
        return
    if room is not None:
        waiting = room.waiting(dot, [operand.load for operand in operands if operand.load])
        for operand in operands:
            operand.load = operand.load if operand.load in waiting else None
        if not waiting:
            return
    builder = Builder.before(dot)
    total = dot.c
    steps = type_.shape[1] // step
    a, b = (operand.take(0, builder) for operand in operands)
    for number in range(1, steps + 1):
        following = [operand.take(number, builder) for operand in operands if number < steps]
        total = builder.add(Dot(a, b, total, dot.input_precision, 0, dot.atom), dot.result.name).result
        if following:
            a, b = following
    dot.replace_by(total)
    for operand in operands:
        if operand.load is not None:
            operand.load.erase()


class _SteppedOperand:
    """One operand of a dot, taken step by step."""

    def __init__(self, dot: Dot, value: Value, axis: int, step: int) -> None:
        type_ = value.type
        assert isinstance(type_, TensorType) and type_.layout is not None
        self.value, self.axis, self.step, self.type = value, axis, step, type_
        self.load = value.op if isinstance(value.op, LocalLoad) and _may_wait(value.op, dot) else None
        """The load to do step by step; None for an operand that stays in registers."""
        self.loaded = step if self.load is None or dot.atom else max(step, _vector(self.load, axis))
        """The elements along k that are loaded at a time: those of one step or more."""
        self.layout = first_part(type_.layout, axis, self.loaded)
        self.pieces: list[Value] = []

    @property
    def divides(self) -> bool:
        """Whether each step is in registers of its own, the same for all threads."""
        return self.layout is not None and first_part(self.layout, self.axis, self.step) is not None

    def take(self, number: int, builder: Builder) -> Value:
        """The fragments of one step."""
        if self.load is None:
            count = self.type.shape[self.axis] // self.step
            self.pieces = self.pieces or _pieces(self.value, self.axis, count)
            return self.pieces[number]
        each = self.loaded // self.step
        if number % each == 0:
            self.pieces = _pieces(self._part(number // each, builder), self.axis, each)
        return self.pieces[number % each]

    def _part(self, number: int, builder: Builder) -> Value:
        """What is loaded at a time."""
        assert self.load is not None
        tile = self.load.src.type
        assert isinstance(tile, MemDescType)
        shape, offsets = list(self.type.shape), [0, 0]
        shape[self.axis], offsets[self.axis] = self.loaded, number * self.loaded
        part = MemDescType(tuple(shape), tile.element, tile.layout)
        view = builder.add(MemDescSubslice(self.load.src, tuple(offsets), part)).result
        return builder.add(LocalLoad(view, self.type.with_shape(shape, self.layout)), self.value.name).result


def _vector(load: LocalLoad, axis: int) -> int:
    """Neighbours along an axis in the widest load of a tile, if those are what it moves."""
    tile = load.src.type
    assert isinstance(tile, MemDescType)
    most = min(MAX_VECTOR_BITS // bit_width(tile), tile.shape[axis])
    unit = tile.shape[1] if axis == 0 else 1
    bases = tile.layout.bases_of("offset")
    vector = 1
    while vector < most and bases[vector.bit_length() - 1] == vector * unit:
        vector *= 2
    return vector


def first_part(layout: LinearLayout, axis: int, size: int) -> LinearLayout | None:
    """The layout of the first `size` elements along an axis; None unless whole register bits choose among the
    parts."""
    shape = list(layout.shape)
    shape[axis] = size
    kept: dict[str, list[tuple[int, ...]]] = {}
    for dim, bases in layout.bases:
        coordinates = [layout.unflatten(basis) for basis in bases]
        beyond = [c for c in coordinates if c[axis] >= size]
        if beyond and (dim != "register" or any(c[axis] & (size - 1) or sum(c) != c[axis] for c in beyond)):
            return None
        kept[dim] = [c for c in coordinates if c[axis] < size]
    return LinearLayout.make(shape, **kept)


def _pieces(value: Value, axis: int, count: int) -> list[Value]:
    """A matrix in registers cut into `count` parts along an axis, in order."""
    if count == 1:
        return [value]
    type_ = value.type
    assert isinstance(type_, TensorType) and type_.layout is not None
    builder = Builder.after_value(value)
    shape = (*type_.shape[:axis], 2, type_.shape[axis] // 2, *type_.shape[axis + 1 :])
    halves = builder.add(Reshape(value, type_.with_shape(shape, type_.layout.reshape(shape)))).result
    last = builder.add(Trans(halves, (*(a for a in range(3) if a != axis), axis))).result
    low, high = builder.add(Split(last)).results
    return [*_pieces(low, axis, count // 2), *_pieces(high, axis, count // 2)]


def _may_wait(load: LocalLoad, dot: Dot) -> bool:
    """Whether a load may be done where the dot is, its only user: nothing in between touches what is in
    shared memory."""
    if load.parent is not dot.parent or list(load.result.users) != [dot]:
        return False
    op: Op | None = load.next
    while op is not None and op is not dot:
        if any(inner.has(Trait.WRITES) and not isinstance(inner, Store | LocalAlloc) for inner in op.walk()):
            return False
        op = op.next
    return True
