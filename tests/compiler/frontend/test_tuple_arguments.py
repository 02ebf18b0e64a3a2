"""A tuple as an argument of a kernel: its elements are parameters of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.printer import print_module
from kbuild.errors import UsageError

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def at(pointers, strides, i, j):
    return pointers[1] + i * strides[0] + j * strides[1]

@triton.jit
def k(pointers, strides, n, BLOCK: tl.constexpr):
    x, out = pointers
    columns = tl.arange(0, BLOCK)
    for i in range(n):
        row = tl.load(x + i * strides[0] + columns * strides[-1])
        tl.store(at(pointers, strides, i, columns), row + len(strides))
"""
SIGNATURES: list[dict[str, Any]] = [
    {"pointers": ("*fp32", "*fp32"), "strides": ("i32:16", "i32:1"), "n": "i32"},
    {"n": "i32", "strides": ["i32:16", "i32:1"], "pointers": "(*fp32, *fp32)"},
    {"strides_1": "i32:1", "strides_0": "i32:16", "n": "i32", "pointers_0": "*fp32", "pointers_1": "*fp32"},
]


def built(folder: Path, signature: dict[str, Any]) -> Module:
    (folder / "k.py").write_text(KERNEL)
    return build_module(f"{folder}/k.py:k", signature, {"BLOCK": 8})


@pytest.mark.parametrize("signature", SIGNATURES)
def test_tuples_of_pointers_and_integers(tmp_path: Path, signature: dict[str, Any]) -> None:
    module = built(tmp_path, signature)
    x, out = np.arange(48, dtype=np.float32), np.zeros(48, np.float32)
    interp.run(module, {"pointers_0": x, "pointers_1": out, "strides_0": 16, "n": 3})
    expected = np.where(np.arange(48) % 16 < 8, x + 2, 0)
    assert np.array_equal(out, expected)
    other = print_module(built(tmp_path, SIGNATURES[0]))
    assert print_module(module) == other, "however the signature is written"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strides": None, "strides_2": "i32", "strides_0": "i32"}, "strides_2 is given, and not strides_1"),
        ({"strides": ()}, r"argument strides: \(\) is not a tuple of types"),
        ({"strides": ("i32", ("i32", "i32"))}, "is not a tuple of types"),
        ({"strides": ("i32", "i31")}, "argument strides_1: 'i31' is not a type"),
        ({"strides": None}, "missing argument strides"),
        ({"stride_0": "i32"}, "has no argument stride_0"),
        ({"BLOCK_0": "i32"}, "kernel k has no argument BLOCK_0"),
    ],
)
def test_mistakes_in_tuples(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    signature = {name: given for name, given in {**SIGNATURES[0], **change}.items() if given is not None}
    with pytest.raises(UsageError, match=message):
        built(tmp_path, signature)


@kbuild.jit
def scaled(pointers, factors, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(pointers[1] + places, tl.load(pointers[0] + places) * factors[0])


def test_tuples_of_arrays_are_interpreted() -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    scaled.interpret[1]((x, out), (3.0,), BLOCK=8)
    assert np.array_equal(out, 3 * x)
