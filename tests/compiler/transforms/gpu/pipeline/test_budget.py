"""How many buffers loops get."""

from __future__ import annotations

import numpy as np
import pytest

import kbuild
import kbuild.language as tl
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ops.control import For
from kbuild.compiler.ops.gpu import AsyncWait, LocalAlloc
from kbuild.compiler.ops.nvidia import FenceAsyncShared, WarpGroupDot
from kbuild.compiler.ops.tensor import Barrier
from kbuild.compiler.transforms.gpu.pipeline.budget import is_room_for_more
from kbuild.targets.sm_90 import TARGET as SM_90
from tests.compiler.transforms.gpu.loops import LOOPS, buffers_of, kernel, ops
from tests.emulator.artifacts import left_in

KIB = 1024


@pytest.mark.parametrize(
    ("stage_bytes", "is_free"),
    [
        (16 * KIB, True),  # Four programs of a multiprocessor instead of six.
        (32 * KIB, True),  # Two instead of three.
        (44 * KIB, False),  # One instead of two.
        (64 * KIB, True),  # One in any case.
        (80 * KIB, False),  # None.
    ],
)
def test_a_third_buffer_must_not_leave_a_multiprocessor_one_program_for_two(
    stage_bytes: int, is_free: bool
) -> None:
    func = parse_module(kernel(LOOPS["matmul"], 2)).kernel
    (loop,) = (op for op in func.body.walk() if isinstance(op, For))
    assert is_room_for_more(func, loop, 2 * stage_bytes, 3 * stage_bytes, SM_90) == is_free


@kbuild.jit
def product(first, a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, SCALED: tl.constexpr):
    """A·B, both by rows; warpgroups read columns of fp32 only, so that B comes by registers.  Or 2·(A·B), whose sum is
    no dot's own."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    start = tl.multiple_of(tl.load(first), 16)  # Which no tensor map can say.
    a_places = a + start + m[:, None] * K + k[None, :]
    b_places = b + start + k[:, None] * N + n[None, :]
    for _ in range(0, K, STEP):
        left, right = tl.load(a_places), tl.load(b_places)
        a_places += STEP
        b_places += STEP * N
        if SCALED:
            total += 2 * tl.dot(left, right)
        else:
            total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


def compiled(size: int, step: int, scaled: bool, stages: int) -> kbuild.Artifact:
    return kbuild.compile(
        product,
        signature={"first": "*i32", **dict.fromkeys("abc", "*fp32:16"), "K": "i32:16"},
        constexprs={"M": size, "N": size, "STEP": step, "SCALED": scaled},
        target="sm_90",
        num_warps=4,
        num_stages=stages,
    )


def long_iterations(stages: int, columns: int = 256) -> kbuild.Artifact:
    """A·B of fp16 with iterations of 1,024 cycles of the tensor cores, or 512."""
    return kbuild.compile(
        product,
        signature={"first": "*i32", "a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": "i32:16"},
        constexprs={"M": 128, "N": columns, "STEP": 64, "SCALED": False},
        target="sm_90",
        num_warps=8,
        num_stages=stages,
    )


@pytest.mark.parametrize(
    ("size", "step", "scaled", "stages", "buffers"),
    [
        (64, 16, False, 2, {2, 3}),  # One was asked for.  A, which dots in flight read, has a buffer more.
        (64, 16, False, 3, {3, 4}),
        (64, 16, False, 5, {4, 5}),
        (128, 64, False, 3, {2, 3}),  # An iteration takes as long as a copy.
        (64, 16, True, 3, {3}),  # No dot is in flight.
    ],
)
def test_short_iterations_have_two_copies_on_their_way(
    size: int, step: int, scaled: bool, stages: int, buffers: set[int]
) -> None:
    module = parse_module(compiled(size, step, scaled, stages).asm["ttgir"])
    assert set(buffers_of(ops(module, LocalAlloc))) == buffers


def test_their_copies_land_before_they_are_read() -> None:
    made = compiled(64, 16, False, 3)
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-4, 4, shape).astype(np.float32) for shape in ((64, 80), (80, 64)))
    given = {"first": np.zeros(1, np.int32), "a": a, "b": b, "c": np.zeros((64, 64), np.float32), "K": 80}
    for timing in ("late", "early"):
        np.testing.assert_array_equal(left_in("c", made, given, timing=timing), a @ b)


def test_where_not_all_tiles_fit_twice_some_are_copied_early() -> None:
    """Two of 64 KB: one has two buffers, the other one."""
    made = compiled(128, 128, False, 2)
    assert sorted(buffers_of(ops(parse_module(made.asm["ttgir"]), LocalAlloc)), key=bool) == [None, 2]
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 4, shape).astype(np.float32) for shape in ((128, 384), (384, 128)))
    given = {"first": np.zeros(1, np.int32), "a": a, "b": b, "c": np.zeros((128, 128), np.float32), "K": 384}
    for timing in ("late", "early"):
        np.testing.assert_array_equal(left_in("c", made, given, timing=timing), a @ b)


@pytest.mark.parametrize(
    ("stages", "columns", "buffers", "order"),
    [
        (2, 256, 3, "wait fence barrier dot barrier"),  # A third buffer, as ever, and no fourth.
        (3, 256, 4, "dot wait fence barrier"),
        (4, 256, 4, "dot wait fence barrier"),
        (4, 128, 4, "wait fence barrier dot barrier"),  # Who is soon done waits for what is needed now.
    ],
)
def test_long_iterations_wait_for_the_next_ones_copies(
    stages: int, columns: int, buffers: int, order: str
) -> None:
    module = parse_module(long_iterations(stages, columns).asm["ttgir"])
    assert set(buffers_of(ops(module, LocalAlloc))) == {buffers}
    (loop,) = ops(module, For)
    names = {AsyncWait: "wait", FenceAsyncShared: "fence", Barrier: "barrier", WarpGroupDot: "dot"}
    assert [names[type(op)] for op in loop.body if type(op) in names] == order.split()


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
def test_what_they_wait_for_has_landed(steps: int) -> None:
    made = long_iterations(3)
    rng = np.random.default_rng(steps)
    a, b = (rng.integers(-4, 4, shape).astype(np.float16) for shape in ((128, 64 * steps), (64 * steps, 256)))
    given = {"first": np.zeros(1, np.int32), "a": a, "b": b, "K": 64 * steps}
    given["c"] = np.zeros((128, 256), np.float32)
    c = left_in("c", made, given, timing=f"random({steps})", schedule=f"random({steps})")
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
