"""Control flow: functions over integers that mean the same in Python and in a kernel, run both ways."""

import itertools

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.frontend import build_module
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.verify import verify
from kbuild.compiler.ops.elementwise import Constant


@kbuild.jit
def early_return(n, m):
    if n > m:
        return n
    return m + 10


@kbuild.jit
def nested_returns(n, m):
    x = 1
    if n > 0:
        if m > 0:
            return 100
        x = x + n
        if m < -2:
            return x
        else:
            x = x * 3
    elif n < -1:
        x = x - 5
    x += 7
    if x > 12:
        return x * 2
    return x


@kbuild.jit
def return_in_unrolled_loop(n, m):
    total = 0
    for i in tl.static_range(4):
        if n == i:
            return total + 50
        total += i * m
    return total


@kbuild.jit
def loop_up(n, m):
    total, last = 0, m
    for i in range(n, m):
        total += i * i
        if i % 2 == 0:
            last = i
    return total * 10 + last


@kbuild.jit
def loop_down(n, m):
    total = 0
    for i in range(m, n, -2):
        total = total * 3 + i
    return total


@kbuild.jit
def loop_steps(n, m):
    total = 0
    for i in range(-4, 5, 3):
        for k in range(i, n):
            total += k - m
    return total


@kbuild.jit
def collatz(n, m):
    steps = 0
    x = n + 5
    while x > 1 and steps < 12:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + m + 4
        steps += 1
    return steps * 1000 + x


@kbuild.jit
def carried_tuple(n, m):
    pair = (n, m)
    for _ in range(3):
        pair = (pair[1], pair[0] + pair[1])
    a, b = pair
    return a * 100 + b


@kbuild.jit
def conditional_expressions(n, m):
    x = n if n > m else m - 1
    y = 3 if n == 0 else 4
    z = 0 < n < m
    return x * y + (1 if z else 2)


@kbuild.jit
def logic(n, m):
    if n > 1 and (m > 2 or not (n > 3)):
        return 1
    if n == m:
        return 2
    if n in (0, 2) and m not in (n, -1):
        return 3
    return 4


@kbuild.jit
def walrus_and_chain(n, m):
    if (y := n + 1) > 2:
        return y
    a = b = m
    return a + b * 2


@kbuild.jit
def tuples(n, m):
    (a, b), c = (n, m), 3
    first, *rest = (a, b, c)
    total = first
    for item in rest:
        total += item
    for i, (u, v) in enumerate(((1, n), (2, m))):
        total += i * u * v
    return total + len(rest) + [k * k for k in (1, 2, 3) if k != 2][1]


@kbuild.jit
def loop_variable_afterwards(n, m):
    i = 40
    for i in range(0, 6, 2):
        m += i
    return i + m


@kbuild.jit
def loop_variable_after_counting_down(n, m):
    i = 40
    for i in range(n + 9, 3, -3):
        m += i
    return i + m


@kbuild.jit
def factorial(n, depth: tl.constexpr):
    if depth == 0:
        return n
    else:
        return factorial(n * depth, depth - 1)


@kbuild.jit
def recursion(n, m):
    return factorial(n, 4) - factorial(m, 2)


@kbuild.constexpr_function
def sum_of_digits(number):
    total = 0
    while number > 0:
        total += number % 10
        number //= 10
    return total


@kbuild.jit
def computed_while_compiling(n, m):
    count: tl.constexpr = sum_of_digits(1234)
    return n * count + m


@kbuild.jit(noinline=True)
def outlined(a, b):
    if a > b:
        return a * 2
    return b


@kbuild.jit
def real_calls(n, m):
    return outlined(n, m) + outlined(m, n) * 10


FUNCTIONS = [value for value in list(globals().values()) if isinstance(value, kbuild.language.JITFunction)]
PAIRS = list(itertools.product(range(-3, 5), range(-4, 6, 3)))
TAKES_TWO = [f for f in FUNCTIONS if f.fn.__code__.co_varnames[: f.fn.__code__.co_argcount] == ("n", "m")]


@kbuild.jit
def apply(out, n, m, function: tl.constexpr):
    tl.store(out, function(n, m))


@pytest.mark.parametrize("function", TAKES_TWO, ids=lambda f: f.__name__)
def test_means_what_python_means(function, monkeypatch):
    monkeypatch.setattr(
        kbuild.language.JITFunction, "__call__", lambda self, *args: python_meaning(self, *args)
    )
    for n, m in PAIRS:
        out = np.zeros(1, np.int32)
        apply.interpret[1](out, n, m, function=function)
        assert out[0] == python_meaning(function, n, m), (n, m)


def python_meaning(function, *args):
    """The function in Python, with tl.static_range as range."""
    scope = dict(function.fn.__globals__)
    scope["tl"] = type("tl", (), {"static_range": range, "constexpr": None})
    return type(function.fn)(function.fn.__code__, scope)(*args)


