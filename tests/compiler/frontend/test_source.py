"""Kernels are found and their names resolved without running a line of their modules."""

import ast
import textwrap

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.compiler.frontend.sources.digest import source_digest
from kbuild.compiler.frontend.sources.files import parse
from kbuild.compiler.frontend.sources.limits import NumberType, finfo, iinfo
from kbuild.errors import KbuildError


@pytest.fixture
def project(tmp_path):
    """Writes files given as path=text, and returns their folder."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/").replace("-init", "/__init__") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return tmp_path

    return write


def stored(source, **constexprs):
    """What the kernel `k(out)` stores, as fp32."""
    module = build_module(f"{source}:k", {"out": "*fp32"}, constexprs)
    out = np.zeros(1, np.float32)
    interp.run(module, {"out": out})
    return out[0]


KERNEL = """
@triton.jit
def k(out):
    tl.store(out, {})
"""


@pytest.mark.parametrize(
    ("imports", "expression"),
    [
        ("import triton\nimport triton.language as tl", "tl.exp(0.0) + 6"),
        ("import triton\nfrom triton import language as tl", "tl.math.exp(0.0) + 6"),
        ("import kbuild as triton\nimport kbuild.language as tl", "tl.core.full([], 7, tl.float32)"),
        (
            "import triton\nimport triton.language as tl\nfrom triton.language.math import exp as e",
            "e(0.0) + 6",
        ),
        (
            "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice",
            "libdevice.pow(7.0, 1.0)",
        ),
        ("import triton\nimport triton.language as tl", "tl.extra.cuda.libdevice.trunc(7.5)"),
        ("import triton\nimport triton.language as tl", "triton.cdiv(13, 2) + 0.0"),
        ("import math\nimport triton\nimport triton.language as tl", "math.sqrt(49.0)"),
        (
            "import triton\nimport triton.language as tl\nX = tl.constexpr(3)\nY: tl.constexpr = 2 * 2",
            "X + Y + 0.0",
        ),
        ("import triton\nimport triton.language as tl\nSIZES = tl.constexpr((3, 4, 7))", "SIZES[2] + 0.0"),
        (
            "import triton\nimport triton.language as tl\nMODE = tl.constexpr('a')",
            "7.0 if MODE == 'a' else no_such_name",
        ),
        ("import triton\nimport triton.language as tl\nsame = tl.exp", "same(0.0) + 6"),
        (
            "import triton\nimport triton.language as tl\ndef plain(x):\n    return x + 4\nfunction = triton.jit(plain)",
            "function(3.0)",
        ),
        (
            "import triton\nfrom triton import jit\nimport triton.language as tl\ndef plain(x):\n    return x + 4\n"
            "f = jit(plain)",
            "f(3.0)",
        ),
        (
            "import triton\nimport triton.language as tl\ndef f(x):\n    return x + 4\nf = triton.jit(f)\n"
            "f = triton.heuristics({'A': lambda args: 1})(f)",
            "f(3.0)",
        ),
        (
            "import triton\nimport triton.language as tl\ndef g(x):\n    return x + 4\n"
            "f = triton.jit(noinline=True)(g)",
            "f(3.0)",
        ),
        (
            "import triton\nfrom collections import namedtuple\nimport triton.language as tl\nPair = namedtuple('Pair', 'a b')",
            "Pair(3, 4).a + Pair(3, b=4).b + 0.0",
        ),
        (
            "import triton\nimport collections\nimport triton.language as tl\nPair = collections.namedtuple('Pair', ['a', 'b'])",
            "Pair(a=3, b=4).a + Pair(3, 4)[1] + 0.0",
        ),
        (
            "import triton\nimport triton.language as tl\n@triton.constexpr_function\ndef twice(x):\n    return 2 * x",
            "twice(3) + 1.0",
        ),
    ],
)
def test_ways_to_name_things(project, imports, expression):
    assert stored(project(kernel=imports + KERNEL.format(expression)) / "kernel.py") == 7


def test_a_kernel_may_be_decorated_by_calls(project):
    text = "import triton\nimport triton.language as tl\ndef k(out):\n    tl.store(out, 7.0)\n"
    for made in (
        "k = triton.jit(k)",
        "k = tune(*SIZES, how=3)(triton.jit(k))",
        "k = triton.jit(k)\nk = tune()(k)",
    ):
        folder = project(kernel=f"from elsewhere import tune\n{text}{made}\n")
        assert stored(folder / "kernel.py") == 7
        (folder / "kernel.py").unlink()


@pytest.mark.parametrize(
    "value",
    [
        "-(-7)",
        "3 + 2 * 2",
        "(3, 7)[1]",
        "[3, 7][-1]",
        "{'a': 3, 'b': 7}['b']",
        "7 if 1 < 2 < 3 else 8",
        "0 or 7",
        "1 and 7",
        "8 if 1 < 2 < 2 else 7",
        "7 or 8",
        "0 and 8 or 7",
        "not 0 and 7",
        "len((1, 2, 3)) + 4",
        "max(3, 7)",
        "min(7, 8)",
        "int('7')",
        "int(7.5)",
        "abs(-7)",
        "2 ** 3 - 1",
        "7 if OTHER == 4 else 8",
        "OTHER + 3",
    ],
)
def test_constants_are_computed_from_the_text(project, value):
    head = "import triton\nimport triton.language as tl\nOTHER = tl.constexpr(4)\n"
    assert (
        stored(project(kernel=f"{head}X = tl.constexpr({value})\n" + KERNEL.format("X + 0.0")) / "kernel.py")
        == 7
    )


LIMITS = """
import numpy as np, torch, triton, triton.language as tl

