"""Layouts keep their rules after every pass, on the text cases and on the zoo's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from zoo import CASES

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Module, Op
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.types import element_of
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.gpu import ConvertLayout, LocalLoad
from kbuild.compiler.ops.tensor import Load
from kbuild.compiler.transforms._support.layout_flow import held_layout
from kbuild.options import CompileOptions
from kbuild.targets import Target, find_target
from tests.compiler.transforms.gpu.layout_rules import check_layouts
from tests.conftest import parse_cases

FILES = sorted(Path(__file__).parent.rglob("*.test"))
KERNELS = Path(__file__).parents[4] / "kernels"
MANY_SHAPES = [
    "join_and_split",
    "transpose",
    "permute",
    "gather",
    "scan_rows",
    "largest_with_index",
    "count_values",
    "dot_fp8",
    "dot_batch",
    "dot_tf32x3",
    "dot_ieee",
    "matmul_fp16",
    "attention_causal",
]
ROWS = {"x": "*fp16:16", "out": "*fp16:16", "stride_x": "i32:16", "stride_out": "i32:16", "n_cols": "i32:16"}
NORM = {
    "x": "*bf16:16",
    "y": "*bf16:16",
    "weight": "*bf16:16",
    "bias": "*bf16:16",
    "mean": "*fp32:16",
    "rstd": "*fp32:16",
    "stride_x": "i32:16",
    "stride_y": "i32:16",
    "n_cols": "i32:16",
    "eps": "fp32",
}
MEMORY_BOUND = {
    "vector_add": ({"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32:16"}, {"BLOCK": 1024}),
    "sum": ({"x": "*fp16:16", "partial": "*fp32:16", "n": "i32:16"}, {"BLOCK": 2048, "STEPS": 8}),
    "softmax": (ROWS, {"BLOCK": 2048}),
    "layer_norm": (NORM, {"BLOCK": 1024}),
}
"""The shipped kernels that wait for memory: types of arguments, and constants."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_text_cases_keep_the_rules(file: Path):
    for case in parse_cases(file.read_text()):
        if case.expected.startswith("error:"):
            continue
        module = parse_module(case.source)
        for name in case.passes:
            run_pipeline(module, find_target(case.target), [name])
            check_layouts(module)


def compiled(name: str, arch: str = "sm_80") -> Module:
    """A kernel of the zoo after all passes."""
    case, target = CASES[name], find_target(arch)
    arguments = case.make(np.random.default_rng(0))
    options = CompileOptions(case.num_warps, case.num_stages)
    module = build_module(case.source, case.signature(arguments), dict(case.constexprs), options)
    return lowered(module, target)


def lowered(module: Module, target: Target) -> Module:
    """A module after all passes, its layouts checked after each from `to_gpu` on."""
    run_pipeline(module, target, target.tensor_pipeline)
    typed = False
    for text in target.gpu_pipeline:
        run_pipeline(module, target, [text])
        typed = typed or text == "to_gpu"
        if typed:
            check_layouts(module)
    return module


@pytest.mark.parametrize("name", MANY_SHAPES)
def test_kernels_keep_the_rules(name: str):
    compiled(name)


def conversions(module: Module) -> Iterator[tuple[Op, bool]]:
    """The conversions left, and whether each is inside a loop."""
    for op in module.kernel.body.walk():
        if isinstance(op, ConvertLayout):
            around = op.parent_op
            while around is not None and not isinstance(around, For | While):
                around = around.parent_op
            yield op, around is not None


@pytest.mark.parametrize("name", MEMORY_BOUND)
def test_memory_bound_kernels_need_no_conversion(name: str):
    module = build_module(f"{KERNELS / name}.py:{name}_kernel", *MEMORY_BOUND[name])
    assert not list(conversions(lowered(module, find_target("sm_80"))))
    assert all(
        held_layout(op.result).contiguous_per_thread() > 1
        for op in module.kernel.body.walk()
        if isinstance(op, Load)
    )


@pytest.mark.parametrize(
    "name", ["matmul_fp16", "matmul_tf32", "attention", "attention_causal", "attention_wide"]
)
def test_dots_convert_only_their_result(name: str):
    """Operands come from shared memory, and the weights of attention are an operand already: only the store
    is left."""
    found = list(conversions(compiled(name)))
    assert len(found) == 1 and not found[0][1]


def test_operands_go_through_shared_memory_as_narrow_as_they_were_loaded(tmp_path: Path):
    """What is computed of them is computed in the layout of the dot."""
    (tmp_path / "kernel.py").write_text("""
import triton
import triton.language as tl

@triton.jit
def mixed(a, b, c, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c + i, tl.dot(tl.load(a + i).to(tl.float16) * 2, tl.load(b + i).to(tl.float16)))
""")
    arguments = {"a": "*i8:16", "b": "*i8:16", "c": "*fp32:16"}
    module = build_module(f"{tmp_path / 'kernel.py'}:mixed", arguments, {"SIZE": 64})
    loads = [
        op for op in lowered(module, find_target("sm_80")).kernel.body.walk() if isinstance(op, LocalLoad)
    ]
    assert loads and all(str(element_of(op.result.type)) == "i8" for op in loads)
