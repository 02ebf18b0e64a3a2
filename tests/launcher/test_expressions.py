"""Expressions of the manifest: the C form equals the Python form, and other text is refused."""

import ctypes
import random
import re
import subprocess

import pytest

from kbuild.aot.files import templates_directory
from kbuild.aot.manifest import expressions
from kbuild.errors import ManifestError

NAMES = ("a", "b", "c")
EDGES = (0, 1, 2, 3, 7, 16, 1000, 2**31 - 1, 2**31, 2**62, 2**63 - 1)


def random_text(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.15:
        return chance.choice([*NAMES, *NAMES, str(chance.choice(EDGES))])
    left, right = random_text(chance, depth - 1), random_text(chance, depth - 1)
    name = chance.choice(NAMES)
    operator = chance.choice(["+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or"])
    forms = [
        f"cdiv({left}, {right})",
        f"min({left}, {right}, {name})",
        f"max({left}, {right})",
        f"abs({left})",
        f"next_power_of_2({left})",
        f"(-{left})",
        f"(not {left})",
        f"({left} if {right} else {name})",
        f"({left} < {name} <= {right})",
        *[f"({left} {operator} {right})"] * 12,
    ]
    return chance.choice(forms)


def helpers() -> str:
    """The arithmetic of the launcher's template, without the tables below it."""
    text = (templates_directory() / "launcher" / "launcher_tables.c.j2").read_text()
    return text[text.index("/* Arithmetic") : text.index("/* The tables. */")]


def test_c_and_python_agree(tmp_path):
    chance = random.Random(7)
    parsed = [expressions.parse(random_text(chance, 4), NAMES, "test") for _ in range(300)]
    functions = "\n".join(
        f"int64_t f{i}(int64_t a, int64_t b, int64_t c, int *fault) {{ (void)a, (void)b, (void)c, (void)fault; "
        f"return {expressions.to_c(expression, str)}; }}"
        for i, expression in enumerate(parsed)
    )
    source = tmp_path / "expressions.c"
    source.write_text(f"#include <stdint.h>\n{helpers()}\n{functions}\n")
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", tmp_path / "e.so", source], check=True)
    library = ctypes.CDLL(str(tmp_path / "e.so"))
    faults = 0
    for i, expression in enumerate(parsed):
        function = getattr(library, f"f{i}")
        function.restype = ctypes.c_int64
        for _ in range(60):
            values = {name: chance.choice((1, -1)) * chance.choice(EDGES) for name in NAMES}
            fault = ctypes.c_int(0)
            result = function(*(ctypes.c_int64(values[name]) for name in NAMES), ctypes.byref(fault))
            try:
                expected = expressions.evaluate(expression, values)
            except expressions.ExpressionFault:
                faults += 1
                assert fault.value, (expression.text, values)
            else:
                assert (result, fault.value) == (expected, 0), (expression.text, values)
    assert 0 < faults < 10_000


def test_values():
    values = {"n": 1000, "BLOCK": 128}
    for text, expected in (
        ("cdiv(n, BLOCK)", 8),
        ("triton.cdiv(n, BLOCK) * 2", 16),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("cdiv(-7, 2)", -3),
        ("512 < n <= 1024", 1),
        ("n % 16 == 0 and n > 2000", 0),
        ("next_power_of_2(n)", 1024),
        ("True + 1", 2),
    ):
        assert expressions.evaluate(expressions.parse(text, values, "test"), values) == expected, text


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        ("next_power_of_2(n)", 0, 1),
        ("next_power_of_2(n)", -5, 1),
        ("next_power_of_2(n)", 1, 1),
        ("next_power_of_2(n)", 2, 2),
        ("next_power_of_2(n)", 3, 4),
        ("next_power_of_2(n)", 2**62, 2**62),
        ("next_power_of_2(n)", 2**62 + 1, None),
        ("next_power_of_2(n)", 2**63 - 1, None),
        ("abs(n)", -(2**63), None),
        ("-n", -(2**63), None),
        ("n + 1", 2**63 - 1, None),
        ("n - 1", -(2**63), None),
        ("n * 2", 2**62, None),
        ("n // -1", -(2**63), None),
        ("cdiv(n, -1)", -(2**63), None),
        ("n % -1", -(2**63), 0),
        ("n // 0", 1, None),
        ("n % 0", 1, None),
        ("cdiv(n, 0)", 1, None),
    ],
)
def test_edges_in_c_and_in_python(tmp_path, text, n, expected):
    """None: the true result does not fit 64 bits."""
    parsed = expressions.parse(text, ("n",), "test")
    try:
        found = expressions.evaluate(parsed, {"n": n})
    except expressions.ExpressionFault:
        found = None
    assert found == expected
    source = tmp_path / "edge.c"
    function = (
        f"int64_t edge(int64_t n, int *fault) {{ (void)fault; return {expressions.to_c(parsed, str)}; }}"
    )
    source.write_text(f"#include <stdint.h>\n{helpers()}\n{function}\n")
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", tmp_path / "e.so", source], check=True)
    edge, fault = ctypes.CDLL(str(tmp_path / "e.so")).edge, ctypes.c_int(0)
    edge.restype = ctypes.c_int64
    result = edge(ctypes.c_int64(n), ctypes.byref(fault))
    assert (None if fault.value else result) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n +", '"n +" is not an expression'),
        ("m * 2", 'unknown name "m"'),
        ("n / 2", 'unknown operator in "n / 2"'),
        ("n ** 2", "unknown operator"),
        ("exit(n)", 'unknown function "exit"'),
        ("n.__class__", "is not an integer expression"),
        ("cdiv(n)", "cdiv takes 2 arguments, not 1"),
        ("min(n, *n)", "is not an integer expression"),
        ("cdiv(n, BLOCK=3)", "is not an integer expression"),
        ("n is 3", "unknown comparison"),
        ("1.5 * n", "is not an integer expression"),
        ("'n'", "is not an integer expression"),
        (str(2**63), "does not fit 64 bits"),
        ("n < n + 1 < n", "goes through a name or a number"),
        ("(" * 300 + "n" + ")" * 300, "is not an expression"),
        ("n" * 1001, "1001 characters"),
        ("n\0", "is not an expression"),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(ManifestError, match=re.escape(message)) as caught:
        expressions.parse(text, ("n", "BLOCK"), 'kernel "f": grid[0]')
    assert caught.value.message.startswith('kernel "f": grid[0]: ')
