"""Gives loads for whose tiles there is no room a layout in which threads load well.

Before:
    %x: tensor<64x64xf32, #mma> = tt.load %p, mask=%m
After:
    %y: tensor<64x64xf32, #blocked> = tt.load %q, mask=%n        with %p and %m computed in that layout
    %x: tensor<64x64xf32, #mma> = ttg.convert_layout %y
"""

from __future__ import annotations

from collections.abc import Collection

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Func
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.layout_flow import (
    converted,
    held_layout,
    tensor_operands,
    tensor_type,
)
from kbuild.compiler.transforms.gpu.layout.coalesce import find_accesses, layout_alone
from kbuild.compiler.transforms.gpu.layout.remove_conversions.materialize import Copies
from kbuild.targets.target import Target


def load_by_threads(func: Func, loads: Collection[Load], target: Target) -> None:
    """Convert the results of loads, and not what they load."""
    copies, num_warps = Copies(), int(func.attrs["num_warps"])
    for access in find_accesses(func, target):
        load = access.op
        if not isinstance(load, Load) or load not in loads:
            continue
        before, layout = held_layout(load.result), layout_alone(access, func, num_warps).linear(access.shape)
        if layout == before:
            continue
        for index, operand in list(tensor_operands(load)):
            load.set_operand(index, copies.get(operand, layout))
        users = list(load.result.users)
        load.result.type = tensor_type(load.result).with_layout(layout)
        back = converted(Builder.after(load), load.result, before)
        for user in users:
            user.replace_operand(load.result, back)
