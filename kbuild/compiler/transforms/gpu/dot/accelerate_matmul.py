"""Maps dots to tensor cores: picks the instruction, spreads the warps, and sets the layouts that it requires.

Before:
    %d: tensor<128x128xf32, #blocked> = tt.dot %a, %b, %c
After:
    %1: tensor<128x128xf32, #mma> = ttg.convert_layout %c
    %2: tensor<128x32xf16, #dot_operand> = ttg.convert_layout %a
    %3: tensor<32x128xf16, #dot_operand1> = ttg.convert_layout %b
    %4: tensor<128x128xf32, #mma> = tt.dot %2, %3, %1 {atom = "m16n8k16.f16"}
    %d: tensor<128x128xf32, #blocked> = ttg.convert_layout %4

Where four warps together can do it (wgmma), the dot becomes `ttng.warp_group_dot`; see `warp_groups`.
Operands of types that no instruction takes are widened first.
What is left (f64, `ieee`, tiles below the instruction's) is computed by scalar fma, each thread holding whole
rows of A and columns of B, or reading them piece by piece where they are long; see `scalar_dots`, `local_dots`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import F16, F32, I32, IntType, TensorType, Type, bit_width, element_of, like
from kbuild.compiler.layout import dot_operand, fma_operand, fma_result, mma_accumulator
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.elementwise import (
    ExtF,
    ExtSI,
    TruncF,
    TruncI,
)
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Dot, Load, Trans
from kbuild.compiler.transforms._support.layout_flow import (
    converted,
    tensor_operands,
    tensor_type,
    without_conversions,
)
from kbuild.compiler.transforms.gpu.dot.warp_groups import (
    WarpGroupDots,
    WarpGroups,
    behind_transpose,
    choose_warp_groups,
    must_be_stored,
    operand_tile,
    stays_in_registers,
)
from kbuild.targets import Target
from kbuild.targets.mma_sync import MmaAtom

_LEAST_STORED, _LEAST_LOADED = 16 << 10, 64 << 10
"""Products per warp, of which mma.sync computes 1024 in tf32 at a time, from which on wgmma is worth storing B for: where
mma.sync, too, would read it from a tile that the threads store, and where it could read the one that was copied."""


@gpu_pass
def accelerate_matmul(module: Module, target: Target) -> None:
    """Choose an instruction and layouts for every dot."""
    for func in module.functions.values():
        dots = [op for op in func.body.walk() if isinstance(op, Dot) and not op.atom]
        chained, warp_groups, products = find_chained(dots), WarpGroupDots(target), _products_of(dots)
        for dot in dots:
            _DotRewrite(func, dot, target, warp_groups, products).rewrite(dot in chained)


def _products_of(dots: Sequence[Dot]) -> Counter[Value]:
    """How many products there are with what was loaded for right operands, in the block in which it was."""
    products = Counter[Value]()
    for dot in dots:
        source = without_conversions(behind_transpose(dot.b)[0])
        if isinstance(source.op, Load) and source.block is dot.parent:
            products[source] += tensor_type(dot.c).numel * tensor_type(dot.a).shape[-1]
    return products


def find_chained(dots: list[Dot]) -> dict[Dot, None]:
    """Dots whose result, through elementwise operations, becomes the left operand of another, and those
    others.

    All their warps lie along M, so that the result is the operand without moving to other threads.
    """
    chained: dict[Dot, None] = {}
    for dot in dots:
        work, seen = [dot.a], {dot.a}
        while work:
            op = work.pop().op
            if isinstance(op, Dot):
                chained[dot] = chained[op] = None
            elif op is not None and (op.has(Trait.ELEMENTWISE) or isinstance(op, ConvertLayout)):
                fresh = [operand for _, operand in tensor_operands(op) if operand not in seen]
                seen.update(fresh)
                work.extend(fresh)
    return chained


def choose_atom(target: Target, a: Type, b: Type, accumulator: Type, precision: str) -> MmaAtom | None:
    """The first instruction of the target for some element types."""
    if a == F32 and precision == "ieee":
        return None
    wanted = str(a), str(b), str(I32 if isinstance(accumulator, IntType) else F32)
    return next((atom for atom in target.atoms if (atom.a, atom.b, atom.accumulator) == wanted), None)


def spread_warps(shape: tuple[int, ...], atom: MmaAtom, num_warps: int, chained: bool) -> tuple[int, ...]:
    """Warps along each axis of the result: batches first, then M and N.

    Chained dots take all along M.  Others even out how many fragments of A and of B a warp reads; on a
    tie, M is split, because a fragment of A is the larger.
    """
    *batches, m, n = shape
    along = []
    for size in batches:
        along.append(min(size, num_warps))
        num_warps //= along[-1]
    rows, columns, warps_m, warps_n = max(1, m // atom.m), max(1, n // atom.n), 1, 1
    while warps_m * warps_n < num_warps:
        if (rows > 1 and (chained or rows >= columns)) or columns == 1:
            rows, warps_m = max(1, rows // 2), 2 * warps_m
        else:
            columns, warps_n = columns // 2, 2 * warps_n
    return (*along, warps_m, warps_n)


class _DotRewrite:
    """Rewrites one dot."""

    def __init__(
        self, func: Func, dot: Dot, target: Target, warp_groups: WarpGroupDots, products: Mapping[Value, int]
    ) -> None:
        self.num_warps: int = func.attrs["num_warps"]
        self.dot = dot
        self.target = target
        self.warp_groups = warp_groups
        self.products = products
        self.builder = Builder.before(dot)
        assert isinstance(dot.c.type, TensorType)
        self.type = dot.c.type

    def rewrite(self, chained: bool) -> None:
        dot = self.dot
        a, b, c = without_conversions(dot.a), without_conversions(dot.b), self.accumulator(dot.c)
        groups, atom = self.groups(a, b), self.atom(a, b)
        if groups is None and atom is None and bit_width(a.type) < 32:
            a, b = self.widened(a), self.widened(b)
            groups, atom = self.groups(a, b), self.atom(a, b)
        if groups is not None:
            result = self.warp_groups.lower(self.builder, dot, (a, b), c, groups)
        elif atom is not None:
            result = self.tensor_core(a, b, c, atom, chained)
        else:
            result = self.scalar(self.matching(a, c), self.matching(b, c), c)
        assert self.type.layout is not None
        dot.replace_by(converted(self.builder, self.narrowed(result), self.type.layout))

    def groups(self, a: Value, b: Value) -> WarpGroups | None:
        """The warpgroups' instruction for two operands, if it can read them."""
        types = tensor_type(a), tensor_type(b)
        groups = choose_warp_groups(self.target, *types, self.type, self.num_warps, self.dot.input_precision)
        if groups is None or operand_tile(b, 1, groups.atom) is None:
            swapped = self.swapped_groups(a, b)
            if swapped is not None or groups is None:
                return swapped
        if must_be_stored(b, groups) and self.pays_storing(b):
            return replace(groups, stored=True)
        if operand_tile(b, 1, groups.atom) is None:
            return None
        return (
            groups
            if stays_in_registers(a, self.dot, groups, self.target)
            or operand_tile(a, 0, groups.atom) is not None
            else None
        )

    def pays_storing(self, b: Value) -> bool:
        """Whether there is so much to multiply that wgmma gains more than it costs to store B along k: a fence, a barrier and
        a wait, and where B was only loaded, each time, also the way from its tile to another."""
        loaded = self.products.get(without_conversions(behind_transpose(b)[0]))
        if loaded is not None:
            return loaded >= _LEAST_LOADED * self.num_warps
        (k, n), m = tensor_type(b).shape, self.type.shape[0]
        return m * n * k >= _LEAST_STORED * self.num_warps

    def swapped_groups(self, a: Value, b: Value) -> WarpGroups | None:
        """The same for the transposed dot: where there are too few rows for a warpgroup, but enough
        columns, or where B is loaded with the wrong axis contiguous for the instruction.  Threads may bring
        32-bit elements of it into any order. Only for sums over a loop: others would have to be turned back
        in it."""
        only_summed = dict(self.dot.result.users) == {self.dot.parent_block.last: 1} and isinstance(
            self.dot.parent_op, For
        )
        if self.type.rank != 2 or not only_summed or not isinstance(without_conversions(b).op, Load | Trans):
            return None
        turned = [
            type_.with_shape(type_.shape[::-1], None) for type_ in (tensor_type(b), tensor_type(a), self.type)
        ]
        groups = choose_warp_groups(
            self.target, turned[0], turned[1], turned[2], self.num_warps, self.dot.input_precision
        )
        if groups is None or operand_tile(a, 0, groups.atom, True) is None:
            return None
        by_registers = bit_width(b.type) == 32 and isinstance(b.op, Load)
        return (
            replace(groups, swapped=True)
            if by_registers or operand_tile(b, 1, groups.atom, True) is not None
            else None
        )

    def atom(self, a: Value, b: Value) -> MmaAtom | None:
        """The instruction for two operands, if their tile is not smaller than its own."""
        atom = choose_atom(
            self.target, element_of(a.type), element_of(b.type), self.type.element, self.dot.input_precision
        )
        assert isinstance(a.type, TensorType)
        m, n, k = *self.type.shape[-2:], a.type.shape[-1]
        return atom if atom is not None and m >= atom.m and n >= atom.n and k >= atom.k else None

    def widened(self, value: Value) -> Value:
        """A float of 8 bits as f16, which holds all its numbers."""
        if not isinstance(element_of(value.type), IntType) and bit_width(value.type) == 8:
            return self.builder.add(ExtF(value, like(value.type, F16))).result
        return value

    def matching(self, value: Value, c: Value) -> Value:
        """An operand of a scalar dot in the type of the result."""
        if element_of(value.type) == element_of(c.type):
            return value
        cast = ExtSI if isinstance(element_of(value.type), IntType) else ExtF
        return self.builder.add(cast(value, like(value.type, element_of(c.type)))).result

    def accumulator(self, c: Value) -> Value:
        """C in the type in which the sum is kept: f32 for narrower floats, i32 for narrower integers."""
        if bit_width(c.type) >= 32:
            return c
        if isinstance(element_of(c.type), IntType):
            return self.builder.add(ExtSI(c, like(c.type, I32))).result
        return self.builder.add(ExtF(c, like(c.type, F32))).result

    def narrowed(self, result: Value) -> Value:
        element = self.type.element
        if element == element_of(result.type):
            return result
        cast = TruncI if isinstance(element, IntType) else TruncF
        return self.builder.add(cast(result, like(result.type, element)), self.dot.result.name).result

    def scalar(self, a: Value, b: Value, c: Value) -> Value:
        assert isinstance(a.type, TensorType)
        layout, k = fma_result(self.type.shape, self.num_warps), a.type.shape[-1]
        a = converted(self.builder, a, fma_operand(layout, 0, k))
        b = converted(self.builder, b, fma_operand(layout, 1, k))
        return self.new_dot(a, b, converted(self.builder, c, layout), "")

    def tensor_core(self, a: Value, b: Value, c: Value, atom: MmaAtom, chained: bool) -> Value:
        assert isinstance(a.type, TensorType) and isinstance(b.type, TensorType)
        warps = spread_warps(self.type.shape, atom, self.num_warps, chained)
        a = converted(self.builder, a, dot_operand(a.type.shape, warps, 0, atom.k_width))
        b = converted(self.builder, b, dot_operand(b.type.shape, warps, 1, atom.k_width))
        c = converted(self.builder, c, mma_accumulator(self.type.shape, warps, (atom.m, atom.n)))
        return self.new_dot(a, b, c, atom.name)

    def new_dot(self, a: Value, b: Value, c: Value, atom: str) -> Value:
        dot = self.dot
        return self.builder.add(
            Dot(a, b, c, dot.input_precision, dot.max_num_imprecise_acc, atom), dot.result.name
        ).result
