"""Gives each copy by TMA its tensor map, an argument of the kernel that the launcher makes from others.

Before:
    tt.func @f(%x: !tt.ptr<f16>, %m: i32, %k: i32, %stride: i64) {
      %d: !tt.tensordesc<tensor<128x128xf16>> = tt.make_tensor_descriptor %x, shape=[%m, %k], strides=[%stride, %c1]
      ttng.async_tma_copy_global_to_local %d, %tile, %barrier, %true, indices=[%i, %j]
After:
    tt.func @f(%x: …, %x_map: !tt.tensordesc<tensor<128x64xf16>> {tensor_map = "#0 #1,#2 #3", swizzle = 128}) {
      ttng.async_tma_copy_global_to_local %x_map, %tile, %barrier, %true, indices=[%i, %j]

The layout of the tile says what boxes the map has.
"""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func, Module
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.types import I32, TensorType, bit_width
from kbuild.compiler.layout import describe, tma_box
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.nvidia import AsyncTmaCopyGlobalToLocal, AsyncTmaCopyLocalToGlobal
from kbuild.compiler.ops.tensor import MakeTensorDescriptor
from kbuild.compiler.transforms.gpu.pipeline.tensor_maps import map_argument, sources_of
from kbuild.errors import CompileError
from kbuild.targets import Target

TmaCopy = AsyncTmaCopyGlobalToLocal | AsyncTmaCopyLocalToGlobal


@gpu_pass
def tma_lowering(module: Module, target: Target) -> None:
    """Replace descriptors of copies by tensor maps.

    Raises `CompileError` for a tile that TMA cannot copy, and for a descriptor that the launcher cannot make.
    """
    for func in module.functions.values():
        for op in func.body.walk():
            if isinstance(op, TmaCopy) and isinstance(op.desc.op, MakeTensorDescriptor):
                _take_map(func, op, op.desc.op)


def _take_map(func: Func, op: TmaCopy, made: MakeTensorDescriptor) -> None:
    box, swizzle = _box(op)
    sources = sources_of(made, func)
    if sources is None:
        raise CompileError(
            "the launcher cannot make the tensor map of this descriptor",
            made.loc or op.loc,
            "its base, shape and strides have to be arguments of the kernel or constants, strides multiples of 16 "
            "bytes, and the last one 1",
        )
    hints: dict[str, Any] = {"swizzle": swizzle}
    if made.padding == "nan":
        hints["fill"] = "nan"
    if len(box) == 1:
        op.indices = (Builder.before(op).add(Constant.of(0, I32)).result, *op.indices)
        box = (1, *box)
    op.desc = map_argument(func, sources, TensorType(box, op.tile.element), hints)


def _box(op: TmaCopy) -> tuple[tuple[int, ...], int]:
    """The box that the tile of a copy consists of, and its swizzle."""
    tile = op.tile
    found = tma_box(tile.layout, bit_width(tile))
    if found is None or any(size < part for size, part in zip(tile.tile_shape, found[0])):
        raise CompileError(
            f"TMA cannot copy a tile that lies in shared memory as {describe(tile.layout)}",
            op.loc,
            "give it an NVMMASharedLayout that is not transposed, and at least as wide as its swizzle",
        )
    return found
