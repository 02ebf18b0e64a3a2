"""The operators for torch's dispatcher, with kernels of torch's own in place of launches: there is no GPU here."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


def _add(x, y, out, stream):
    return x + y if out is None else out.copy_(x + y)


def _layer_norm(x, weight, bias, eps, *rest):
    mean, rstd = x.mean(-1), (x.var(-1, correction=0) + eps).rsqrt()
    made = (x - mean[..., None]) * rstd[..., None] * weight + bias, mean, rstd
    for given, result in zip(rest, made):
        if given is not None:
            given.copy_(result)
    return made


def _choose(x, choice, bias, factor, programs, *rest):
    slope = torch.where(choice != 0, factor, 0.0)
    programs = -(-x.numel() // 64) if programs is None else programs
    counts = torch.zeros(max(programs, 2) + (bias is not None), dtype=torch.int32)
    return x * slope.to(x.dtype) + (0 if bias is None else bias), slope, counts


def _choose_backward(dy, slope, step, count, *rest):
    assert step == 1 and count is None
    return dy * slope, dy.clone()


@pytest.fixture(scope="module")
def by_torch(ops) -> ModuleType:
    """The module of torch's operators; tensors of the CPU go there, where a launch refuses them."""
    run = ops._launcher._run
    run.vector_add, run.layer_norm = _add, _layer_norm
    run.choose, run.choose_backward = _choose, _choose_backward
    run.pick = lambda torch, next, any, grad_y, cdiv, *rest: _choose(torch, next, any, grad_y, cdiv)
    run.sum = lambda x, out, stream: x.sum()
    return importlib.import_module(f"{ops.__name__}._torch")


def test_opcheck_is_clean(ops, by_torch) -> None:
    x, y = torch.randn(2, 3, 8)
    operators = getattr(torch.ops, ops.__name__)
    torch.library.opcheck(operators.vector_add.default, (x, y))
    torch.library.opcheck(operators.vector_add.out, (x, y), {"out": torch.empty_like(x)})
    torch.library.opcheck(operators.layer_norm.default, (x, y[0], y[1], 1e-5))
    torch.library.opcheck(operators.sum.default, (x,))
    for name in (operators.choose, operators.pick):
        x = torch.randn(8, requires_grad=True)
        torch.library.opcheck(name.default, (x, torch.ones(8, dtype=torch.int32), None, 2.0, None))


def test_a_compiled_function_has_no_break(ops, by_torch) -> None:
    x, y = torch.randn(2, 3, 8)
    function = torch.compile(
        lambda x, y: ops.vector_add(x, y) * 2, fullgraph=True, backend="aot_eager", dynamic=True
    )
    assert torch.equal(function(x, y), (x + y) * 2)

    def into(x, y):
        out = torch.empty_like(x)
        ops.vector_add(x, y, out=out)
        return out

    assert torch.equal(torch.compile(into, fullgraph=True, backend="aot_eager")(x, y), x + y)


def test_it_is_exported(ops, by_torch) -> None:
    class Norm(torch.nn.Module):
        def forward(self, x, weight, bias):
            return ops.layer_norm(x, weight, bias, eps=1e-3)

    x, weight, bias = torch.randn(3, 8), torch.randn(8), torch.randn(8)
    shapes = ({0: torch.export.Dim("n")}, None, None)
    program = torch.export.export(Norm(), (x, weight, bias), dynamic_shapes=shapes)
    assert f"{ops.__name__}.layer_norm.default" in program.graph_module.code
    more = torch.randn(7, 8)
    assert torch.equal(program.module()(more, weight, bias), _layer_norm(more, weight, bias, 1e-3)[0])


def test_fake_tensors_have_the_shapes_of_the_manifest(ops, by_torch) -> None:
    FakeTensorMode = importlib.import_module("torch._subclasses").FakeTensorMode

    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(2, 3, 8, dtype=torch.float16))
        assert ops.vector_add(x, x).shape == (2, 3, 8) and ops.sum(x).dtype is torch.float16
        with pytest.raises(RuntimeError, match="n_cols is 9 in weight, and 8 before"):
            ops.layer_norm(x, x.new_empty(9), x.new_empty(8))