@kbuild.jit
def dead_branches(out, x, mode: tl.constexpr, flag: tl.constexpr):
    if flag is None:
        value = 1.0
    elif mode == "sum":
        value = tl.sum(tl.load(x + tl.arange(0, 4)))
    else:
        value = no_such_name.of_any_kind(x)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  never read
    tl.store(out, value)


def test_a_branch_that_is_dead_while_compiling_is_never_read():
    out, x = np.zeros(1, np.float32), np.arange(4, dtype=np.float32)
    dead_branches.interpret[1](out, x, "sum", 1)
    assert out[0] == 6
    dead_branches.interpret[1](out, x, "other", None)
    assert out[0] == 1


@kbuild.jit
def options_of_another_loop(out, n, FLAT: tl.constexpr):
    for i in range(n, flatten=FLAT, num_stages=2):  # pyright: ignore[reportCallIssue]
        tl.store(out + i, i + 1)


def test_options_of_tl_range_mean_nothing_to_pythons():
    """As in Triton: libraries give them to it, and have never noticed."""
    out = np.zeros(4, np.int32)
    options_of_another_loop.interpret[1](out, 3, True)
    assert out.tolist() == [1, 2, 3, 0]


@kbuild.jit
def early_exit(out, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    tl.store(out + pid, pid + 1)


def test_an_early_return_of_a_kernel_becomes_a_branch_without_results():
    module = build_module(early_exit, {"out": "*i32", "n": "i32"}, {})
    verify(module.kernel)
    branches = [op for op in module.kernel.body if op.op_name == "scf.if"]
    assert len(branches) == 1 and not branches[0].results
    out = np.zeros(4, np.int32)
    early_exit.interpret[4](out, 2)
    assert out.tolist() == [1, 2, 0, 0]


@kbuild.jit
def unchanged_names(out, n):
    step = n * 2
    total = 0
    for i in range(n):
        step = step
        total += step + i
    tl.store(out, total)


def test_a_loop_carries_only_what_it_changes():
    module = build_module(unchanged_names, {"out": "*i32", "n": "i32"}, {})
    (loop,) = [op for op in module.kernel.body if op.op_name == "scf.for"]
    assert [value.name for value in loop.results] == ["total"]


@kbuild.jit
def constant_that_changes(out, n, start: tl.constexpr):
    for _ in range(n):
        start = start + 2
    tl.store(out, start)


def test_a_constant_that_a_loop_changes_becomes_a_value():
    out = np.zeros(1, np.int32)
    constant_that_changes.interpret[1](out, 3, 10)
    assert out[0] == 16


@kbuild.jit
def constant_given_again(out, n, width: tl.constexpr):  # pyright: ignore[reportRedeclaration]  on purpose
    for _ in range(n):
        width: tl.constexpr = 500 * 2  # another object than what came in
    while n > 3:
        width: tl.constexpr = 250 * 4
        n -= 1
    tl.store(out + tl.arange(0, width // 250), n)


def test_a_constant_that_loops_give_its_value_again_stays_one():
    out = np.zeros(4, np.int32)
    constant_given_again.interpret[1](out, 5, int("1000"))
    assert out.tolist() == [3, 3, 3, 3]


@kbuild.jit
def methods_of_constants(out, name: tl.constexpr, sizes: tl.constexpr):
    if name.endswith("_sum") and name.upper() == "ROW_SUM" and name.replace("_", "-").startswith("row-"):
        tl.store(out, sizes.count(4) * 10 + sizes.index(8) + name.count("r"))


def test_methods_of_strings_and_tuples_are_called_while_compiling():
    out = np.zeros(1, np.int32)
    methods_of_constants.interpret[1](out, "row_sum", (4, 4, 8))
    assert out[0] == 23


@kbuild.jit
def largest_of(row, one):
    row = tl.maximum(row, tl.broadcast_to(one, row.shape))
    return tl.max(row, 0) + (one + 1)


@kbuild.jit
def spread_constants(out):
    pair = (tl.full((), 5, tl.int32), tl.full((), 7, tl.int32))
    wide = tl.broadcast_to(pair[1], (4,))
    tl.store(out, largest_of(tl.arange(0, 8), tl.full((), 9, tl.int32)))
    tl.store(out + 1, tl.max(wide, 0) + (pair[0] + 1) * (pair[1] + 1))


def test_a_constant_that_was_spread_over_a_tensor_can_be_used_again():
    out = np.zeros(2, np.int32)
    spread_constants.interpret[1](out)
    assert out.tolist() == [19, 55]


@kbuild.jit
def documented(out):
    """\ud800"""
    tl.store(out, 7)


def test_a_docstring_need_not_be_text_that_a_kernel_may_hold():
    out = np.zeros(1, np.int32)
    documented.interpret[1](out)
    assert out[0] == 7


@kbuild.jit
def one_of(x, n):
    y = x + 1
    if n > 1:
        if n > 2:
            return x
        y = y + 1
    return y


@kbuild.jit
def returned_early(out, floats, n):
    tl.store(out, one_of(tl.load(floats), n))
    tl.store(out + 1, tl.load(one_of(floats, n)))
    tl.store(out + 2, tl.sum(one_of(tl.load(floats + tl.arange(0, 2)), n)))
    tl.store(out + 3, tl.sum(tl.load(one_of(floats + tl.arange(0, 2), n))))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_floats_and_pointers_may_be_returned_early(n):
    floats, out = np.array([10, 20, 40, 80], np.float32), np.zeros(4, np.float32)
    returned_early.interpret[1](out, floats, n)
    more = (1, 2, 0)[n - 1]
    assert out.tolist() == [10 + more, floats[more], 30 + 2 * more, floats[more] + floats[more + 1]]


@kbuild.jit
def constants_that_loops_change(out, n, start: tl.constexpr, other: tl.constexpr):
    for i in range(n):
        start = start + 2
        tl.store(out + i, n)
    while n > 3:
        other = other + 2
        n -= 1
        tl.store(out + n, n)
    tl.store(out, start + other)


def line_of(op: Op) -> int:
    assert op.loc is not None
    return op.loc.line


def test_what_is_made_for_a_loop_stands_at_its_line():
    module = build_module(
        constants_that_loops_change, {"out": "*i32", "n": "i32"}, {"start": 10, "other": 20}
    )
    # That of the `for`
    first = next(line_of(op) for op in module.kernel.body.walk() if op.op_name == "tt.store") - 2
    loops = [op for op in module.kernel.body if op.regions]
    made = [line_of(op) for op in module.kernel.body if isinstance(op, Constant) and op.value in (10, 20)]
    yields = [line_of(op) for op in module.kernel.body.walk() if op.op_name == "scf.yield"]
    assert [line_of(op) for op in loops] == made == yields == [first, first + 3]


@kbuild.jit
def clipped_store(out, n):
    if n > 3:
        return n * 2
    tl.store(out, n)


@kbuild.jit
def only_if_positive(n, m):
    if n > 0:
        n += m
        if m > 0:
            return n, 1.5


@kbuild.jit
def one_path(out, n, m):
    found = clipped_store(out + 2, n)
    clipped_store(out + 3, m)
    total, factor = only_if_positive(n, m)
    if n > 3:
        tl.store(out, found)
    if n > 0 and m > 0:
        tl.store(out + 1, total * factor)


@pytest.mark.parametrize(
    ("n", "m", "expected"),
    [(5, 2, [10, 10.5, 0, 2]), (2, 7, [0, 13.5, 2, 0]), (2, -1, [0, 0, 2, -1])],
)
def test_a_function_may_return_on_some_paths_only(n, m, expected):
    out = np.zeros(4, np.float32)
    one_path.interpret[1](out, n, m)
    assert out.tolist() == expected


@kbuild.jit
def type_on_one_path(n):
    if n > 3:
        return tl.float16


@kbuild.jit
def uses_a_type_of_one_path(out, n):
    tl.store(out, tl.zeros((), type_on_one_path(n)))


def test_a_constant_has_no_value_on_the_other_path():
    with pytest.raises(kbuild.KbuildError, match="one `return` gives fp16, another None"):
        build_module(uses_a_type_of_one_path, {"out": "*fp32", "n": "i32"}, {})


@kbuild.jit
def kinds_of_types(block, pointer, N: tl.constexpr):
    tl.static_assert(
        isinstance(N.type, tl.constexpr_type) and not isinstance(pointer.type, tl.constexpr_type)
    )
    tl.static_assert(N.type == tl.constexpr_type(N) and N.type != tl.constexpr_type(N + 1))
    pair: tl.constexpr = (N, 2.5)
    tl.static_assert(pair.type == tl.constexpr_type((N, 2.5)) and pair.type.value == pair)
    assigned = N
    tl.static_assert(assigned.type == tl.int32 and not isinstance(assigned.type, tl.constexpr_type))
    tl.static_assert(isinstance(block.type, tl.tensor_descriptor_type))
    tl.static_assert(block.type.block_type.shape == (16, 32) and block.type.element_ty == tl.float16)
    tl.static_assert(not isinstance(pointer.type, tl.tensor_descriptor_type))
    tl.static_assert((1, 2, 3, 4)[tl.slice(1, 3)] == (2, 3))  # pyright: ignore[reportCallIssue, reportArgumentType]
    tl.static_assert(pointer.dtype == tl.pi32_t)
    single = tl.load(pointer)[None, :, :]
    tl.static_assert(single.shape == (1,))


def test_types_that_kernels_look_at():
    signature = {"block": "tensordesc<fp16[16, 32]>", "pointer": "*i32"}
    build_module(kinds_of_types, signature, {"N": 4})
