"""Brings the IR into one simple form: constants computed, neutral operations gone, equal elements kept as one
splat, branches and loops without what is known or never used, branches that are alike made one.  Other passes
then need to look for one form only.

    Before:  %c: i32 = arith.constant {value = 0}
             %0: tensor<64xi32> = tt.splat %c
             %1: tensor<64xi32> = arith.addi %x, %0
             %2: tensor<64x!tt.ptr<f32>> = tt.addptr %p, %1
    After:   %2: tensor<64x!tt.ptr<f32>> = tt.addptr %p, %x

Works on ttir and ttgir alike.
"""

from __future__ import annotations

from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.passes import tensor_pass
from kbuild.compiler.ir.rewrite import erase_dead
from kbuild.compiler.transforms.common.canonicalize.control import control
from kbuild.compiler.transforms.common.canonicalize.fold import folding
from kbuild.compiler.transforms.common.canonicalize.ranges import ranges
from kbuild.compiler.transforms.common.canonicalize.shapes import shapes
from kbuild.compiler.transforms.common.canonicalize.twins import twins
from kbuild.targets import Target

CANONICAL = folding + ranges + shapes + control + twins


@tensor_pass
def canonicalize(module: Module, target: Target) -> None:
    for function in module.functions.values():
        CANONICAL.apply(function)
        erase_dead(function.body)
