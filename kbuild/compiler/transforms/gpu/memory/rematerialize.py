"""Widens 16-bit elements once more after a reduction instead of keeping them as 32 bits until then.

Before:
    %x: tensor<32768xf32, #b> = arith.extf %loaded
    %sum = tt.reduce %x
    %mean = arith.divf %sum, %n
    %difference = arith.subf %x, (tt.splat %mean)
After (where a multiprocessor then has registers for twice as many programs):
    %x: tensor<32768xf32, #b> = arith.extf %loaded
    %sum = tt.reduce %x
    %mean = arith.divf %sum, %n
    %same: tensor<32768xbf16, #b> = ttg.again %loaded {number = 1}
    %x1: tensor<32768xf32, #b> = arith.extf %same
    %difference = arith.subf %x1, (tt.splat %mean)

A row that waits for its sum takes half as many registers, so that twice as many rows are in work.  What is
computed of the elements by a few simple operations, as their difference to the mean, is recomputed, too.  This costs
a third of the instructions of a layer norm; a few more programs are not worth that.
Without `ttg.again` LLVM and ptxas would find out that both are the same, and keep them.
"""

from __future__ import annotations

from kbuild.compiler.analysis.tensor_registers import words
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Module, Op, Value
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import F32, TensorType, bit_width
from kbuild.compiler.ops.elementwise import AddF, Constant, ExtF, MulF, NegF, Select, SubF
from kbuild.compiler.ops.gpu import OpaqueCopy
from kbuild.compiler.ops.tensor import Load, Reduce, Splat
from kbuild.targets import Target

DEPTH = 3
"""Operations in a row that are recomputed, besides the conversion."""
LAST_NUMBER = 15
_OTHERS = 32
"""Registers of a thread for addresses, counters and what is being computed."""
_SIMPLE = (AddF, SubF, MulF, NegF, Select)


@gpu_pass
def rematerialize(module: Module, target: Target) -> None:
    """Recompute values after each reduction of a block where that saves registers."""
    for func in module.functions.values():
        for block in [
            func.body,
            *(region for op in func.body.walk() for region in op.regions if not isinstance(op, Reduce)),
        ]:
            segments = _Segments(block)
            fits = 0 < segments.count <= LAST_NUMBER
            if fits and _makes_room(*segments.kept(), func.attrs["num_warps"], target):
                segments.rewrite()


def _makes_room(before: float, after: float, warps: int, target: Target) -> bool:
    """Whether twice as many programs fit if their threads keep the registers `after` instead of those `before`."""
    limits = target.limits

    def programs(kept: float) -> int:
        needed = int(kept) + _OTHERS
        fits = needed <= limits.registers_for(32 * warps)
        return limits.occupancy(0, warps, needed).programs if fits else 0

    return programs(after) >= max(1, 2 * programs(before))


class _Segments:
    """The operations of a block between its reductions: segment s has s reductions before it."""

    def __init__(self, block: Block) -> None:
        self.of: dict[Op, int] = {}
        self.count = 0
        for op in block:
            self.of[op] = self.count
            self.count += isinstance(op, Reduce)

    def kept(self) -> tuple[float, float]:
        """How many registers a thread keeps at the widest reduction, and how many if it recomputes what it can."""
        before = [dict[Value, None]() for _ in range(self.count)]
        after = [dict[Value, None]() for _ in range(self.count)]
        for op in self.of:
            for value in filter(_is_float, op.results):
                users = [self.of.get(user, self.count) for user in value.users]
                sources = _sources(value)
                for number in range(self.of[op], max(users, default=0)):
                    after[number].update(dict.fromkeys(sources or [value]))
                    # Until it is used first, only its sources are kept in any case.
                    widened = not sources or number >= min(users)
                    before[number].update(dict.fromkeys([value] if widened else sources))
        return max(map(words, before)), max(map(words, after))

    def rewrite(self) -> None:
        """Let each segment compute for itself what it can."""
        copies: list[dict[Value, Value]] = [{} for _ in range(self.count + 1)]
        for op, segment in self.of.items():
            for value in dict.fromkeys(op.operands):
                if value.op in self.of and self.of[value.op] < segment and _sources(value):
                    op.replace_operand(
                        value, self._again(value, segment, Builder.before(op), copies[segment])
                    )

    def _again(self, value: Value, segment: int, builder: Builder, made: dict[Value, Value]) -> Value:
        """A copy of a value for a segment, unless it is not worth one."""
        op = value.op
        if op is None or not _sources(value):
            return value
        if value not in made:
            if isinstance(op, ExtF):
                same = builder.add(OpaqueCopy(_source(op), segment)).result
                made[value] = builder.add(ExtF(same, op.type), value.name).result
            else:
                mapping = {operand: self._again(operand, segment, builder, made) for operand in op.operands}
                made[value] = builder.add(op.clone(mapping)).result
        return made[value]


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.element == F32


def _source(op: ExtF) -> Value:
    """The loaded elements that a conversion widens."""
    value = op.src
    while isinstance(value.op, OpaqueCopy):
        value = value.op.src
    return value


def _sources(value: Value, depth: int = DEPTH) -> list[Value]:
    """The loaded 16-bit tensors that a value is simply computed of; empty where it is not."""
    op = value.op
    if isinstance(op, ExtF):
        source = _source(op)
        return (
            [source]
            if isinstance(source.op, Load) and bit_width(source.type) == 16 and _is_float(value)
            else []
        )
    if not isinstance(op, _SIMPLE) or not depth or not _is_float(value):
        return []
    found: list[Value] = []
    for operand in op.operands:
        if not _is_float(operand) or isinstance(operand.op, Splat | Constant):
            continue
        sources = _sources(operand, depth - 1)
        if not sources:
            return []
        found += sources
    return found
