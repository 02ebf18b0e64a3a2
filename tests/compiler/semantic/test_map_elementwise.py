"""What `tl.map_elementwise` refuses; what it computes is in the zoo."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.errors import CompileError


@kbuild.jit
def plain(x):
    return x + 1


@kbuild.jit
def nothing(x):
    tl.static_assert(x.shape == ())


@kbuild.jit
def loading(x):
    return tl.load(x)


@kbuild.jit
def applied(out, FUNCTION: tl.constexpr, OF: tl.constexpr, PACK: tl.constexpr):
    x = tl.arange(0, 16)
    if OF == "pointers":
        x = out + x
    if OF == "a scalar":
        x = tl.program_id(0)
    tl.map_elementwise(FUNCTION, x, pack=PACK)


@pytest.mark.parametrize(
    ("function", "of", "pack", "message"),
    [
        (plain, "numbers", 3, "pack is 3; it must be a power of two known while compiling"),
        (
            plain,
            "a scalar",
            1,
            "tl.map_elementwise is for tensors, all arguments are scalars\n.*\n.*\nhelp: call the",
        ),
        (nothing, "numbers", 1, "the function returns None"),
        (loading, "pointers", 1, "computes, and has no effects\n(.*\n)+help: load before tl.map_elementwise"),
    ],
)
def test_mistakes(function: Any, of: str, pack: int, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        build_module(applied, {"out": "*fp32"}, {"FUNCTION": function, "OF": of, "PACK": pack})


@kbuild.jit
def pairs(out):
    x = tl.arange(0, 16)
    tl.map_elementwise(two_of_two, x, pack=2)


@kbuild.jit
def two_of_two(a, b):
    return a, b * 1.5


def test_the_elements_of_a_result_have_one_type() -> None:
    message = re.escape("the function returns int32, fp32")
    with pytest.raises(CompileError, match=message):
        build_module(pairs, {"out": "*fp32"}, {})
