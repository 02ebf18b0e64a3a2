"""Running maxima and minima leave their loop, whatever the signs of the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler.interp import run
from kbuild.compiler.ir.core import Module
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.tensor import Reduce
from kbuild.targets.sm_80 import TARGET as SM_80


def running(operation: str, element: str, start: str) -> Module:
    """`start`, and from every row of 128 elements of `p` what `operation` makes of it and what came before."""
    return parse_module(f"""#b = blocked{{sizePerThread=[4], threadsPerWarp=[32], warpsPerCTA=[1], order=[0]}}
tt.func @f(%p: !tt.ptr<{element}>, %out: !tt.ptr<{element}>, %n: i32) attributes {{num_warps = 1}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c1: i32 = arith.constant {{value = 1}}
  %c128: i32 = arith.constant {{value = 128}}
  %start: {element} = arith.constant {{value = {start}}}
  %r: tensor<128xi32, #b> = tt.make_range {{start = 0, end = 128}}
  %last: {element} = scf.for %c0, %n, %c1, init=[%start] body(%i: i32, %best: {element}) {{
    %row: i32 = arith.muli %i, %c128
    %q: !tt.ptr<{element}> = tt.addptr %p, %row
    %s: tensor<128x!tt.ptr<{element}>, #b> = tt.splat %q
    %places: tensor<128x!tt.ptr<{element}>, #b> = tt.addptr %s, %r
    %x: tensor<128x{element}, #b> = tt.load %places
    %found: {element} = tt.reduce %x {{axis = 0}} combine(%a: {element}, %b: {element}) {{
      %h: {element} = arith.{operation} %a, %b
      tt.reduce.return %h
    }}
    %next: {element} = arith.{operation} %best, %found
    scf.yield %next
  }}
  tt.store %out, %last
  tt.return
}}
""")


SIGNED = [
    f"{operation} {element}" for operation in ("maxsi", "minsi") for element in ("i8", "i16", "i32", "i64")
]
UNSIGNED = [f"{operation} {element}" for operation in ("maxui", "minui") for element in ("i16", "i32")]
FLOATS = [
    f"{operation} {element}"
    for operation in ("maxnumf", "minnumf", "maximumf", "minimumf")
    for element in ("f16", "f32")
]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("which", [*SIGNED, *UNSIGNED, *FLOATS])
def test_extremes_of_numbers_of_one_sign(which: str, sign: int) -> None:
    """The start value is of the other side of all of them, so that it is the numbers that count."""
    operation, element = which.split()
    numbers = sign * (1 + np.random.default_rng(3).permutation(3 * 128) % 100)
    bits = int(element[1:])
    largest = operation.startswith("max")
    if element[0] == "f":
        data, low, high = numbers.astype(f"float{bits}"), "-1000.0", "1000.0"
    else:
        data = numbers.astype(f"int{bits}")
        low, high = (
            ("0", "-1") if operation.endswith("ui") else (str(-(1 << bits - 1)), str((1 << bits - 1) - 1))
        )
    module = running(operation, element, low if largest else high)
    run_pipeline(module, SM_80, ["thread_locality"])
    (loop,) = (op for op in module.kernel.body.walk() if isinstance(op, For))
    assert not any(isinstance(op, Reduce) for op in loop.body), "it is done once, after the loop"
    compared = data.view(f"uint{bits}") if operation.endswith("ui") else data
    for rows in (1, 3):
        out = np.zeros(1, data.dtype)
        run(module, [data, out, rows], (1,))
        right = compared[: 128 * rows].max() if largest else compared[: 128 * rows].min()
        assert out.view(compared.dtype)[0] == right
