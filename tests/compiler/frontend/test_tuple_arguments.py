"""A tuple as an argument of a kernel: its elements are parameters of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.frontend.module import load_source
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.printer import print_module
from kbuild.errors import KbuildError, UsageError

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
        ({"strides": ("i32", ("i32", "i31"))}, "argument strides_1_1: 'i31' is not a type"),
        (
            {"strides": None, "strides_0": "i32", "strides_0_0": "i32"},
            "strides_0 is given, and elements of it",
        ),
        ({"strides": ("i32", "constexpr")}, "strides_1 is a constexpr, which has no value"),
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


NESTED = """
from typing import NamedTuple
import triton
import triton.language as tl

class View(NamedTuple):
    shape: tuple
    stride: tuple

class Array(NamedTuple):
    pointer: tl.tensor
    view: View

class Function(NamedTuple):
    fn: tl.constexpr
    captured: tuple

@triton.jit
def times(x, factor, shift):
    return x * factor + shift

@triton.jit
def places(array, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    return array.pointer + offsets * array.view.stride[0], offsets < array.view.shape[0]

@triton.jit
def k(ANNOTATED, function, options, BLOCK: tl.constexpr):
    tl.static_assert(options[0] is None and options[1][0] == 4 and len(options[2]) == 0)
    pointer, mask = places(out, BLOCK)
    tl.store(pointer, function.fn(tl.load(x.pointer + tl.arange(0, BLOCK)), *function.captured), mask=mask)
"""
ARRAYS = {
    "named": ("x, out", {"pointer": "*fp32", "view": {"shape": ("i32",), "stride": ("i32",)}}),
    "text": ("x, out", "(pointer=*fp32, view=(shape=(i32), stride=(i32)))"),
    "annotated": ("x: Array, out: Array", ("*fp32", (("i32",), ("i32",)))),
}


def nested(folder: Path, parameters: str) -> tuple[str, Any]:
    """The kernel, and the function that it is given."""
    path = folder / "nested.py"
    path.write_text(NESTED.replace("ANNOTATED", parameters))
    return f"{path}:k", load_source(f"{path}:times")


@pytest.mark.parametrize("form", ARRAYS)
def test_nested_and_named_tuples(tmp_path: Path, form: str) -> None:
    parameters, array = ARRAYS[form]
    source, function = nested(tmp_path, parameters)
    signature = {
        "x": array,
        "out": array,
        "function": {"fn": function, "captured": ("fp32", 1.0)},
        "options": (None, (4,), ()),
    }
    module = build_module(source, signature, {"BLOCK": 8})
    names = ["x_0", "x_1_0_0", "x_1_1_0", "out_0", "out_1_0_0", "out_1_1_0", "function_1_0"]
    assert [argument.name for argument in module.kernel.arguments] == names
    spelled = "(pointer=*fp32, view=(shape=(i32), stride=(i32)))"
    assert module.signature == (
        ("x", spelled),
        ("out", spelled),
        ("function", "(fn=constexpr, captured=(fp32, 1.0))"),
        ("options", "(None, (4), ())"),
    )
    x, out = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
    interp.run(module, [x, 8, 1, out, 5, 2, 3.0])
    assert np.array_equal(out[:10:2], 3 * x[:5] + 1) and not out[1::2].any() and not out[10:].any()
    again = build_module(source, {**dict(module.signature), "function": signature["function"]}, {"BLOCK": 8})
    assert print_module(again) == print_module(module), "the spelled signature means the same"


def test_nested_tuples_element_by_element(tmp_path: Path) -> None:
    source, function = nested(tmp_path, "x: Array, out: Array")
    signature = {
        f"{name}_{path}": type_
        for name in ("x", "out")
        for path, type_ in (("0", "*fp32"), ("1_0_0", "i32"), ("1_1_0", "i32"))
    }
    signature |= {
        "function": {"fn": "constexpr", "captured": ("fp32", "constexpr")},
        "options": "(None, (4), ())",
    }
    constants = {"BLOCK": 8, "function_0": function, "function_1_1": 1.0}
    module = build_module(source, signature, constants)
    assert [argument.name for argument in module.kernel.arguments][-1] == "function_1_0"


@pytest.mark.parametrize(
    ("parameters", "out", "message"),
    [
        ("x: Array, out: Array", ("*fp32",), r"argument out: \(\*fp32\) has 1 elements, and Array has 2"),
        ("x: Array, out: Array, out_0", ("*fp32", (("i32",), ("i32",))), "out_0, which is a parameter of k"),
        ("x: Array, out: Array", ("*fp32", None), "None has no attribute `stride`"),
    ],
)
def test_mistakes_in_nested_tuples(tmp_path: Path, parameters: str, out: Any, message: str) -> None:
    source, function = nested(tmp_path, parameters)
    signature = {
        "x": ARRAYS["annotated"][1],
        "out": out,
        "function": {"fn": function, "captured": ("fp32", 1.0)},
        "options": (None, (4,), ()),
    }
    with pytest.raises(KbuildError, match=message):
        build_module(source, signature, {"BLOCK": 8})


class Scaled(NamedTuple):
    pointer: np.ndarray
    factors: tuple[float, ...]


@kbuild.jit
def written(x, out, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(out[0][0] + places, tl.load(x.pointer + places) * x.factors[1])


def test_named_tuples_are_interpreted() -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    written.interpret[1](Scaled(x, (2.0, 3.0)), ((out,), None), BLOCK=8)
    assert np.array_equal(out, 3 * x)


@kbuild.jit
def scaled(pointers, factors, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(pointers[1] + places, tl.load(pointers[0] + places) * factors[0])


def test_tuples_of_arrays_are_interpreted() -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    scaled.interpret[1]((x, out), (3.0,), BLOCK=8)
    assert np.array_equal(out, 3 * x)


class Captured(NamedTuple):
    fn: Any
    captured: tuple[Any, ...]


@kbuild.jit
def times(x, factor):
    return x * factor


@kbuild.jit
def calls_what_a_tuple_holds(out):
    function = Captured(times, (2.0,))
    tl.store(out, function.fn(tl.load(out), *function.captured))


def test_a_live_class_may_have_a_field_called_fn() -> None:
    """Objects with `fn` are taken for wrappers of functions, classes are not."""
    made = kbuild.compile(calls_what_a_tuple_holds, signature={"out": "*fp32"}, stop="ttir")
    assert "arith.mulf" in made.asm["ttir"]
