"""Mistakes in `[kernel.op.backward]`: each is one message with its line."""

from __future__ import annotations

import pytest

from tests.aot.op.project import MANIFEST, loaded, mistakes

GRADIENT = (
    MANIFEST
    + """\
[[kernel]]
name = "forward"
like = "vector_add"
[kernel.op]
inputs = { "x, y" = "M N" }
outputs = { out = "M N" }
scalars = { eps = 1e-5 }
bind = { n = "M * N" }
backward = { op = "gradient", bind = { dout = "grad(out)" }, grads = { x = "dx" } }

[[kernel]]
name = "gradient"
like = "vector_add"
[kernel.op]
inputs = { "dout, y" = "M N" }
outputs = { dx = "M N" }
bind = { n = "M * N", x = "dout", out = "dx" }
"""
)
"""Two operators over the kernel of another one, of which one computes the gradient of the other."""


MISTAKES = {
    "an operator that is not there": (
        'op = "gradient"',
        'op = "gradients"',
        'op.backward.op: no operator "gradients"',
    ),
    "gradients of nothing": (
        'grads = { x = "dx" }',
        "grads = {}",
        "op.backward.grads: no input has a gradient",
    ),
    "a gradient of no input": (
        'grads = { x = "dx" }',
        'grads = { z = "dx" }',
        "op.backward.grads.z: forward has no such input",
    ),
    "a gradient that is no output": (
        'grads = { x = "dx" }',
        'grads = { x = "dz" }',
        'op.backward.grads.x: gradient has no output "dz"',
    ),
    "a gradient that is a number": (
        'grads = { x = "dx" }',
        "grads = { x = 3 }",
        "op.backward.grads.x: expected a string, found the int 3",
    ),
    "an argument that the other operator has not": (
        'bind = { dout = "grad(out)" }',
        'bind = { dy = "grad(out)" }',
        "op.backward.bind.dy: gradient has no such argument",
    ),
    "an argument that is left out": (
        'bind = { dout = "grad(out)" }, ',
        "",
        "op.backward: gradient needs dout",
    ),
    "the gradient of an input": (
        'bind = { dout = "grad(out)" }',
        'bind = { dout = "grad(x)" }',
        'op.backward.bind.dout: no "grad(x)"',
    ),
    "no gradient of an output": (
        'bind = { dout = "grad(out)" }',
        'bind = { dout = "out" }',
        "op.backward: gradient takes the gradient of no output of forward",
    ),
    "a scalar for a tensor": (
        'bind = { dout = "grad(out)" }',
        'bind = { dout = "grad(out)", y = "eps" }',
        "op.backward.bind.y: y of gradient is a tensor, and eps is a scalar",
    ),
    "a tensor for a scalar": (
        'bind = { n = "M * N", x = "dout", out = "dx" }',
        'scalars = { x = 0 }\nbind = { n = "M * N + 0 * x", x = "dout", out = "dx" }',
        "op.backward: x of gradient is a scalar, and x is a tensor",
    ),
    "a scalar of another kind": (
        'bind = { n = "M * N", x = "dout", out = "dx" }',
        'scalars = { eps = 0 }\nbind = { n = "M * N + 0 * eps", x = "dout", out = "dx" }',
        'op.backward: eps of gradient is of kind "int", and eps of kind "float"',
    ),
    "a tensor that may be None": (
        'outputs = { out = "M N" }',
        'outputs = { out = "M N" }\noptional = ["y"]',
        "op.backward: y of gradient has to be given, and y may be None",
    ),
    "a saved tensor of other dimensions": (
        'inputs = { "dout, y" = "M N" }',
        'inputs = { dout = "M N", y = "M" }',
        "op.backward: y of gradient has the shape (M), and y has (M N)",
    ),
    "a gradient of other dimensions": (
        'outputs = { dx = "M N" }',
        'outputs = { dx = "M" }',
        "op.backward.grads.x: dx of gradient has the shape (M), and x has (M N)",
    ),
    "a gradient of another shape": (
        'outputs = { dx = "M N" }',
        'outputs = { dx = "N M" }',
        "op.backward.grads.x: dx of gradient has the shape (N M), and x has (M N)",
    ),
    "a gradient of integers": (
        '"gradient"\nlike = "vector_add"\n',
        '"gradient"\nlike = "vector_add"\nargs = { "x, y" = "*{dtype}", out = "*i32", n = "i64" }\n',
        "op.backward.grads.x: dx holds i32, and gradients are of floating point",
    ),
    "a saved tensor of another type": (
        '"gradient"\nlike = "vector_add"\n',
        '"gradient"\nlike = "vector_add"\nargs = { "x, out" = "*{dtype}", y = "*i32", n = "i64" }\n',
        "op.backward: y of gradient takes i32, and y holds fp32 or fp16",
    ),
    "a gradient of what is written": (
        'outputs = { out = "M N" }',
        'outputs = { out = "M N" }\nmutates = ["x"]',
        "op.backward: forward writes x, and so has no gradient",
    ),
    "a gradient that is written": (
        'outputs = { dx = "M N" }',
        'outputs = { dx = "M N" }\nmutates = ["dout"]',
        "op.backward.op: gradient writes dout",
    ),
    "autocast to a type that the kernel does not take": (
        '"forward"\nlike = "vector_add"\n[kernel.op]\n',
        '"forward"\nlike = "vector_add"\nmatrix = { dtype = ["fp32"] }\n[kernel.op]\nautocast = "lower"\n',
        "op.autocast: x holds fp32, and autocast makes it fp16 or bf16",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_about_gradients_is_one_message(folder, name) -> None:
    old, new, message = MISTAKES[name]
    (text,) = mistakes(folder, GRADIENT, old, new)
    assert message in text


def test_gradients_may_be_those_of_the_operator_itself(folder) -> None:
    """As of a product with a constant."""
    text = GRADIENT.replace(
        'op = "gradient", bind = { dout = "grad(out)" }, grads = { x = "dx" }',
        'op = "forward", bind = { x = "grad(out)" }, grads = { x = "out" }',
    )
    op = loaded(folder, text).kernel("forward").op
    assert op is not None and op.backward is not None and op.backward.bind == (("x", "grad(out)"),)
