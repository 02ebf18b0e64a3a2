"""What runs while compiling: functions on constants, and the constants of modules."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.frontend.sources.digest import source_digest
from kbuild.errors import KbuildError

MODULE = """\
import enum
import math
import torch
import triton
import triton.language as tl
from typing import NamedTuple

class Tile(NamedTuple):
    rows: int
    columns: int

class Mode(enum.IntEnum):
    FIRST = 3
    SECOND = enum.auto()

class Sizes:
    BLOCK = 64
    HALF = BLOCK_OF_HALF = 32

def halvings(n):
    found = []
    while True:
        if n <= 1:
            break
        found.append(n)
        n //= 2
    return found

def squares(count, *, skip=()):
    return {i: i * i for i in range(count) if i not in skip}

def lowest(names):
    limits = {name: torch.finfo(getattr(torch, name)).min for name in names}
    return min(limits.values())

def endless():
    n = 1
    while n:
        n += 1
    return n

def growing(n):
    for _ in range(64):
        n = n + n if isinstance(n, list) else n * n
    return n

def refused(n):
    if n > 3:
        raise ValueError(f"{n} is too much")
    return n

@tl.constexpr
def doubled(x):
    return 2 * x

@triton.constexpr_function
def evaluate(text):
    stack = []
    for word in text.split():
        try:
            stack.append(int(word))
        except ValueError:
            right, left = stack.pop(), stack.pop()
            stack.append({"+": lambda a, b: a + b, "*": lambda a, b: a * b}[word](left, right))
    assert len(stack) == 1, "the text is one expression"
    return stack[0]

@triton.constexpr_function
def aliased():
    first = [1]
    second = first
    second.append(2)
    second += [3]
    return len(first)

@triton.constexpr_function
def longest(words):
    def size(word):
        return len(word) - offset
    offset = 1
    return sorted(words, key=size)[-1]

@triton.constexpr_function
def first_free(used):
    for candidate in range(100):
        if candidate in used:
            continue
        break
    else:
        return -1
    return candidate

@triton.constexpr_function
def caught(values, index):
    try:
        return values[index]
    except (IndexError, KeyError):
        return -1
    finally:
        values = None

@triton.jit
def k(out):
    {body}
"""


def stored(folder: Path, value: str, constant: str = "", count: int = 1) -> list[float]:
    """What a kernel stores of a value known while compiling, with a constant of its module."""
    body = "\n    ".join([f"value: tl.constexpr = {value}", "tl.store(out, value)"])
    (folder / "k.py").write_text(
        MODULE.replace("{body}", body).replace("@triton.jit\n", f"{constant}\n\n@triton.jit\n")
    )
    out = np.zeros(count, np.float32)
    interp.run(build_module(f"{folder}/k.py:k", {"out": "*fp32"}, {}), {"out": out})
    return out.tolist()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("doubled(4)", 8),
        ("evaluate('2 3 4 * +')", 14),
        ("aliased()", 3),
        ("len(longest(('a', 'bcd', 'ef')))", 3),
        ("first_free((0, 1, 3))", 2),
        ("first_free(tuple(range(100)))", -1),
        ("caught((1, 2), 5)", -1),
        ("caught((1, 2), 1)", 2),
    ],
)
def test_functions_that_run_while_compiling(tmp_path: Path, value: str, expected: float) -> None:
    assert stored(tmp_path, value) == [expected]


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ("len(halvings(1024))", 10),
        ("[len(halvings(n)) for n in (2, 4, 8)][2]", 3),
        ("squares(5, skip=(3,))[4]", 16),
        ("sum(i * i for i in range(4))", 14),
        ("int(f'{len(halvings(8)):03d}1')", 31),
        ("lowest(('float16', 'float32'))", np.finfo(np.float32).min),
        ("Mode.SECOND", 4),
        ("Mode.SECOND.value + Sizes.BLOCK", 68),
        ("Sizes.HALF", 32),
        ("max([1, 5, 3], key=lambda v: -v)", 1),
        ("Tile(rows=2, columns=3).columns", 3),
        ("tuple(reversed(halvings(8)))[0]", 2),
    ],
)
def test_constants_of_modules_are_computed(tmp_path: Path, constant: str, expected: float) -> None:
    assert stored(tmp_path, "VALUE", f"VALUE = tl.constexpr({constant})") == [np.float32(expected)]


@pytest.mark.parametrize(
    ("value", "constant", "message"),
    [
        ("evaluate('2 3')", "", "assertion failed while compiling: the text is one expression"),
        ("evaluate('2 3 ?')", "", r"k.py:64:26: error: .*\?"),
        ("VALUE", "VALUE = tl.constexpr(endless())", "does not end within 1000000 steps"),
        ("VALUE", "VALUE = tl.constexpr(growing([1]))", "the result may have more than 1000000 items"),
        ("VALUE", "VALUE = tl.constexpr(growing(3))", "the result has more than 4096 bits"),
        (
            "VALUE",
            "VALUE = tl.constexpr(refused(4))",
            "`VALUE` is not available while compiling: ValueError: 4 is too",
        ),
        (
            "VALUE",
            "VALUE = tl.constexpr(sum(range(10**12)))",
            "has too many numbers to be counted while compiling",
        ),
        (
            "Sizes.BLOCK",
            "",
            r"`Sizes` is a variable of the module .*\n.*\n.*\nhelp: .*tl.constexpr\(Sizes.SIZE\)",
        ),
    ],
)
def test_mistakes_in_what_runs_while_compiling(
    tmp_path: Path, value: str, constant: str, message: str
) -> None:
    with pytest.raises(KbuildError, match=message):
        stored(tmp_path, value, constant)


def test_a_module_is_not_run_for_its_constants(tmp_path: Path) -> None:
    assert stored(tmp_path, "VALUE", "raise SystemExit\nVALUE = tl.constexpr(len(halvings(4)))") == [2]


def test_a_constant_that_changes_changes_the_digest(tmp_path: Path) -> None:
    digests = set()
    for limit in (4, 8):
        stored(tmp_path, "VALUE", f"VALUE = tl.constexpr(len(halvings({limit})))")
        digests.add(source_digest(f"{tmp_path}/k.py", "k"))
    assert len(digests) == 2


@kbuild.jit
def annotated(out, n):
    twice: tl.constexpr = 2 * n
    tl.store(out, twice)


def test_an_annotation_does_not_make_a_constant_of_a_value_of_run_time() -> None:
    out = np.zeros(1, np.int32)
    annotated.interpret[1](out, 21)
    assert out.tolist() == [42]


@kbuild.constexpr_function
def factors(n):
    found = {}
    divisor = 2
    while n > 1:
        while n % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            n //= divisor
        divisor += 1
    return max(found), math.prod(key**power for key, power in found.items())


@kbuild.jit
def live(out, N: tl.constexpr):
    tl.store(out, factors(N)[0])
    tl.store(out + 1, factors(N)[1])


def test_a_live_function_means_the_same_as_in_python() -> None:
    out = np.zeros(2, np.int32)
    live.interpret[1](out, N=360)
    assert tuple(out) == factors(360) == (5, 360)