T = torch.finfo({type})
N = {number}
VALUE = tl.constexpr({value})
"""


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_of_floats_are_those_of_numpy(name):
    """Of libraries that kbuild does not import."""
    found, right = finfo(NumberType(name)), np.finfo(name)
    names = ("bits", "eps", "max", "min", "tiny", "smallest_normal")
    assert [getattr(found, one) for one in names] == [float(getattr(right, one)) for one in names]


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_limits_of_integers_are_those_of_numpy(name):
    found, right = iinfo(NumberType(name)), np.iinfo(name)
    assert (found.bits, found.min, found.max) == (right.bits, right.min, right.max)


def test_limits_of_types_that_numpy_does_not_have():
    """Of the tables of OCP's 8-bit formats, and torch 2.11's `finfo`."""
    limits = {name: finfo(NumberType(name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    assert [one.max for one in limits.values()] == [3.3895313892515355e38, 448.0, 57344.0]
    assert [one.eps for one in limits.values()] == [0.0078125, 0.125, 0.25]
    assert [one.tiny for one in limits.values()] == [2.0**-126, 2.0**-6, 2.0**-14]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("torch.finfo(torch.float32).min", np.finfo("f4").min),
        ("-np.finfo(np.float16).max / 2", -32752.0),
        ("float(torch.iinfo(torch.int8).max)", 127.0),
        ("T.max if N == 2 ** 31 - 1 else 0", 65504.0),
        ("torch.inf", np.inf),
        ("-float('inf')", -np.inf),
    ],
)
def test_constants_may_come_from_limits_of_torch_and_numpy(project, value, expected):
    head = LIMITS.format(type="torch.half", number="np.iinfo(np.int32).max", value=value)
    assert stored(project(kernel=head + KERNEL.format("VALUE")) / "kernel.py") == np.float32(expected)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("torch.finfo(torch.int32).min", "finfo takes a floating-point type, not 'int32'"),
        ("torch.iinfo(4).min", "iinfo takes an integer type, not 4"),
        ("torch.zeros(3)", "module torch has no attribute zeros"),
        ("np.bfloat16", "module numpy has no attribute bfloat16"),
    ],
)
def test_all_else_of_torch_and_numpy_has_no_value(project, value, reason):
    head = LIMITS.format(type="torch.half", number="0", value=value)
    with pytest.raises(KbuildError, match=reason):
        stored(project(kernel=head + KERNEL.format("VALUE")) / "kernel.py")


def test_a_module_is_never_run(project):
    folder = project(
        kernel="""
        import torch
        import triton
        import triton.language as tl
        from nowhere import nothing

        print("this module runs")
        1 / 0

        @nothing.register("k", configs=[{}])
        @triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (1, 2)], key=[])
        @triton.heuristics({"EVEN": lambda args: torch.numel(args) == 1})
        @triton.jit
        def k(out):
            tl.store(out, 7.0)
        """
    )
    assert stored(folder / "kernel.py") == 7


def test_modules_of_the_project(project):
    folder = project(
        **{
            "package-init": "",
            "package__ops-init": "from .basic import seven",
            "package__ops__basic": """
            import triton
            from package.constants import FOUR
            from ..constants import THREE as three

            @triton.jit
            def seven():
                return FOUR + three
            """,
            "package__constants": "import triton.language as tl\nTHREE = tl.constexpr(3)\nFOUR = tl.constexpr(THREE + 1)",
            "package__kernels__entry": """
            import triton
            import triton.language as tl
            import package.ops as ops
            from package.ops import seven
            from package import constants
            from ..ops.basic import *

            @triton.jit
            def k(out):
                tl.store(out, (seven() + ops.seven() + ops.basic.seven() + constants.FOUR) / 25 * 7)
            """,
        }
    )
    assert stored(folder / "package/kernels/entry.py") == 7


def test_a_package_comes_before_a_file_of_its_name(project):
    """As Python has it; and the dots of a relative import are the folder, never a file beside it."""
    head = "import triton\nimport triton.language as tl\n"
    folder = project(
        **{
            "sizes": "WRONG = 1",
            "sizes-init": "import triton.language as tl\nTHREE = tl.constexpr(3)",
            "kernels": "WRONG = 1",
            "kernels__four": "import triton.language as tl\nFOUR = tl.constexpr(4)",
            "kernels__entry": head
            + "from sizes import THREE\nfrom . import four\n"
            + KERNEL.format("THREE + four.FOUR + 0.0"),
        }
    )
    assert stored(folder / "kernels/entry.py") == 7


def test_the_branch_of_an_import_that_resolves_is_taken(project):
    folder = project(
        kernel="""
        import triton
        import triton.language as tl
        from unknown_project import is_hip, compare_version

        if triton.__version__ >= "3.0.0":
            SCALE = tl.constexpr(2)
        else:
            SCALE = tl.constexpr(100)
        if is_hip():
            from vendor.hip import erf
        else:
            from triton.language.math import erf
        if compare_version("triton", "3.0.0"):
            try:
                from triton.language.extra.libdevice import no_such_function as tanh
            except ModuleNotFoundError:
                from triton.language.extra.cuda.libdevice import tanh
        else:
            from triton.language.math import tanh

        @triton.jit
        def k(out):
            tl.store(out, 3.5 * SCALE + erf(0.0) + tanh(0.0))
        """
    )
    assert stored(folder / "kernel.py") == 7


def test_defaults_may_use_variables_of_the_module(project):
    folder = project(
        kernel="""
        import triton
        import triton.language as tl
        SIZE = 7

        @triton.jit
        def helper(x, size: tl.constexpr = SIZE * 1.0):
            return x * size

        @triton.jit
        def k(out, N: tl.constexpr = SIZE):
            tl.store(out, helper(1.0) * N / SIZE_TWICE * 14)

        SIZE_TWICE = tl.constexpr(2 * SIZE)
        """
    )
    assert stored(folder / "kernel.py") == 49


def test_a_name_that_is_not_there_says_why(project):
    folder = project(
        kernel="import triton\nimport triton.language as tl\nfrom .missing import f\n"
        + KERNEL.format("f(1.0)")
    )
    with pytest.raises(
        KbuildError, match=r"`f` is not available while compiling: module \.missing is not among"
    ):
        stored(folder / "kernel.py")


def test_a_changed_file_is_read_again(project):
    text = "import triton\nimport triton.language as tl\n"
    folder = project(kernel=text + KERNEL.format("7.0"))
    assert stored(folder / "kernel.py") == 7
    project(kernel=text + KERNEL.format("8.0 + 0.5"))
    assert stored(folder / "kernel.py") == 8.5


# Live objects

LIVE = tl.constexpr(3)


@kbuild.jit
def live_helper(x):
    return x * LIVE


def plain_kernel(out, x, ADD: tl.constexpr):
    tl.store(out, live_helper(tl.load(x)) + ADD)


class Wrapped:
    """Stands for a foreign decorator's object."""

    def __init__(self, fn):
        self.fn = fn


