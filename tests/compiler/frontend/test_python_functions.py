"""Python's functions and expressions in kernels: of constants, of a tuple with values of run time (n is 3),
and of tensors."""

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(out, n):
    tl.store(out, {})
"""
AS_IN_PYTHON = [
    "len((1, 2, n)) + len('four')",
    "int('12') + int(2.5)",
    "int(n * 2.5)",
    "float('1.5') + float(2)",
    "float(n) / 2",
    "bool(0) + int(bool(n)) + bool('text')",
    "max(n, 7, 2)",
    "max((1, 5))",
    "min(n, 2)",
    "min((n, 2, 4))",
    "abs(-n) + abs(-1.5)",
    "sum((1, 2, 3))",
    "sum((1, 2), 10)",
    "round(2.6) + round(2.345, 1)",
    "divmod(17, 5)[1]",
    "any((0, 1)) + 2 * all((1, 0))",
    "any((0, 0)) + 2 * all((1, 1))",
    "tuple((1, n))[1]",
    "list((4, n))[0]",
    "list(range(2, 8, 3))[1] * tuple(range(1, 4))[-1]",
    "[a * b for a, b in zip((1, 2), (n, 4))][1]",
    "[i * x for i, x in enumerate((5, 6, 7))][2]",
    "[i + x for i, x in enumerate((5, 6), 10)][1]",
    "isinstance(n, int) * 0 + isinstance(2, (float, int))",
    "isinstance('a', int) + 2 * isinstance((1,), tuple)",
    "(str(2) + 'x' == '2x') + 2 * ('abc'[1] == 'b')",
    "1 < n < 5",
    "1 < n < 3",
    "0 < 2 < 5",
    "0 < 2 < 1",
    "(not n) + 2 * (not 0)",
    "n if n > 2 else 0",
    "1.5 if n > 3 else 2.0",
    "(1, *(2, n))[2]",
    "f'{1 + 1}x' == '2x'",
    "(1, 2) == (1, 2)",
    "('a' != 'b') + 2 * ('a' in ('a', 'c'))",
    "None is None",
    "2 ** 3 ** 2 - 7 // 2 + 7 % 4",
    "-(-n) + +n",
    "1_000 + 0x10",
    "(n, 4)[-1] + (1, 2, 3)[1:][0]",
]


def stored(tmp_path, expression: str) -> float:
    """What a kernel stores with n = 3, as fp32."""
    (tmp_path / "k.py").write_text(KERNEL.format(expression))
    module = build_module(f"{tmp_path}/k.py:k", {"out": "*fp32", "n": "i32"}, {})
    out = np.zeros(1, np.float32)
    interp.run(module, {"out": out, "n": 3})
    return out[0].item()


@pytest.mark.parametrize("expression", AS_IN_PYTHON)
def test_means_what_python_means(tmp_path, expression) -> None:
    assert stored(tmp_path, expression) == np.float32(eval(expression, {"n": 3}))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("len(tl.arange(0, 8))", 8),
        ("max(tl.full((), 2.5, tl.float32), 2)", 2.5),
        ("int(tl.full((), 2.5, tl.float32))", 2),
        ("reversed((1, 2, n))[0] + reversed((1, 2))[0]", 5),
        ("hasattr(n, 'dtype') + 2 * hasattr(n, 'missing') + 4 * hasattr(1, 'dtype')", 1),
        ("getattr(n, 'missing', 5)", 5),
        ("(getattr(n, 'dtype') == tl.int32) + 0", 1),
        ("isinstance(n, tl.tensor) + 2 * isinstance(2, tl.constexpr) + 4 * isinstance(n, tl.constexpr)", 3),
        ("isinstance(tl.float32, tl.dtype) + 2 * isinstance(2, tl.dtype)", 1),
        ("tl.constexpr(3).value + tl.constexpr(4)", 7),
        ("n.to(tl.pointer_type(tl.int8)).to(tl.int64)", 3),
        ("(n.to(tl.pointer_type(tl.int8)) + 1).to(tl.pointer_type(tl.int32)).to(tl.int64)", 4),
        ("n.to(tl.pointer_type(tl.int8)).to(tl.int1)", 1),
        ("tl.sum(tl.join(n, 4) * tl.arange(1, 3))", 11),
        ("tl.split(tl.join(n, 4))[1]", 4),
        ("tl.sum(tl.cat(tl.arange(0, 4), tl.arange(4, 8), can_reorder=True) * 2)", 56),
        ("tl.sum(tl.expand_dims(tl.arange(0, 4), (0, -1)).reshape(4))", 6),
        (
            "tl.expand_dims(tl.arange(0, 4), (0, -1)).shape[2] + tl.expand_dims(tl.arange(0, 4), (0, -1)).shape[1]",
            5,
        ),
        ("tl.full((4,), n, tl.int64).dtype == tl.int64", 1),
        ("tl.sum(tl.full((4,), tl.full((1,), 2.0, tl.float32), tl.int32))", 8),
        ("tl.sum(tl.broadcast(tl.arange(0, 4), n)[0])", 6),
        ("tl.item(tl.full((1, 1), 5, tl.int32))", 5),
        ("tl.ravel(tl.zeros((2, 4), tl.int32)).shape[0]", 8),
        ("tl.extra.cuda.num_threads() + tl.extra.cuda.num_warps()", 132),
        ("triton.cdiv(7, 2) + triton.next_power_of_2(5)", 12),
        ("tl.sub(n, 1) + tl.clamp(2.5, 0.0, 1.0)", 3),
        ("tl.fdiv(3.0, n.to(tl.float32)) + tl.div_rn(6.0, 2.0)", 4),
        ("tl.extra.libdevice.popc(7) + tl.extra.libdevice.clz(1) + tl.extra.libdevice.ffs(8)", 3 + 31 + 4),
        ("tl.extra.libdevice.ffs(n - 3)", 0),
        (
            "tl.extra.libdevice.fma(2.0, 3.0, 1.0) + tl.extra.libdevice.fdim(5.0, 2.0) + tl.extra.libdevice.fdim(2.0, 5.0)",
            10,
        ),
        ("tl.extra.libdevice.mulhi(n.to(tl.uint32) << 31, n.to(tl.uint32) * 0 + 4)", 2),
        (
            "tl.extra.libdevice.rint(2.5) + tl.extra.libdevice.nearbyint(3.5) + tl.extra.libdevice.round(2.5)",
            9,
        ),
        ("tl.extra.libdevice.float_as_int(1.0) == 0x3F800000", 1),
        ("tl.extra.libdevice.int_as_float(0x3F800000)", 1),
    ],
)
def test_functions_of_tensors(tmp_path, expression, expected) -> None:
    assert stored(tmp_path, expression) == expected
