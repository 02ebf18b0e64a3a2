"""Tensor cores: `mma.sync` (`gl.nvidia.ampere.mma_v2`) and `wgmma` (`gl.nvidia.hopper.warpgroup_mma`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.compiler.ir.core import Value
from kbuild.compiler.ir.types import TensorType, element_of
from kbuild.compiler.layout.gluon import DotOperandLayout, NVMMADistributedLayout, NVMMASharedLayout
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Dot
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.gluon import places
from kbuild.compiler.semantic.gluon.mbarrier import counted, predicate
from kbuild.compiler.semantic.gluon.shared import SharedMemory
from kbuild.compiler.semantic.registry import builtin, member
from kbuild.compiler.semantic.types import DType
from kbuild.compiler.semantic.values import RunTime, Tensor, describe, shape_text
from kbuild.targets.mma_sync import MMA_SYNC_SM80, MMA_SYNC_SM89, MmaAtom
from kbuild.targets.wgmma import GROUP_ROWS, WGMMA, WgmmaAtom

HOPPER = "gl.nvidia.hopper"
ROWS_OF_A_WARP = 16
PRECISIONS = ("tf32",)


@member(HOPPER, "warpgroup_mma_accumulator")
class Accumulator(RunTime):
    """The result of dots that may not have ended, to be waited for before it is used."""

    __slots__ = ("dtype", "shape")

    def __init__(self, value: Value, dtype: DType, shape: tuple[int, ...]) -> None:
        super().__init__(value)
        self.dtype, self.shape = dtype, shape

    def with_value(self, value: Value) -> Accumulator:
        return Accumulator(value, self.dtype, self.shape)

    @property
    def form(self) -> Any:
        return ("accumulator", self.dtype, self.value.type)

    def facts(self) -> Mapping[str, Any]:
        return {"dtype": self.dtype, "shape": self.shape}

    def taking(self, value: RunTime) -> RunTime:
        """A tensor is an accumulator whose dots have ended."""
        fits = isinstance(value, Tensor) and value.value.type == self.value.type
        return self.with_value(value.value) if fits else value

    def __str__(self) -> str:
        return f"an accumulator {self.dtype}{shape_text(self.shape)} of dots that may not have ended"


def _mma_layout(ctx: BuildContext, acc: Tensor | Accumulator, version: int) -> NVMMADistributedLayout:
    """The layout of an accumulator for tensor cores of a version."""
    layout = places.layout_of_tensor(Tensor(acc.value, acc.dtype, acc.shape))
    if not isinstance(layout, NVMMADistributedLayout) or layout.version[0] != version:
        shape = "[16, 8]" if version == 2 else "[16, n, 256 // bits of an element of a]"
        ctx.error(
            f"{ctx.name('acc')} has the layout {layout}",
            "acc",
            help=f"it is an NVMMADistributedLayout(version=[{version}, 0], warps_per_cta=…, instr_shape={shape})",
        )
    return layout


def _check_operand(
    ctx: BuildContext, value: Tensor, name: str, parent: NVMMADistributedLayout, k_width: int
) -> None:
    """An operand in registers lies as the instruction wants it."""
    layout, wanted = places.layout_of_tensor(value), DotOperandLayout("ab".index(name), parent, k_width)
    if layout != wanted:
        ctx.error(
            f"{ctx.name(name)} has the layout {layout}; beside the accumulator it is {wanted}",
            name,
            help=f"load it in that layout, or convert it: gl.convert_layout({name}, …)",
        )


def _check_shapes(ctx: BuildContext, a: Any, b: Any, acc: Any) -> None:
    m, n = acc.shape[-2:]
    if len(a.shape) != len(acc.shape) or len(b.shape) != len(acc.shape):
        ctx.error(
            f"the operands have shapes {shape_text(a.shape)} and {shape_text(b.shape)}, the accumulator has "
            f"{shape_text(acc.shape)}",
            "a",
        )
    if a.shape[-2] != m or b.shape[-1] != n or a.shape[-1] != b.shape[-2]:
        ctx.error(
            f"a {shape_text(a.shape)} times b {shape_text(b.shape)} is not the accumulator's {shape_text(acc.shape)}",
            "a",
        )


def _operand_types(ctx: BuildContext, a: Any, b: Any, acc: Any, known: Sequence[Any]) -> list[Any]:
    """The instructions of a list for some types of operands and accumulator."""
    types = [str(element_of(value.value.type)) for value in (a, b, acc)]
    found = [atom for atom in known if [atom.a, atom.b, atom.accumulator] == types]
    if not found:
        possible = dict.fromkeys(f"{atom.a} x {atom.b} -> {atom.accumulator}" for atom in known)
        ctx.error(
            f"there is no instruction for {types[0]} x {types[1]} -> {types[2]}",
            "a",
            help=f"there is {', '.join(possible)}",
        )
    return found


def _precision(ctx: BuildContext, value: Any, name: str) -> str:
    chosen = "tf32" if value is None else value
    if chosen not in PRECISIONS:
        ctx.error(
            f"{name} is {describe(value)}; tensor cores multiply f32 as {', '.join(PRECISIONS)}",
            name,
            help="gl.dot_fma multiplies f32 exactly",
        )
    return chosen


@builtin("gl.nvidia.ampere")
def mma_v2(ctx: BuildContext, a, b, acc, input_precision=None):
    """a·b + acc by `mma.sync`.  `acc` has an NVMMADistributedLayout of version [2, 0], the operands a
    DotOperandLayout of it; fp32 operands are cut to tf32."""
    for value, name in ((a, "a"), (b, "b"), (acc, "acc")):
        if not isinstance(value, Tensor) or len(value.shape) < 2:
            ctx.error(
                f"{ctx.name(name)} is {describe(value)}; it is a tensor of two dimensions or more", name
            )
    layout = _mma_layout(ctx, acc, 2)
    _check_shapes(ctx, a, b, acc)
    atom: MmaAtom = _operand_types(ctx, a, b, acc, MMA_SYNC_SM80 + MMA_SYNC_SM89)[0]
    if layout.instr_shape[:2] != (atom.m, atom.n):
        ctx.error(f"instr_shape of {layout} is [{atom.m}, {atom.n}] for these operands", "acc")
    for value, name in ((a, "a"), (b, "b")):
        _check_operand(ctx, value, name, layout, atom.k_width)
    precision = _precision(ctx, input_precision, "input_precision")
    op = Dot(a.value, b.value, acc.value, precision, atom=atom.name)
    return ctx.tensor(op, acc.dtype, acc.shape)


@builtin(HOPPER)
def warpgroup_mma_init(ctx: BuildContext, value):
    """A tensor as an accumulator that asynchronous dots go on from."""
    if not isinstance(value, Tensor) or not value.shape:
        ctx.error(f"{ctx.name('value')} is {describe(value)}, which is not a tensor", "value")
    assert isinstance(value.dtype, DType)
    return Accumulator(value.value, value.dtype, value.shape)


@builtin(HOPPER)
def warpgroup_mma(
    ctx: BuildContext,
    a,
    b,
    acc,
    *,
    use_acc=True,
    precision=None,
    max_num_imprecise_acc=None,
    is_async=False,
):
    """a·b + acc by `wgmma`, or a·b where `use_acc` does not hold.  `a` is in shared memory or in registers, `b` in
    shared memory, `acc` has an NVMMADistributedLayout of version [3, 0].  With `is_async` the result is an
    accumulator that `warpgroup_mma_wait` waits for, and until then the operands must not change."""
    if not isinstance(acc, Tensor | Accumulator) or len(acc.shape) != 2:
        ctx.error(f"{ctx.name('acc')} is {describe(acc)}; it is a matrix", "acc")
    if not isinstance(a, Tensor | SharedMemory) or len(a.shape) != 2:
        ctx.error(f"{ctx.name('a')} is {describe(a)}; it is a matrix, in registers or in shared memory", "a")
    if not isinstance(b, SharedMemory) or len(b.shape) != 2:
        help = (
            "store it: gl.allocate_shared_memory(b.dtype, b.shape, layout, b)"
            if isinstance(b, Tensor)
            else ""
        )
        ctx.error(f"{ctx.name('b')} is {describe(b)}; it is a matrix in shared memory", "b", help=help)
    layout = _mma_layout(ctx, acc, 3)
    _check_shapes(ctx, a, b, acc)
    atom = _wgmma_atom(ctx, a, b, acc, layout)
    if isinstance(a, SharedMemory):
        _check_tile(ctx, a, "a", atom)
    else:
        _check_operand(ctx, a, "a", layout, atom.k_width)
    _check_tile(ctx, b, "b", atom)
    start, condition = acc.value, None
    if use_acc is False:
        start = ctx.constant_like(0, acc.dtype, Tensor(acc.value, acc.dtype, acc.shape)).value
    elif use_acc is not True:
        condition = predicate(ctx, use_acc, "use_acc").value
    imprecise = (
        0
        if max_num_imprecise_acc is None
        else counted(ctx, max_num_imprecise_acc, "max_num_imprecise_acc", 0)
    )
    chosen = _precision(ctx, precision, "precision")
    op = ctx.add(
        WarpGroupDot(a.value, b.value, start, atom.name, bool(is_async), chosen, imprecise, use_acc=condition)
    )
    result = Accumulator if is_async else Tensor
    return result(op.result, acc.dtype, acc.shape)


def _wgmma_atom(ctx: BuildContext, a: Any, b: Any, acc: Any, layout: NVMMADistributedLayout) -> WgmmaAtom:
    """The instruction that an accumulator's layout asks for."""
    known: list[WgmmaAtom] = _operand_types(ctx, a, b, acc, WGMMA)
    m, n, k = (*layout.instr_shape, 0)[:3]
    atom = next((atom for atom in known if atom.n == n), None)
    if m != ROWS_OF_A_WARP or atom is None or k != atom.k or acc.shape[1] % n:
        widths = ", ".join(str(one.n) for one in known if acc.shape[1] % one.n == 0)
        ctx.error(
            f"instr_shape of {layout} is not possible for {shape_text(a.shape)} x {shape_text(b.shape)}",
            "acc",
            help=f"it is [{ROWS_OF_A_WARP}, n, {known[0].k}] for these operands, n being one of {widths}",
        )
    if acc.shape[0] % GROUP_ROWS or a.shape[1] % k:
        ctx.error(
            f"{shape_text(a.shape)} x {shape_text(b.shape)}: wgmma multiplies multiples of {GROUP_ROWS} rows, and of "
            f"{k} along the dimension that is summed",
            "a",
        )
    return atom


