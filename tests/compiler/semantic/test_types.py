"""The types of results: Triton's lattice, and C's conversions."""

import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.types import element_of
from kbuild.compiler.ops.elementwise import CmpI
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME
from kbuild.errors import KbuildError


@kbuild.jit
def operation(out, x, y, which: tl.constexpr):
    if which == "+":
        z = x + y
    elif which == "/":
        z = x / y
    elif which == "//":
        z = x // y
    elif which == "%":
        z = x % y
    elif which == "&":
        z = x & y
    elif which == "max":
        z = tl.maximum(x, y)
    elif which == "where":
        z = tl.where(True, x, y)
    else:
        z = x < y
    tl.static_assert(z.dtype == out.dtype.element_ty, f"{z.dtype}")
    tl.store(out, z)


def result(which, x, y):
    """The type of `x which y`, where numbers stand for themselves."""
    signature = {name: value for name, value in (("x", x), ("y", y)) if isinstance(value, str)}
    constexprs = {name: value for name, value in (("x", x), ("y", y)) if not isinstance(value, str)}
    for name in BY_SIGNATURE_NAME:
        if name == "u1":
            continue
        try:
            build_module(operation, {"out": f"*{name}", **signature}, {"which": which, **constexprs})
        except KbuildError as error:
            if "static_assert failed" not in error.message:
                return error.message
        else:
            return name
    raise AssertionError("no type")


@pytest.mark.parametrize(
    ("which", "x", "y", "type_"),
    [
        # One of them rules: fp64, fp32, fp16; bf16 stays alone.
        ("+", "fp64", "fp32", "fp64"),
        ("+", "fp32", "fp16", "fp32"),
        ("+", "fp16", "bf16", "fp16"),
        ("+", "bf16", "bf16", "bf16"),
        ("+", "bf16", "i32", "fp32"),
        ("+", "fp16", "i64", "fp16"),
        ("+", "fp32", "i8", "fp32"),
        # Half precision divides in fp32, integers divide as fp32.
        ("/", "fp16", "fp16", "fp32"),
        ("/", "bf16", "bf16", "fp32"),
        ("%", "fp16", "fp16", "fp32"),
        ("/", "i32", "i32", "fp32"),
        ("/", "fp64", "i8", "fp64"),
        # C's conversions of integers.
        ("+", "i8", "i32", "i32"),
        ("+", "u8", "i32", "i32"),
        ("+", "u32", "i32", "u32"),
        ("+", "u32", "i64", "i64"),
        ("+", "u64", "i8", "u64"),
        ("&", "i16", "u16", "u16"),
        ("+", "i1", "i32", "i32"),
        ("//", "i64", "i32", "i64"),
        # Python numbers take the other's type where their kind allows.
        ("+", "i8", 1, "i8"),
        ("+", "fp16", 1, "fp16"),
        ("+", "bf16", 2.5, "bf16"),
        ("+", "i32", 2.5, "fp32"),
        ("+", "i64", True, "i64"),
        ("/", "fp16", 2, "fp32"),
        (" <", "fp16", 0.5, "i1"),
        ("where", "bf16", 0.0, "bf16"),
        ("/", "bf16", 2, "fp32"),
        ("/", "bf16", 0.5, "fp32"),
        ("%", "bf16", 3.0, "fp32"),
        ("/", "fp64", 2, "fp64"),
        ("where", "i1", 1, "i32"),
        ("+", "i1", 1, "i32"),
        # Maximum knows no bf16, and its numbers are fp32 and int32.
        ("max", "bf16", "bf16", "fp32"),
        ("max", "fp16", 0.0, "fp32"),
        ("max", "i64", 0, "i64"),
        ("max", "u8", 5, "i32"),
    ],
)
def test_type_of_result(which, x, y, type_):
    assert result(which, x, y) == type_


@pytest.mark.parametrize(
    ("which", "x", "y", "message"),
    [
        ("//", "i32", "u32", "int32 and uint32 differ in sign"),
        ("%", "u64", "i64", "uint64 and int64 differ in sign"),
        ("//", "fp32", "fp32", "`//` is not defined for fp32"),
        ("&", "fp32", "i32", "`&` is not defined for fp32"),
        ("+", "i8", 300, "the number 300 does not fit int8"),
        ("+", "u32", -1, "the number -1 is negative"),
        ("+", "fp8e4nv", "fp8e4nv", "`+` is not defined for fp8e4nv"),
    ],
)
def test_operations_without_a_type(which, x, y, message):
    assert message in result(which, x, y)


@kbuild.jit
def literals(out):
    tl.static_assert(tl.to_tensor(2**31 - 1).dtype == tl.int32)
    tl.static_assert(tl.to_tensor(2**31).dtype == tl.uint32)
    tl.static_assert(tl.to_tensor(2**32).dtype == tl.int64)
    tl.static_assert(tl.to_tensor(-(2**31) - 1).dtype == tl.int64)
    tl.static_assert(tl.to_tensor(2**63).dtype == tl.uint64)
    tl.static_assert(tl.to_tensor(True).dtype == tl.int1)
    tl.static_assert(tl.to_tensor(1.5).dtype == tl.float32)
    tl.static_assert(tl.to_tensor(1e300).dtype == tl.float64)
    tl.static_assert(tl.to_tensor(float("inf")).dtype == tl.float32)
    tl.store(out, 1)


def test_types_of_literals():
    build_module(literals, {"out": "*i32"}, {})


@kbuild.jit
def signed_and_unsigned(out, s, u, i1):
    a = (s // 3) + (s % 3) + (s >> 1)
    b = (u // 3) + (u % 3) + (u >> 1)
    c = (s < 2) & (u < 2)
    tl.store(out, a.to(tl.int64) + b.to(tl.int64) + c)
    tl.store(
        out, tl.maximum(s, 1) + tl.maximum(u.to(tl.uint32), u).to(tl.int64) + u.to(tl.float32).to(tl.int64)
    )


def test_sign_chooses_the_operation():
    module = build_module(signed_and_unsigned, {"out": "*i64", "s": "i32", "u": "u32", "i1": "*i1"}, {})
    names = {op.op_name for op in module.kernel.body}
    predicates = {op.predicate for op in module.kernel.body if isinstance(op, CmpI)}
    pairs = [
        ("div", "si", "ui"),
        ("rem", "si", "ui"),
        ("shr", "si", "ui"),
        ("ext", "si", "ui"),
        ("max", "si", "ui"),
    ]
    assert all(f"arith.{name}{sign}" in names for name, *signs in pairs for sign in signs)
    assert predicates == {"slt", "ult"} and "arith.uitofp" in names
    assert str(element_of(module.kernel.arguments[3].type)) == "!tt.ptr<i8>"
