"""Real kernels mean the same at every stage: as written, after the passes over tensors, and with layouts and
pipelines.

All that needs no GPU: the interpreter runs the IR.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from zoo import CASES, Bits, Case

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler import interp
from kbuild.compiler.driver import pipelines_of
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.options import CompileOptions
from kbuild.targets import find_target

EVERY_PASS = (
    "matmul_fp16",
    "attention_causal_ragged",
    "block_pointers_ragged",
    "softmax_rows",
    "dot_chain",
    "nested_loops",
)
"""Cases that run after each single pass."""


def build(case: Case, arguments: dict[str, Any]) -> Module:
    signature = case.signature(arguments)
    return build_module(
        case.source, signature, case.constexprs, CompileOptions(case.num_warps, case.num_stages)
    )


def check(case: Case, module: Module, arguments: dict[str, Any]) -> None:
    """Interpret the kernel and compare its outputs with the right ones."""
    after = copy.deepcopy(arguments)
    interp.run(module, {name: v.data if isinstance(v, Bits) else v for name, v in after.items()}, case.grid)
    case.check(arguments, after)


@pytest.mark.parametrize("name", CASES)
def test_kernels_stay_right_through_the_stages(name: str) -> None:
    case = CASES[name]
    arguments = case.make(np.random.default_rng(0))
    module = build(case, arguments)
    check(case, module, arguments)
    target = find_target(case.archs[-1])
    for passes in pipelines_of(module, target):
        run_pipeline(module, target, passes)
        check(case, module, arguments)
    text = print_module(module)
    assert print_module(parse_module(text)) == text


@pytest.mark.parametrize("name", EVERY_PASS)
def test_each_pass_keeps_the_meaning(name: str) -> None:
    case = CASES[name]
    arguments = case.make(np.random.default_rng(0))
    module = build(case, arguments)
    target = find_target("sm_80")
    for text in (*target.tensor_pipeline, *target.gpu_pipeline):
        run_pipeline(module, target, [text])
        check(case, module, arguments)


def test_an_author_may_interpret_a_kernel_from_its_source() -> None:
    case = CASES["sum_in_loop_700"]
    arguments = case.make(np.random.default_rng(0))
    after = copy.deepcopy(arguments)
    interp.interpret(build_module, case.source, case.grid, after, case.constexprs)
    case.check(arguments, after)
    assert interp.signature_of({"x": np.zeros(1, np.float16), "n": 5, "s": 0.5}) == {
        "x": "*fp16",
        "n": "i32",
        "s": "fp32",
    }