def closure_kernel(amount):
    amount = tl.constexpr(amount)

    @kbuild.jit
    def k(out, x, ADD: tl.constexpr):
        tl.store(out, tl.load(x) * amount + ADD)

    return k


@pytest.mark.parametrize(
    "function", [plain_kernel, kbuild.jit(plain_kernel), Wrapped(Wrapped(plain_kernel)), closure_kernel(3)]
)
def test_live_functions(function):
    out, x = np.zeros(1, np.float32), np.full(1, 2, np.float32)
    interp.run(build_module(function, {"out": "*fp32", "x": "*fp32"}, {"ADD": 1}), [out, x])
    assert out[0] == 7


def test_outside_of_kernels_the_language_says_so():
    with pytest.raises(KbuildError, match=r"tl\.load has a meaning only inside kernels"):
        tl.load(3)
    with pytest.raises(KbuildError, match="would compile while running"):
        live_helper[1](3)
    assert "mask" in tl.load.__signature__.parameters and "smaller" not in (tl.sum.__doc__ or "smaller")
    assert tl.float16.is_fp16() and tl.constexpr(4) == 4


def test_a_class_is_asked_for(project):
    """A tensor descriptor is neither a tensor nor a tuple, as a kernel sees it, nor known while compiling."""
    source = """\
    import triton, triton.language as tl
    from typing import NamedTuple
    class Pair(NamedTuple):
        a: int
        b: int
    class Other(NamedTuple):
        c: int
    @triton.jit
    def k(desc, out):
        tl.static_assert(isinstance(desc, tl.tensor_descriptor) and not isinstance(desc, (tl.tensor, tuple, tl.constexpr)))
        tl.static_assert(isinstance(out.dtype, tl.pointer_type) and isinstance((out + tl.arange(0, 8)).type, tl.block_type))
        tl.static_assert(isinstance(Pair(1, 2), Pair) and isinstance(Pair(1, 2), tuple) and not isinstance(Pair(1, 2), Other))
    """
    folder = project(m=source)
    build_module(f"{folder}/m.py:k", {"desc": "tensordesc<fp32[8x16]>", "out": "*fp32"}, {})


def test_a_byte_order_mark(project):
    folder = project(m="\ufeffimport triton\nimport triton.language as tl\n" + KERNEL.format(7))
    assert stored(f"{folder}/m.py") == 7


def test_a_sum_that_nests_too_deeply(project):
    folder = project(
        m="import triton\nimport triton.language as tl\n" + KERNEL.format(" + ".join(["out"] * 2000))
    )
    for read in (lambda: stored(f"{folder}/m.py"), lambda: source_digest(f"{folder}/m.py", "k")):
        with pytest.raises(KbuildError, match="nests too deeply"):
            read()


def test_columns_are_counted_in_characters() -> None:
    text = """
# ä: no column of the next lines depends on this one
@decorated("ä", first)
def nothing_wide():
    return sixth

def function(x, y="ö", z=second):
    plain = x + third
    if x:
        return "日本", [fourth for each in "ü" if fifth]
"""
    tree = parse("<text>", text)
    lines = text.splitlines()
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert {"first", "second", "third", "fourth", "fifth", "sixth"} <= {name.id for name in names}
    for name in names:
        assert lines[name.lineno - 1][name.col_offset : name.end_col_offset] == name.id