@pytest.mark.parametrize("name", ["choose", "pick"])
def test_sizes_of_outputs_name_constants_and_what_is_given(ops, by_torch, name) -> None:
    FakeTensorMode = importlib.import_module("torch._subclasses").FakeTensorMode

    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(200))
        y, counts = getattr(ops, name)(x, x.int())
        assert y.shape == (200,) and counts.shape == (4,) and counts.dtype is torch.int32
        assert getattr(ops, name)(x, x.int(), x, 3.0, 9)[1].shape == (10,)
    function = torch.compile(getattr(ops, name), fullgraph=True, backend="aot_eager", dynamic=True)
    for count, is_given in ((64, False), (200, True), (300, False)):
        x, choice = torch.randn(count), torch.arange(count, dtype=torch.int32) % 2
        y, counts = function(x, choice, x if is_given else None)
        assert torch.equal(y, _choose(x, choice, x if is_given else None, 2.0, None)[0])
        assert counts.shape == (max(-(-count // 64), 2) + is_given,)


@pytest.mark.parametrize("name", ["choose", "pick"])
def test_gradients_are_those_of_the_backward_operator(ops, by_torch, name) -> None:
    """It has scalars of its own, of which one is computed; arguments may be called as what the functions of Python are."""
    x, bias = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    choice = torch.arange(8, dtype=torch.int32) % 2
    call = getattr(by_torch, f"call_{name}")
    y, counts = call(x, choice, bias, 3.0, None, None, None, None, None)
    (y * y).sum().backward()
    assert torch.allclose(x.grad, 2 * y * choice * 3) and torch.allclose(bias.grad, 2 * y)
    assert not counts.requires_grad
    y = call(x, choice, None, 3.0, None, None, None, None, None)[0]
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], choice * 3.0)
    with pytest.raises(RuntimeError, match=r"don't support automatic differentiation"):
        call(x, choice, None, 3.0, None, torch.empty(8), None, None, None)


def test_what_fake_tensors_hold_is_checked(ops, by_torch) -> None:
    FakeTensorMode = importlib.import_module("torch._subclasses").FakeTensorMode

    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(2, 8))
        for call, message in (
            (
                lambda: ops.vector_add(x, x.half()),
                "x holds fp32 and y holds fp16; both have to be of one type",
            ),
            (lambda: ops.vector_add(x.double(), x), "x holds fp64, and the operator takes fp32 or fp16"),
            (lambda: ops.sum(x.cfloat()), "x holds complex64, and the operator takes fp32 or fp16"),
            (lambda: ops.choose(x, x), "choice holds fp32, and the operator takes i32"),
        ):
            with pytest.raises(TypeError, match=message):
                call()


def test_requirements_are_checked_where_calls_are_traced(ops, by_torch) -> None:
    FakeTensorMode = importlib.import_module("torch._subclasses").FakeTensorMode

    with FakeTensorMode() as mode:
        for size in (7, 1000, 1002):
            x = mode.from_tensor(torch.randn(size))
            with pytest.raises(RuntimeError, match=r"pick\(\): sizes are even, and not large"):
                ops.pick(x, x.int())
        wide = mode.from_tensor(torch.randn(2, 300))
        with pytest.raises(RuntimeError, match=r"layer_norm\(\): rows have more than 256 elements"):
            ops.layer_norm(wide, wide[0], wide[0])

    def into(x, weight):
        y = torch.empty_like(x)
        ops.layer_norm(x, weight, weight, y=y)
        return y

    x, weight = torch.randn(3, 8), torch.randn(8)
    compiled = torch.compile(into, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(x, weight), _layer_norm(x, weight, weight, 1e-5)[0])


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_tensor_is_refused_by_name(ops, by_torch, layout) -> None:
    x = torch.eye(3)
    for arguments, keywords, name in (
        ((getattr(x, layout)(), x), {}, "x"),
        ((x, getattr(x, layout)()), {}, "y"),
        ((x, getattr(x, layout)().requires_grad_()), {}, "y"),
        ((x, getattr(x, layout)()), {"out": x.clone()}, "y"),
    ):
        with pytest.raises(TypeError, match=rf"vector_add\(\): {name} is a sparse tensor"):
            by_torch.call_vector_add(*arguments, keywords.get("out"), None)
    for call in (ops.vector_add, lambda x, y: ops.launch.vector_add(x, y, y, 9)):
        with pytest.raises(TypeError, match=r"vector_add\(\): x is a sparse tensor"):
            call(getattr(x, layout)(), x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda t, x: t.call_vector_add(x, x, None, None).sum().backward(),
            NotImplementedError,
            "has no gradient",
        ),
        (
            lambda t, x: t.call_vector_add(x, x, torch.empty_like(x), None),
            RuntimeError,
            "don't support automatic diff",
        ),
        (lambda t, x: t.call_vector_add(x, x, None, 7), TypeError, "stream= is not taken where torch traces"),
        (
            lambda t, x: torch.vmap(lambda one: t.call_vector_add(one, one, None, None))(x.detach()),
            RuntimeError,
            "has no rule for vmap",
        ),
    ],
)
def test_what_is_refused(by_torch, call, error, message) -> None:
    with pytest.raises(error, match=message):
        call(by_torch, torch.randn(3, 8, requires_grad=True))


def test_tensors_on_the_cpu_are_refused_by_name(ops) -> None:
    with pytest.raises(ValueError, match=r"x is not on a CUDA device; move it there with x.cuda\(\)"):
        ops.vector_add(torch.randn(3), torch.randn(3))


def test_explain_reads_tensors_of_torch(ops, capsys) -> None:
    x = torch.randn(3, 8, dtype=torch.float16)
    ops.explain(ops.vector_add, x, x, arch="sm_90")
    assert "dtype=fp16 BLOCK=1024 num_warps=4 num_stages=3: taken" in capsys.readouterr().out
