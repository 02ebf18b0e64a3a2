"""Expressions of operators: what they may say, and what they are in C."""

from __future__ import annotations

import re

import pytest

from kbuild.aot.op.expressions import OpScope, parse, to_c, to_conditions, to_python
from kbuild.errors import ManifestError

SCOPE = OpScope(
    ["Z", "H", "D", "B"],
    {"causal": "bool", "eps": "float", "mode": "str"},
    {"q": ["Z", "H", "D"], "square": ["D", "D"]},
    ["bias"],
    ["BLOCK"],
    {"B": ["bias"]},
)


@pytest.mark.parametrize(
    ("text", "kind", "in_c"),
    [
        ("Z * H", "int", "multiply(Z, H, fault)"),
        ("stride(q, H)", "int", "stride__q__H"),
        ("given(bias)", "int", "given__bias"),
        ("B if given(bias) else 1", "int", "(given__bias != 0 ? B : INT64_C(1))"),
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


@pytest.mark.parametrize(
    ("text", "in_python"),
    [
        ("cdiv(D, 2) * 2", "_cdiv(D, 2) * 2"),
        ("tl.cdiv(D, 2)", "_cdiv(D, 2)"),
        ("Z or 1", "1 if Z or 1 else 0"),
        ("(Z == 1) + -H", "(1 if Z == 1 else 0) + -H"),
        ("H if not Z else 1", "H if (1 if not Z else 0) else 1"),
    ],
)
def test_python_has_the_numbers_of_c(text, in_python) -> None:
    """Shapes for tracing are computed in Python, and those of a launch in C."""
    assert to_python(parse(text, SCOPE, "here")) == in_python


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("D % 8 == 0", ["D % 8 == 0"]),
        ("D < 9 and (H > 1 and Z)", ["D < 9", "H > 1", "(Z) != 0"]),
        (
            "D == 1 or (H == 1) == Z",
            ["(1 if (1 if D == 1 else 0) or (1 if (1 if H == 1 else 0) == Z else 0) else 0) != 0"],
        ),
        ("0 < D < cdiv(H, 2)", ["(1 if 0 < D < _cdiv(H, 2) else 0) != 0"]),
    ],
)
def test_conditions_of_symbols_stay_comparisons(text, conditions) -> None:
    assert to_conditions(parse(text, SCOPE, "here")) == conditions


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
        ("D if eps else 2.0", '"eps" is no condition in'),
        ("__import__('os')", 'unknown function "__import__"'),
        ("1e999", "is not a finite number"),
        ("eps @ 2", "is not a number"),
        ("eps > 0", '"eps > 0" is no condition'),
        ("mode == 'relu'", '"mode" is a word in'),
        ("stride(square, D)", "square has 2 dimensions D in"),
        ("stride(q, H, axis=1)", "stride takes a tensor and one of its dimensions"),
        ("given(bias, 1)", "given takes an optional tensor"),
        ("given__bias", "unknown name"),
        ("B + 1", 'B is known only where bias is given in "B + 1"'),
        ("D // 0", '"D // 0" divides by zero'),
        ("1.5 / 0", '"1.5 / 0" divides by zero'),
        ("cdiv(D, 0)", '"cdiv(D, 0)" divides by zero'),
        ("D ** True", 'unknown exponent "True"'),
        ("D ** 1e999", 'unknown exponent "1e309"'),
        ("D\n+ 1", '"D\\n+ 1" is not an expression'),
        ("-" * 60 + "D", "are nested 62 deep; 50 are allowed"),
        ("f(x=" + "-" * 60 + "D)", "are nested 64 deep; 50 are allowed"),
        ("-" * 1001 + "D", "the expression has 1002 characters; 1000 are allowed"),
    ],
)
def test_mistakes(text, message) -> None:
    with pytest.raises(ManifestError, match=re.escape(message)):
        parse(text, SCOPE, "here")
