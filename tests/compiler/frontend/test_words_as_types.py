"""A word that names a type is that type where a kernel needs one, and a word everywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.errors import CompileError

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def cast(x, D: tl.constexpr):
    return x.to(D)

@triton.jit(noinline=True)
def apart(x, D: tl.constexpr):
    return x.to(D).to(tl.float32)

@triton.jit
def k(out, n, D: tl.constexpr = "fp16"):
    x = n * 1.0003
    tl.store(out, {})
"""
ROUNDED = float(np.float16(3 * np.float32(1.0003)))
CASES = [
    ("x.to(D)", ROUNDED),
    ("x.to(dtype=D)", ROUNDED),
    ("tl.cast(x, D)", ROUNDED),
    ("cast(x, D)", ROUNDED),
    ("apart(x, D)", ROUNDED),
    ("tl.sum(tl.full((2,), x, D))", 2 * ROUNDED),
    ("tl.sum(tl.zeros((2,), dtype=D) + x.to(D))", 2 * ROUNDED),
    ("tl.sum(tl.full((2,), x, tl.float32), dtype=D)", 2 * ROUNDED),
    ("D.primitive_bitwidth + D.is_fp16()", 17),
    ("D == tl.float16", 1),
    ("tl.float16 == D", 1),
    ("D is tl.float16", 1),
    ("D != tl.float16", 0),
    ("D == tl.bfloat16", 0),
    ("D in (tl.bfloat16, tl.float16)", 1),
    ("x.dtype == D", 0),
    ("(x.dtype == 'fp32') + 2 * (x.to(D).dtype == D)", 3),
    ("(out.dtype.element_ty == D) + 2 * (tl.pointer_type(D) == tl.pointer_type(tl.float16))", 2),
    ("D == 'fp16'", 1),
    ("D == 'float16'", 0),
    ("D in ('fp16', 'relu')", 1),
    ("tl.constexpr(D) == 'fp16'", 1),
    ("len(D) + 10 * D.startswith('fp')", 14),
]


def stored(folder: Path, expression: str, **constexprs: Any) -> float:
    """What a kernel stores with n = 3, as fp32."""
    (folder / "k.py").write_text(KERNEL.format(expression))
    module = build_module(f"{folder}/k.py:k", {"out": "*fp32", "n": "i32"}, constexprs)
    out = np.zeros(1, np.float32)
    interp.run(module, {"out": out, "n": 3})
    return out[0].item()


@pytest.mark.parametrize(("expression", "expected"), CASES)
def test_a_word_that_names_a_type(tmp_path: Path, expression: str, expected: float) -> None:
    assert stored(tmp_path, expression) == expected
    assert stored(tmp_path, expression, D="fp16") == expected


def test_a_type_given_from_outside_stays_one(tmp_path: Path) -> None:
    assert stored(tmp_path, "x.to(D)", D="tl.float16") == ROUNDED
    assert stored(tmp_path, "D == 'fp16'", D="tl.float16") == 1


def test_another_word_is_no_type(tmp_path: Path) -> None:
    assert stored(tmp_path, "D == tl.float16", D="relu") == 0
    with pytest.raises(CompileError, match="dtype is 'relu', which is not a data type"):
        stored(tmp_path, "x.to(D)", D="relu")
