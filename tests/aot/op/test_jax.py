"""The operators for JAX, whose calls are functions of numpy's in place of launches: there is no GPU here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy


def _vector_add(x, y, **attributes):
    return [x + y]


def _layer_norm(x, weight, bias, *, eps, **attributes):
    mean, rstd = x.mean(-1), 1 / np.sqrt(x.var(-1) + eps)
    return [(x - mean[..., None]) * rstd[..., None] * weight + bias, mean, rstd]


def _choose(x, choice, bias=0, *, factor, _given, **attributes):
    assert _given == (7 if isinstance(bias, np.ndarray) else 3)
    slope = np.where(choice != 0, factor, 0)
    return [x * slope + bias, slope, np.zeros(2 + (_given == 7))]


def _choose_backward(dy, slope, **attributes):
    return [dy * slope, dy]


STAND_INS = {
    "vector_add": _vector_add,
    "sum": lambda x, **attributes: [x.sum()],
    "layer_norm": _layer_norm,
    "choose": _choose,
    "choose_backward": _choose_backward,
}


def stand_in(target: str, results: list[Any], vmap_method: str):
    """In place of `jax.ffi.ffi_call`: numpy computes what the target would."""

    def compute(attributes, *operands):
        made = STAND_INS[target.rpartition(".")[2]](*map(np.asarray, operands), **attributes)
        return [np.asarray(array, result.dtype) for array, result in zip(made, results)]

    def call(*operands, **attributes):
        function = functools.partial(compute, attributes)
        return jax.pure_callback(function, results, *operands, vmap_method=vmap_method)

    return call


@pytest.fixture(scope="module")
def by_jax(ops) -> ModuleType:
    """The module of JAX's operators."""
    return importlib.import_module(f"{ops.__name__}._jax")


@pytest.fixture
def computed(by_jax, monkeypatch) -> Iterator[None]:
    """Calls give numbers; what JAX has traced with other calls is forgotten, before and after."""
    by_jax._function.cache_clear()
    monkeypatch.setattr(jax.ffi, "ffi_call", stand_in)
    yield
    by_jax._function.cache_clear()


def floats(*shape: int, dtype: Any = np.float32):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def lowered(function, *arguments) -> str:
    return jax.jit(function).lower(*arguments).as_text()


def test_targets_are_registered_by_number(ops, by_jax, monkeypatch) -> None:
    registered = []
    monkeypatch.setattr(ops._launcher, "_xla_handler", lambda number: number)
    monkeypatch.setattr(
        jax.ffi, "register_ffi_target", lambda *target, platform: registered.append((*target, platform))
    )
    importlib.reload(by_jax)
    assert registered == [
        (f"{ops.__name__}.{name}", number, "CUDA") for number, name in enumerate(ops.operators.OPERATORS)
    ]


def test_results_have_the_shapes_of_the_manifest(ops, by_jax) -> None:
    x, row = floats(2, 3, 8, dtype=jnp.float16), floats(8, dtype=jnp.float16)
    y = jax.eval_shape(ops.layer_norm, x, row, row)
    assert y.shape == (2, 3, 8) and y.dtype == jnp.float16
    assert jax.eval_shape(ops.sum, x).shape == ()
    choice = jnp.ones(200, jnp.int32)
    y, counts = jax.eval_shape(ops.choose, floats(200), choice)
    assert y.shape == (200,) and counts.shape == (4,) and counts.dtype == jnp.int32
    _, counts = jax.eval_shape(functools.partial(ops.choose, programs=9), floats(200), choice, floats(200))
    assert counts.shape == (10,)


def test_the_call_has_the_arrays_and_scalars_that_are_given(ops, by_jax) -> None:
    x, choice = floats(200), jnp.ones(200, jnp.int32)
    text = lowered(ops.choose, x, choice)
    assert f"stablehlo.custom_call @{ops.__name__}.choose(%arg0, %arg1)" in text
    assert "{_given = 3 : i64, factor = 2.000000e+00 : f64}" in text
    assert "-> (tensor<200xf32>, tensor<200xf32>, tensor<4xi32>)" in text
    text = lowered(lambda *arrays: ops.choose(*arrays, np.float32(3), True), x, choice, x)
    assert "{_given = 7 : i64, factor = 3.000000e+00 : f64, programs = 1 : i64}" in text
    assert "_given = 7" in lowered(lambda x: ops.layer_norm(x, np.ones(8, np.float32), x[0]), floats(3, 8))


def test_calls_compute(ops, computed) -> None:
    x, weight, bias = floats(3, 8), floats(8), 2 * floats(8)
    expected = _layer_norm(*map(np.asarray, (x, weight, bias)), eps=1e-3)[0]
    for function in (ops.layer_norm, jax.jit(ops.layer_norm, static_argnames="eps")):
        assert abs(function(x, weight, bias, eps=1e-3) - expected).max() < 1e-5
    rows = jax.vmap(lambda row: ops.layer_norm(row, weight, bias, 1e-3))(x)
    assert abs(rows - expected).max() < 1e-5
    assert (ops.vector_add(x, np.ones((3, 8), np.float32)) == x + 1).all()


@pytest.mark.parametrize("wrapped", [lambda function: function, jax.jit, jax.checkpoint])
def test_gradients_are_those_of_the_backward_operator(ops, computed, wrapped) -> None:
    x, choice, bias = floats(8), jnp.arange(8, dtype=jnp.int32) % 2, floats(8)

    def loss(x, choice, bias):
        y, counts = ops.choose(x, choice, bias, factor=3.0)
        return (y * y).sum() + counts.sum()

    dx, dchoice, dbias = jax.grad(wrapped(loss), argnums=(0, 1, 2), allow_int=True)(x, choice, bias)
    y = x * choice * 3 + bias
    assert abs(dx - 2 * y * choice * 3).max() < 1e-5 and abs(dbias - 2 * y).max() < 1e-5
    assert dchoice.dtype == jax.dtypes.float0
    _, pull = jax.vjp(lambda x: ops.choose(x, choice, factor=3.0)[0], x)
    assert abs(pull(jnp.ones(8))[0] - choice * 3).max() < 1e-6