def _check_tile(ctx: BuildContext, tile: SharedMemory, name: str, atom: WgmmaAtom) -> None:
    """An operand in shared memory lies as the instruction reads it."""
    layout = tile.layout
    if not isinstance(layout, NVMMASharedLayout) or not layout.swizzle_byte_width:
        ctx.error(
            f"{ctx.name(name)} has the layout {layout}; wgmma reads tiles in an NVMMASharedLayout with a swizzle",
            name,
            help=f"take gl.NVMMASharedLayout.get_default_for({list(tile.shape)}, {tile.dtype})",
        )
    along_k = layout.transposed if name == "b" else not layout.transposed
    if not atom.any_order and not along_k:
        wanted = "transposed" if name == "b" else "not transposed"
        ctx.error(
            f"{ctx.name(name)} has the layout {layout}; wgmma reads {tile.dtype} contiguous along the dimension that "
            f"is summed: {wanted}",
            name,
            help="copy it with the other dimension contiguous, and permute the tile: tile.permute((1, 0))",
        )


@builtin(HOPPER)
def warpgroup_mma_wait(ctx: BuildContext, num_outstanding=0, deps=None):
    """Waits until at most `num_outstanding` dots of the warp group are in flight; returns `deps`, which are
    accumulators, tensors, or tiles that are needed until then, as values that may be used."""
    pendings = counted(ctx, num_outstanding, "num_outstanding", 0)
    if deps is None or deps == ():
        ctx.error("deps is not given", help="deps=(acc,) are the results of the dots that are waited for")
    given = deps if isinstance(deps, tuple) else (deps,)
    for value in given:
        if not isinstance(value, Accumulator | Tensor | SharedMemory):
            ctx.error(f"deps holds {describe(value)}; it is for accumulators, tensors and tiles", "deps")
    waited = [value for value in given if isinstance(value.value.type, TensorType)]
    op = ctx.add(WarpGroupDotWait(tuple(value.value for value in waited), pendings))
    results = iter(op.results)
    found = tuple(
        Tensor(next(results), value.dtype, value.shape) if value in waited else value for value in given
    )
    return found[0] if len(found) == 1 else found
