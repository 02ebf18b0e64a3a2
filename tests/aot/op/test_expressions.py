"""Expressions of operators: what they may say, and what they are in C."""

from __future__ import annotations

import pytest

from kbuild.aot.op.expressions import OpScope, parse, to_c
from kbuild.errors import ManifestError

SCOPE = OpScope(
    ["Z", "H", "D"],
    {"causal": "bool", "eps": "float", "mode": "str"},
    {"q": ["Z", "H", "D"]},
    ["bias"],
    ["BLOCK"],
)


@pytest.mark.parametrize(
    ("text", "kind", "in_c"),
    [
        ("Z * H", "int", "multiply(Z, H, fault)"),
        ("stride(q, H)", "int", "stride__q__H"),
        ("given(bias)", "int", "given__bias"),
        ("aligned(q)", "int", "aligned__q"),
        ("cdiv(D, BLOCK)", "int", "ceiling_divide(D, BLOCK, fault)"),
        ("causal", "bool", "causal"),
        ("D ** -0.5", "float", "(1.0 / __builtin_sqrt((double)(D)))"),
        ("1 / (D * eps)", "float", "((double)(INT64_C(1)) / ((double)(D) * eps))"),
        ("eps ** 2", "float", "power(eps, 2)"),
        ("sqrt(D) if causal else 1.0", "float", "(causal != 0 ? __builtin_sqrt((double)(D)) : (1.0))"),
    ],
)
def test_kinds_and_c(text, kind, in_c) -> None:
    expression = parse(text, SCOPE, "here")
    assert expression.kind == kind
    assert to_c(expression, lambda name: name, lambda name: name if name == "eps" else None) == in_c


def test_what_it_names_is_known() -> None:
    expression = parse("stride(q, H) * BLOCK", SCOPE, "here")
    assert expression.strides == (("q", "H"),) and expression.constants == ("BLOCK",)
    assert parse("mode", SCOPE, "here").kind == parse("'relu'", SCOPE, "here").kind == "str"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("D **", "is not an expression"),
        ("stride(q, N)", "q has no dimension N"),
        ("stride(q)", "stride takes a tensor and one of its dimensions"),
        ("given(q)", "given takes an optional tensor"),
        ("aligned(D)", "aligned takes a tensor"),
        ("D ** eps", 'unknown exponent "eps"'),
        ("D if eps else 2.0", 'unknown name "eps"'),
        ("__import__('os')", 'unknown function "__import__"'),
        ("1e999", "is not a finite number"),
        ("eps @ 2", "is not a number"),
    ],
)
def test_mistakes(text, message) -> None:
    with pytest.raises(ManifestError, match=message.replace("(", r"\(")):
        parse(text, SCOPE, "here")