def test_the_backward_operator_takes_what_it_names(ops, by_jax) -> None:
    x, choice = floats(8), jnp.ones(8, jnp.int32)
    text = lowered(jax.grad(lambda x: ops.choose(x, choice)[0].sum()), x)
    backward = next(line for line in text.splitlines() if f"@{ops.__name__}.choose_backward(" in line)
    assert "{_given = 3 : i64, step = 1 : i64}" in backward and "#1)" in backward.partition("{")[0]


def test_an_operator_without_a_gradient_says_so(ops, computed) -> None:
    x = floats(8)
    message = r"vector_add\(\) has no gradient: its manifest has no \[kernel.op.backward\]"
    for wrapped in (ops.vector_add, jax.jit(ops.vector_add)):
        with pytest.raises(NotImplementedError, match=message):
            jax.grad(lambda x, add=wrapped: add(x, x).sum())(x)
    stopped = jax.grad(lambda x: (x * jax.lax.stop_gradient(ops.vector_add(x, x))).sum())(x)
    assert (stopped == 2 * x).all()


def test_shard_map_has_to_leave_its_checks(ops, by_jax) -> None:
    """They take the results of XLA's calls for the same on all devices, and gradients would be wrong."""
    one = jax.sharding.PartitionSpec("devices")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("devices",))

    def sharded(**options):
        function = jax.shard_map(ops.vector_add, mesh=mesh, in_specs=(one, one), out_specs=one, **options)
        return jax.eval_shape(function, floats(4), floats(4))

    with pytest.raises(
        NotImplementedError, match=r"vector_add\(\) is not known to the checks of jax.shard_map"
    ):
        sharded()
    assert sharded(check_vma=False).shape == (4,)


def test_a_program_is_exported_for_any_size(ops, by_jax) -> None:
    export = importlib.import_module("jax.export")
    (rows,) = export.symbolic_shape("rows")
    row = jax.ShapeDtypeStruct((8,), jnp.float32)
    name = f"{ops.__name__}.layer_norm"
    program = export.export(
        jax.jit(ops.layer_norm),
        platforms=["cuda"],
        disabled_checks=[export.DisabledSafetyCheck.custom_call(name)],
    )(jax.ShapeDtypeStruct((rows, 8), jnp.float32), row, row)
    assert str(program.out_avals[0].shape) == "(rows, 8)" and f"@{name}(" in program.mlir_module()


MISTAKES = {
    "another type": (
        lambda ops, x: ops.sum(x.astype(jnp.int8)),
        TypeError,
        r"sum\(\): x holds i8, and the operator takes fp32 or fp16",
    ),
    "a complex type": (
        lambda ops, x: ops.sum(x.astype(jnp.complex64)),
        TypeError,
        "x holds complex64, and the operator takes fp32 or fp16",
    ),
    "two types": (
        lambda ops, x: ops.vector_add(x, x.astype(jnp.float16)),
        TypeError,
        r"vector_add\(\): x holds fp32 and y holds fp16; both have to be of one type",
    ),
    "a requirement": (
        lambda ops, x: jax.eval_shape(ops.pick, x[0, :7], jnp.ones(7, jnp.int32)),
        ValueError,
        r"pick\(\): sizes are even, and not large",
    ),
    "another rank": (
        lambda ops, x: ops.layer_norm(x, x, x[0]),
        ValueError,
        r"layer_norm\(\): weight has 2 dimensions, and is declared as \(n_cols\)",
    ),
    "another size": (
        lambda ops, x: ops.layer_norm(x, x[0], x[0, 1:]),
        ValueError,
        "n_cols is 7 in bias, and 8 before",
    ),
    "no array": (
        lambda ops, x: ops.vector_add(x, None),
        TypeError,
        r"vector_add\(\): y must be an array of JAX or numpy, not NoneType",
    ),
    "a stream": (
        lambda ops, x: ops.vector_add(x, x, stream=7),
        TypeError,
        "stream= is not taken with arrays of JAX",
    ),
    "an input that is written": (
        lambda ops, x: ops.scale_(x[0]),
        NotImplementedError,
        r"scale_\(\) writes to x, and arrays of JAX cannot be written",
    ),
    "a scalar that is traced": (
        lambda ops, x: jax.jit(ops.layer_norm)(x, x[0], x[0], 1e-3),
        TypeError,
        r'eps must be a Python value, and JAX traces it: .*static_argnames=\["eps"\]',
    ),
    "a scalar of another kind": (
        lambda ops, x: ops.layer_norm(x, x[0], x[0], eps="small"),
        TypeError,
        "eps must be a number, not str",
    ),
    "None for a default that is a number": (
        lambda ops, x: ops.layer_norm(x, x[0], x[0], eps=None),
        TypeError,
        "eps must be a number, not NoneType",
    ),
    "a number that is not whole": (
        lambda ops, x: ops.choose(x, x.astype(jnp.int32), None, 1, 2.5),
        TypeError,
        "programs must be a whole number, not float",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_call_is_one_message(ops, by_jax, name) -> None:
    call, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        call(ops, floats(3, 8))


def test_explain_reads_arrays_of_jax(ops, capsys) -> None:
    x = floats(3, 8, dtype=jnp.float16)
    ops.explain("vector_add", x, x, arch="sm_90")
    assert "dtype=fp16 BLOCK=1024 num_warps=4 num_stages=3: taken" in capsys.readouterr().out
