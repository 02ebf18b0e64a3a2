"""Random programs of tensors mean the same after the passes that choose layouts, and their layouts fit after
each."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import kbuild.compiler.transforms  # noqa: F401  registers the passes
from kbuild.compiler import interp
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import run_pipeline
from kbuild.compiler.ir.printer import print_module
from kbuild.compiler.ir.types import F32, I1, I32, PointerType, TensorType, shape_of
from kbuild.compiler.ops import elementwise as arith
from kbuild.compiler.ops import tensor as tt
from kbuild.compiler.ops.control import For, If, Return, Yield
from kbuild.targets import find_target
from tests.compiler.transforms.gpu.layout_rules import check_layouts

PASSES = (
    "to_gpu",
    "coalesce",
    "accelerate_matmul",
    "remove_conversions",
    "thread_locality",
    "optimize_dot_operands",
    "remove_conversions",
    "reorder",
)
SHAPES = [(16, 16), (32, 16), (16, 32), (32, 32), (32,), (16,), (512,)]
CELLS = 1024


class Writer:
    """Writes a program of f32 tensors whose elements stay small whole numbers."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.body = Block([PointerType(F32), PointerType(F32), I32], ["source", "target", "n"])
        self.builder = Builder(self.body)
        self.tensors: list[Value] = []

    def program(self) -> Module:
        for shape in self.choose.sample(SHAPES, 3):
            self.tensors.append(self.load(shape))
        self.steps(8)
        for value in self.tensors[-3:]:
            self.builder.add(tt.Store(self.pointers(self.body.arguments[1], shape_of(value.type)), value))
        self.builder.add(Return(()))
        return Module(
            [Func("random", self.body, {"num_warps": self.choose.choice([1, 2, 4]), "num_stages": 1})]
        )

    def add(self, op: Op) -> Value:
        return self.builder.add(op).results[0]

    def pointers(self, base: Value, shape: tuple[int, ...]) -> Value:
        """Pointers to a matrix, rows or columns contiguous, from aligned or odd places on."""
        order = list(range(len(shape)))
        self.choose.shuffle(order)
        size = int(np.prod(shape))
        flat = self.add(tt.MakeRange(0, size, TensorType((size,), I32)))
        stored = TensorType(tuple(shape[axis] for axis in order), I32)
        index = self.add(tt.Reshape(flat, stored)) if len(shape) > 1 else flat
        index = (
            self.add(tt.Trans(index, tuple(order.index(axis) for axis in range(len(shape)))))
            if len(shape) > 1
            else index
        )
        shift = self.add(arith.Constant(self.choose.choice([0, 0, 1, 8]), index.type))
        pointer = self.add(tt.Splat(base, TensorType(shape, base.type)))
        return self.add(arith.AddPtr(pointer, self.add(arith.AddI(index, shift))))

    def load(self, shape: tuple[int, ...]) -> Value:
        return self.add(tt.Load(self.pointers(self.body.arguments[0], shape)))

    def pick(self, rank: int | None = None) -> Value | None:
        found = [value for value in self.tensors if rank is None or len(shape_of(value.type)) == rank]
        return self.choose.choice(found) if found else None

    def small(self, value: Value) -> Value:
        """Back to a few whole numbers, so that sums and products stay exact."""
        bound = self.add(arith.Constant(3.0, value.type))
        return self.add(arith.MinNumF(self.add(arith.AbsF(value)), bound))

    def steps(self, count: int, nesting: int = 0) -> None:
        kinds: list[Callable[[], Value | None]] = [
            self.sum_of_two,
            self.row,
            self.transpose,
            self.reshape,
            self.halves,
            self.reduce,
            self.dot,
            self.iota,
        ]
        if nesting < 2:
            kinds += [partial(self.loop, nesting), partial(self.branch, nesting)]
        for _ in range(count):
            made = self.choose.choice(kinds)()
            if made is not None:
                self.tensors.append(self.small(made))

    def sum_of_two(self) -> Value | None:
        a = self.pick()
        same = [value for value in self.tensors if a is not None and value.type == a.type]
        return self.add(arith.AddF(a, self.choose.choice(same))) if a is not None else None

    def row(self) -> Value | None:
        a, line = self.pick(2), self.pick(1)
        if a is None or line is None:
            return None
        shape, size = shape_of(a.type), shape_of(line.type)[0]
        axis = next((axis for axis in (0, 1) if shape[1 - axis] == size), None)
        if axis is None:
            return None
        spread = self.add(tt.Broadcast(self.add(tt.ExpandDims(line, axis)), a.type))
        return self.add(arith.SubF(a, spread))

    def iota(self) -> Value | None:
        a = self.pick(1)
        if a is None:
            return None
        size = shape_of(a.type)[0]
        numbers = self.add(tt.MakeRange(0, size, TensorType((size,), I32)))
        limit = self.add(tt.Splat(self.body.arguments[2], numbers.type))
        return self.add(
            arith.Select(
                self.add(arith.CmpI(numbers, limit, "slt")), a, self.add(arith.Constant(1.0, a.type))
            )
        )

    def transpose(self) -> Value | None:
        a = self.pick(2)
        return self.add(tt.Trans(a, (1, 0))) if a is not None else None

    def reshape(self) -> Value | None:
        a = self.pick()
        fitting = [s for s in SHAPES if a is not None and np.prod(s) == np.prod(shape_of(a.type))]
        return (
            self.add(tt.Reshape(a, TensorType(self.choose.choice(fitting), F32))) if a is not None else None
        )

    def halves(self) -> Value | None:
        a = self.pick()
        if a is None:
            return None
        split = self.builder.add(tt.Split(self.add(tt.Join(a, self.small(a)))))
        return self.add(arith.AddF(*split.results))

    def reduce(self) -> Value | None:
        a = self.pick(2)
        if a is None:
            return None
        combine = Block([F32, F32])
        kind = self.choose.choice([arith.AddF, arith.MaxNumF])
        both = combine.append(kind(*combine.arguments))
        combine.append(tt.ReduceReturn((both.results[0],)))
        return self.add(tt.Reduce((a,), self.choose.choice([0, 1]), combine))

    def dot(self) -> Value | None:
        a = self.pick(2)
        if a is None:
            return None
        m, k = shape_of(a.type)
        fitting = [
            value for value in self.tensors if len(shape_of(value.type)) == 2 and shape_of(value.type)[0] == k
        ]
        b = self.choose.choice(fitting) if fitting else self.add(tt.Trans(a, (1, 0)))
        c = self.add(arith.Constant(1.0, TensorType((m, shape_of(b.type)[1]), F32)))
        return self.add(tt.Dot(a, b, c, self.choose.choice(["tf32", "ieee"])))

    def loop(self, nesting: int) -> Value | None:
        """A loop that carries a tensor, or a sum that only accumulates."""
        carried = self.pick()
        if carried is None:
            return None
        zero, one, three = (self.add(arith.Constant(number, I32)) for number in (0, 1, 3))
        body = Block([I32, carried.type])
        outside = list(self.tensors)
        with self.builder.inside(body):
            self.tensors.append(body.arguments[1])
            self.steps(3, nesting + 1)
            same = [value for value in self.tensors if value.type == carried.type]
            next_value = self.small(self.add(arith.AddF(body.arguments[1], self.choose.choice(same))))
            self.builder.add(Yield((next_value,)))
        self.tensors = outside
        return self.add(For(zero, three, one, (carried,), body))

    def branch(self, nesting: int) -> Value | None:
        given = self.pick()
        if given is None:
            return None
        limit = self.add(arith.Constant(self.choose.choice([0, 100]), I32))
        condition = self.add(arith.CmpI(self.body.arguments[2], limit, "slt"))
        assert condition.type == I1
        outside = list(self.tensors)
        regions: list[Block] = []
        for _ in range(2):
            block = Block()
            with self.builder.inside(block):
                self.steps(2, nesting + 1)
                same = [value for value in self.tensors if value.type == given.type]
                self.builder.add(Yield((self.choose.choice(same),)))
            self.tensors = list(outside)
            regions.append(block)
        return self.add(If(condition, regions[0], regions[1], (given.type,)))


def meaning(module: Module) -> np.ndarray:
    target = np.full(CELLS + 16, -1.0, np.float32)
    source = (np.arange(CELLS + 16) % 5).astype(np.float32)
    interp.run(module, {"source": source, "target": target, "n": 20})
    return target


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int, arch: str):
    module = Writer(seed).program()
    expected = meaning(module)
    for name in PASSES:
        run_pipeline(module, find_target(arch), [name])
        check_layouts(module)
        module = parse_module(print_module(module))
    assert np.array_equal(meaning(module), expected)
