"""Errors of kernels end the interpreter with a message that says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.errors import InterpretError


@kbuild.jit
def gather_one(x, out, n):
    tl.store(out + tl.arange(0, 4), tl.gather(tl.load(x + tl.arange(0, 4)), tl.arange(0, 4) + n, 0))


@kbuild.jit
def count(x, out, n):
    tl.store(out + tl.arange(0, 4), tl.histogram(tl.load(x + tl.arange(0, 4)) + n, 4))


@kbuild.jit
def count_some(x, out, n):
    inside = tl.arange(0, 4) < n
    tl.store(
        out + tl.arange(0, 4),
        tl.histogram(tl.load(x + tl.arange(0, 4)) + tl.where(inside, 0, 9), 4, mask=inside),
    )


@kbuild.jit
def step(x, out, n):
    for i in range(0, 4, n):
        tl.store(out + i, i)


@kbuild.jit
def misaligned(x, out, n):
    address = (out.to(tl.pointer_type(tl.int8)) + n).to(tl.pointer_type(tl.int32))
    tl.store(address, tl.load(x))


@kbuild.jit
def from_nowhere(n):
    tl.load(n.to(tl.pointer_type(tl.int32)))


@kbuild.jit
def show(x, n):
    tl.device_print("values: ", tl.load(x + tl.arange(0, 2)), n)


def run(kernel: Any, **arguments: Any) -> None:
    interp.run(build_module(kernel, interp.signature_of(arguments), {}), arguments)


@pytest.mark.parametrize(
    ("kernel", "n", "expected"),
    [
        (gather_one, 0, [0, 1, 2, 3]),
        (gather_one, 1, "tt.gather: an index is outside 0 … 3"),
        (gather_one, -1, "an index is"),
        (count, 0, [1, 1, 1, 1]),
        (count, 1, "tt.histogram: an element is outside 0 … 3"),
        (count, -1, "an element is outside"),
        (count_some, 2, [1, 1, 0, 0]),
        (count_some, 4, [1, 1, 1, 1]),
        (step, 2, [0, -1, 2, -1]),
        (step, 0, "a loop's step is 0, and must be positive"),
        (step, -1, "step is -1"),
        (misaligned, 4, [-1, 0, -1, -1]),
        (misaligned, 2, "write of 4 bytes at an address that is not a multiple of 4"),
        (misaligned, 16, "write out of bounds"),
    ],
)
def test_only_what_is_allowed_is_done(kernel: Any, n: int, expected: list[int] | str) -> None:
    x, out = np.arange(4, dtype=np.int32), np.full(4, -1, np.int32)
    if isinstance(expected, str):
        with pytest.raises(InterpretError, match=expected) as caught:
            run(kernel, x=x, out=out, n=n)
        assert "test_refusals.py:" in str(caught.value)
    else:
        run(kernel, x=x, out=out, n=n)
        assert out.tolist() == expected


def test_a_kernel_without_arrays_has_no_memory() -> None:
    with pytest.raises(InterpretError, match="read at address 0x2a, but the kernel has no arrays"):
        run(from_nowhere, n=42)


def test_arguments_are_asked_for_by_name() -> None:
    module = build_module(show, {"x": "*i32", "n": "i32"}, {})
    with pytest.raises(InterpretError, match="show lacks the arguments n"):
        interp.run(module, {"x": np.zeros(2, np.int32)})


def test_what_a_kernel_prints_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run(show, x=np.array([3, 4], np.int32), n=5)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["pid (0, 0, 0) values: [3 4]", "pid (0, 0, 0) values: 5"]
