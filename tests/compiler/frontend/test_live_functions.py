"""Functions of a program that runs: their names mean what they are bound to, wherever their source lies."""

import collections
import linecache
import math
import types

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.compiler.frontend.sources.files import load_module
from kbuild.errors import KbuildError

WIDTH = tl.constexpr(4)
HALF, TABLE, SIZES = tl.constexpr(0.5), tl.constexpr({"a": 1, "b": (2, 3)}), tl.constexpr([4, 8])
Pair = collections.namedtuple("Pair", "first second")
sqrt, exponential, wide = math.sqrt, tl.exp, tl.float64
tools = types.ModuleType("tools")
vars(tools).update(FOUR=tl.constexpr(4), same=tl.exp)
PLAIN, OBJECT, BROKEN = 4, object(), tl.constexpr("\ud800")


class Wrapped:
    """As `triton.autotune` wraps a function."""

    def __init__(self, fn):
        self.fn = fn


def decorated(fn):
    return fn


@Wrapped
@kbuild.jit
def twice(x):
    return 2 * x


@kbuild.constexpr_function
def next_size(n):
    return n * 2


@kbuild.jit
def names(out):
    pair = Pair(1.0, second=HALF)
    tl.store(out, WIDTH + TABLE["b"][1] + SIZES[1])
    tl.store(out + 1, twice(pair.first) + pair.second)  # pyright: ignore[reportCallIssue]  what it wraps
    tl.store(out + 2, sqrt(16.0) + math.floor(2.5) + exponential(0.0) + tools.same(0.0))
    tl.store(out + 3, tl.full((), tools.FOUR, wide).to(tl.float32) + next_size(WIDTH))


def test_names_mean_what_they_are_bound_to():
    out = np.zeros(4, np.float32)
    names.interpret[1](out)
    assert out.tolist() == [15, 2.5, 8, 12]


def made(offset):
    @kbuild.jit
    def of_a_closure(out):
        tl.store(out, offset + 1)

    return of_a_closure


def test_a_closure_has_its_values():
    out = np.zeros(1, np.float32)
    made(tl.constexpr(6)).interpret[1](out)
    assert out[0] == 7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PLAIN", "`PLAIN` is a variable of the module"),
        ("OBJECT", "OBJECT is a object, which has no meaning in a kernel"),
        ("BROKEN", "is not text: it has half of a surrogate pair"),
        ("tools.missing", "tools has no missing"),
        ("math.missing", "missing"),
        ("nowhere", "`nowhere` is not defined"),
    ],
)
def test_names_that_mean_nothing_in_a_kernel(name, message):
    with pytest.raises(KbuildError, match=message):
        build_module(typed(f"def k(out):\n    tl.store(out, {name})\n"), {"out": "*fp32"}, {})


def typed(text, file="<typed 1>"):
    """The function `k` of a text that lies in no file, as in an interactive session."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = dict(globals())
    exec(compile(text, file, "exec"), namespace)
    return namespace["k"]


def test_the_lines_of_a_function_that_lies_in_no_file():
    kernel = typed("\n\n@kbuild.jit\ndef k(out):\n    tl.store(out, 7.0)\n    tl.load(out, mask=4)\n")
    with pytest.raises(KbuildError) as caught:
        build_module(kernel, {"out": "*fp32"}, {})
    assert "<typed 1>:6:23: error" in str(caught.value) and "tl.load(out, mask=4)" in str(caught.value)
    module = build_module(typed("\n\n\ndef k(out):\n    tl.store(out, 7.0)\n"), {"out": "*fp32"}, {})
    (store,) = (op for op in module.kernel.body if op.op_name == "tt.store")
    assert store.loc is not None and store.loc.line == 5


class JITFunction:
    """As Triton keeps a function, whose text may be replaced."""

    def __init__(self, fn, src):
        self.fn, self.src = fn, src
        self.raw_src = ["    @decorated\n", "    def replaced(out):\n", "        tl.store(out, NUMBER)\n"]


@decorated
def replaced(out):
    tl.store(out, NUMBER)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@pytest.mark.parametrize("number", ["WIDTH + 3", "tl.load(out, mask=4)"])
def test_a_text_that_was_replaced_is_what_is_compiled(number):
    kernel = JITFunction(replaced, f"def replaced(out):\n    tl.store(out, {number})\n")
    line = replaced.__code__.co_firstlineno + 2
    if "load" in number:
        with pytest.raises(KbuildError, match=rf"test_live_functions\.py:{line}:37: error"):
            build_module(kernel, {"out": "*fp32"}, {})
        return
    (store,) = (
        op for op in build_module(kernel, {"out": "*fp32"}, {}).kernel.body if op.op_name == "tt.store"
    )
    assert store.loc is not None and store.loc.line == line


def test_a_text_that_is_as_written_is_looked_up_in_its_file():
    kernel = JITFunction(replaced, "def replaced(out):\n    tl.store(out, NUMBER)\n")
    with pytest.raises(KbuildError, match="`NUMBER` is not defined"):
        build_module(kernel, {"out": "*fp32"}, {})
    kernel.src = kernel.src.replace("NUMBER", "2.0")
    assert build_module(kernel, {"out": "*fp32"}, {}).kernel is not None


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda: eval("lambda out: None"), "is not available.*"),
        (lambda: 7, "7 is not a function and has no .fn that leads to one"),
        (lambda: typed("k = lambda out: None\n"), "is not written with def"),
    ],
)
def test_what_is_not_a_function_with_a_source(kernel, message):
    with pytest.raises(KbuildError, match=message):
        build_module(kernel(), {"out": "*fp32"}, {})


Function = collections.namedtuple("Function", "fn captured")


@kbuild.jit
def plus(x, y):
    return x + y


def applying(function, captured):
    closure, table = tl.constexpr(Function(function, captured)), tl.constexpr((tl.exp, plus))

    @kbuild.jit
    def applied(out, n):
        tl.store(out, closure.fn(n, *closure.captured))
        tl.store(out + 1, table[1](n, table[0](0.0)))

    return applied


@pytest.mark.parametrize(("function", "expected"), [(tl.maximum, 8), (tl.cdiv, 1), (plus, 13)])
def test_functions_are_values(function, expected):
    out = np.zeros(2, np.float32)
    applying(function, (8,)).interpret[1](out, 5)
    assert out.tolist() == [expected, 6]


def test_functions_of_a_file_are_found_wherever_a_statement_may_be(tmp_path):
    path = tmp_path / "places.py"
    path.write_text(
        "class A:\n    def a(): pass\n"
        "def b():\n    def c(): pass\n"
        "try:\n    def d(): pass\nexcept E:\n    def e(): pass\nelse:\n    def f(): pass\nfinally:\n    def g(): pass\n"
        "for i in x:\n    with y:\n        def h(): pass\nelse:\n    def i(): pass\n"
        "match z:\n    case 1:\n        def j(): pass\n"
        "async def k():\n    def l(): pass\n"
        "if (lambda: 0)():\n    pass\nelif w:\n    def m(): pass\n"
    )
    assert sorted(name for name, _ in load_module(str(path)).functions) == list("abcdefghijlm")
