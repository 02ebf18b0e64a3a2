"""Mistakes in `[kernel.op]`: each is one message with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.load import load_text
from kbuild.aot.manifest.model import Manifest
from kbuild.errors import ErrorGroup
from tests.aot.op.project import MANIFEST, SCALE

KERNELS = Path(__file__).resolve().parents[3] / "kernels"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    for name in ("vector_add", "sum", "layer_norm"):
        (tmp_path / "kernels" / f"{name}.py").write_bytes((KERNELS / f"{name}.py").read_bytes())
    (tmp_path / "kernels" / "scale.py").write_text(SCALE)
    return tmp_path


def loaded(folder: Path, old: str = "", new: str = "") -> Manifest:
    assert not old or MANIFEST.count(old) == 1
    return load_text(MANIFEST.replace(old, new).encode(), folder / "kernels.toml", "kernels.toml")


def test_arguments_are_bound_by_name_and_by_expression(folder) -> None:
    op = loaded(folder).kernel("scale").op
    assert op is not None
    (launch,) = op.launches
    assert launch.pointers == (("x", "x"), ("bias", "bias"), ("counter", "counter"))
    assert [(name, several[0].text) for name, several in launch.values] == [
        ("n", "N"),
        ("stride_x", "stride(x, N)"),
        ("factor", "factor"),
        ("HAS_BIAS", "given(bias)"),
        ("MODE", "mode"),
    ]
    assert op.inputs[0].free == (0,) and op.inputs[1].free == ()


def test_tensors_have_the_types_of_their_pointers(folder) -> None:
    op = loaded(folder).kernel("layer_norm").op
    assert op is not None
    assert op.inputs[0].types == ("fp32", "fp16") and op.inputs[0].group == "dtype"
    assert op.outputs[1].types == ("fp32",) and op.outputs[1].group == ""


def test_a_kernel_like_another_has_no_operator_of_it(folder) -> None:
    text = MANIFEST + '[[kernel]]\nname = "again"\nlike = "scale"\n'
    assert load_text(text.encode(), folder / "kernels.toml", "").kernel("again").op is None


MISTAKES = {
    "an unknown tensor": (
        'stride(x, N)"',
        'stride(z, N)"',
        "op.bind.stride_x: stride takes a tensor and one of its dimensions",
    ),
    "an unknown dimension": (
        'stride(x, N)"',
        'stride(x, M)"',
        'op.bind.stride_x: x has no dimension M in "stride(x, M)"',
    ),
    "an unknown name": ('n = "N", stride', 'n = "n", stride', 'op.bind.n: unknown name "n" in "n"'),
    "an unbound argument": (
        'n = "N", stride',
        "stride",
        'op.bind: nothing is bound to the argument "n" of scale',
    ),
    "an unbound pointer": (
        'outputs = { counter = "1" }',
        'outputs = { count = "1" }',
        'op.bind: nothing is bound to the pointer "counter" of scale',
    ),
    "an unknown argument": (
        'n = "N", stride',
        'm = "N", n = "N", stride',
        "op.bind.m: no launch has such an argument",
    ),
    "no tensor for a pointer": (
        'bind = { n = "shape" }\n\n[[kernel]]\nname = "sum"',
        'bind = { n = "shape", x = "z" }\n\n[[kernel]]\nname = "sum"',
        'op.bind.x: "z" is no tensor of the operator',
    ),
    "a fraction for an integer": (
        'n = "N", stride',
        'n = "N / 2", stride',
        '"N / 2" is a number with a fraction, and n is of type i32',
    ),
    "an unknown output dimension": (
        'outputs = { y = "*n_rows n_cols"',
        'outputs = { y = "*n_rows M"',
        'op.outputs.y: unknown name "M"',
    ),
    "two names for any number": (
        'inputs = { x = "*n_rows',
        'inputs = { x = "*more *n_rows',
        "both stand for any number of dimensions",
    ),
    "a name that is one dimension elsewhere": (
        '"weight, bias" = "n_cols" }\noutputs',
        '"weight, bias" = "n_rows" }\noutputs',
        "*n_rows stands for any number of dimensions elsewhere",
    ),
    "an expression as an input": (
        'inputs = { x = "*n_rows',
        'inputs = { x = "n+1 *n_rows',
        '"n+1" is neither the name of a dimension',
    ),
    "no such kernel": (
        'kernel = "sum_partials", bind',
        'kernel = "sum_partial", bind',
        'op.launch[1].kernel: no kernel "sum_partial"',
    ),
    "a scalar of a dimension's name": (
        "scalars = { eps = 1e-5 }",
        "scalars = { n_cols = 1e-5 }",
        "a tensor or a dimension has this name",
    ),
    "a required scalar behind": (
        'scalars = { factor = "N ** -0.5"',
        'scalars = { scale = "float", factor = "N ** -0.5"',
        "op.scalars.scale: has to be given, and stands behind bias",
    ),
    "an exponent": ('"N ** -0.5"', '"N ** 0.3"', 'op.scalars.factor: unknown exponent "0.3"'),
    "a tensor that cannot be optional": (
        'optional = ["bias"]',
        'optional = ["counter"]',
        'op.optional[0]: "counter" is no input',
    ),
    "a return": (
        'returns = ["y"]',
        'returns = ["x"]',
        'op.returns[0]: "x" is neither an output nor a mutated input',
    ),
    "a condition": ('"n_cols <= 256" =', '"n_cols <= K" =', 'op.require."n_cols <= K": unknown name "K"'),
    "a tensor that no launch takes": (
        'inputs = { "x, y" = "*shape" }',
        'inputs = { "x, y, z" = "*shape" }',
        "op.inputs.z: no launch takes this tensor",
    ),
    "a type": (
        'zeros = ["counter"]',
        'zeros = ["counter"]\ndtypes = { counter = "i64" }',
        'op.dtypes.counter: the kernel takes no "i64"',
    ),
    "a name that is taken": (
        'name = "scale_"',
        'name = "layer_norm"',
        'another function has the name "layer_norm"',
    ),
    "a name that the package needs": (
        'name = "scale_"',
        'name = "sys"',
        'op.name: "sys" is a name that the package needs itself',
    ),
    "a tensor called torch": (
        'inputs = { "x, y" = "*shape" }',
        'inputs = { "x, y, torch" = "*shape" }',
        "op.inputs.torch: this name is taken, or one that every operator has",
    ),
    "a scalar called _given": (
        'scalars = { factor = "N ** -0.5"',
        'scalars = { _given = 1, factor = "N ** -0.5"',
        "op.scalars._given: a tensor or a dimension has this name, or every operator",
    ),
    "no backward operator": (
        'zeros = ["counter"]',
        'zeros = ["counter"]\nbackward = { op = "scale_backward", grads = { x = "dx" } }',
        'op.backward.op: no operator "scale_backward"',
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_mistake(folder, name) -> None:
    old, new, message = MISTAKES[name]
    with pytest.raises(ErrorGroup) as caught:
        loaded(folder, old, new)
    texts = [str(error) for error in caught.value.errors()]
    assert any(message in text for text in texts), texts
