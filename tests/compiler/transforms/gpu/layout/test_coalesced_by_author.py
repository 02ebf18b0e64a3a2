"""The transpose of a block, read along rows and written along columns: layouts that inference finds for a Triton
kernel, and those that `CoalescedLayout` stands for, are the same, and so is the code."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.types import TensorType
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.compiler.ops.tensor import Load, Store
from kbuild.language import gluon
from kbuild.language.gluon import language as gl

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false


@kbuild.jit
def inferred(x, y, N: tl.constexpr):
    a, b = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tile = tl.load(x + a * N + b)
    tl.store(y + a + b * N, tile)


@gluon.jit
def written(x, y, N: gl.constexpr):
    a, b = gl.arange(0, N)[:, None], gl.arange(0, N)[None, :]
    tile = gl.load(gl.set_auto_layout(x + a * N + b, gl.CoalescedLayout()))
    a, b = gl.arange(0, N)[:, None], gl.arange(0, N)[None, :]
    place = gl.set_auto_layout(y + a + b * N, gl.CoalescedLayout())
    gl.store(place, gl.convert_layout(tile, gl.CoalescedLayout()))


def compiled(kernel: Any, arch: str, stop: str, dtype: str = "fp32") -> str:
    types = {"x": f"*{dtype}:16", "y": f"*{dtype}:16"}
    return kbuild.compile(kernel, signature=types, constexprs={"N": 64}, target=arch, stop=stop).asm[stop]


def layouts(module: Module) -> list[tuple[str, object]]:
    """Of what is read, written and converted, in order."""
    found = []
    for op in module.kernel.body.walk():
        if isinstance(op, Load | Store | ConvertLayout):
            for value in (*op.operands, *op.results):
                assert isinstance(value.type, TensorType) and value.type.layout is not None
                found.append((type(op).__name__, value.type.layout))
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_inference_and_coalesced_layouts_are_the_same(arch: str, dtype: str) -> None:
    ours, authors = (parse_module(compiled(kernel, arch, "ttgir", dtype)) for kernel in (inferred, written))
    assert layouts(ours) == layouts(authors)
    assert [name for name, _ in layouts(ours)].count("ConvertLayout") == 2


def code(kernel: Any, arch: str) -> str:
    """The PTX without the lines that name the source."""
    text = compiled(kernel, arch, "ptx")
    body = text[text.index("{") :].split(".section")[0]
    kept = [line for line in body.splitlines() if not re.match(r"\s*(\.loc|\$L__(tmp|func)|//)", line)]
    return "\n".join(re.sub(r"\b(inferred|written)", "kernel", line) for line in kept)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_and_so_is_their_code(arch: str) -> None:
    assert code(inferred, arch) == code(written, arch)
