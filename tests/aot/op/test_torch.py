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
    return (x - mean[..., None]) * rstd[..., None] * weight + bias, mean, rstd


@pytest.fixture(scope="module")
def by_torch(ops) -> ModuleType:
    """The module of torch's operators; tensors of the CPU go there, where a launch refuses them."""
    run = ops._launcher._run
    run.vector_add, run.layer_norm = _add, _layer_norm
    run.sum = lambda x, out, stream: x.sum()
    return importlib.import_module(f"{ops.__name__}._torch")


def test_opcheck_is_clean(ops, by_torch) -> None:
    x, y = torch.randn(2, 3, 8)
    operators = getattr(torch.ops, ops.__name__)
    torch.library.opcheck(operators.vector_add.default, (x, y))
    torch.library.opcheck(operators.vector_add.out, (x, y), {"out": torch.empty_like(x)})
    torch.library.opcheck(operators.layer_norm.default, (x, y[0], y[1], 1e-5))
    torch.library.opcheck(operators.sum.default, (x,))


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda t, x: t.vector_add(x, x, None, None).sum().backward(),
            NotImplementedError,
            "has no gradient",
        ),
        (
            lambda t, x: t.vector_add(x, x, torch.empty_like(x), None),
            RuntimeError,
            "don't support automatic diff",
        ),
        (lambda t, x: t.vector_add(x, x, None, 7), TypeError, "stream= is not taken where torch traces"),
        (
            lambda t, x: torch.vmap(lambda one: t.vector_add(one, one, None, None))(x.detach()),
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
