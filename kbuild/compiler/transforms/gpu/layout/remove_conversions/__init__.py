"""Chooses one layout per value so that as few and as cheap conversions as possible remain.

Operations that reach memory or tensor cores have layouts of their own: they are the anchors.  All conversions
are taken out; then layouts flow from the anchors forward through what is computed from them, around loops,
and backward through what they need (addresses, masks).  Where the layouts of two anchors meet, a conversion
goes back in at the cheaper side, or the cheap operations before it are repeated in the other layout.

Before:
    %1: tensor<128xi32, #blocked> = tt.make_range {start = 0, end = 128}
    %2: tensor<128x!tt.ptr<f32>, #blocked> = tt.splat %p
    %3: tensor<128x!tt.ptr<f32>, #blocked> = tt.addptr %2, %1
    %4: tensor<128x!tt.ptr<f32>, #blocked1> = ttg.convert_layout %3
    %5: tensor<128xf32, #blocked1> = tt.load %4
    %6: tensor<128xf32, #blocked> = ttg.convert_layout %5
After:
    %1: tensor<128xi32, #blocked1> = tt.make_range {start = 0, end = 128}
    %2: tensor<128x!tt.ptr<f32>, #blocked1> = tt.splat %p
    %3: tensor<128x!tt.ptr<f32>, #blocked1> = tt.addptr %2, %1
    %5: tensor<128xf32, #blocked1> = tt.load %3

`anchors` says what is fixed, `assign` chooses, `materialize` writes it down, `cost` weighs.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Func, Module
from kbuild.compiler.ir.passes import gpu_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.transforms.gpu.layout.remove_conversions.anchors import find_anchors
from kbuild.compiler.transforms.gpu.layout.remove_conversions.assign import assign_layouts
from kbuild.compiler.transforms.gpu.layout.remove_conversions.materialize import materialize


@gpu_pass
def remove_conversions(module: Module, target: object) -> None:
    """Choose the layouts of all values between the anchors."""
    for func in module.functions.values():
        if any(isinstance(op, ConvertLayout) for op in func.body.walk()):
            _choose(func)


def _choose(func: Func) -> None:
    anchors = find_anchors(func)
    for op in func.body.walk():
        if isinstance(op, ConvertLayout):
            op.replace_by(op.src)
    erase_dead(func.body)
    materialize(func, assign_layouts(func, anchors))
    erase_dead(func.body)
