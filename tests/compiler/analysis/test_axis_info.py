"""Facts about numbers: known cases, and random expressions whose facts must hold of what the interpreter
computes."""

import numpy as np
import pytest

from kbuild.compiler.analysis.axis_info import AxisInfo, Info
from kbuild.compiler.interp.machine import Machine
from kbuild.compiler.interp.memory import GlobalMemory
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Op, Value
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.types import (
    F16,
    I1,
    I8,
    I16,
    I32,
    I64,
    IntType,
    PointerType,
    TensorType,
    Type,
    bit_width,
    is_pointer,
)
from kbuild.compiler.ops.control import Return
from kbuild.compiler.ops.elementwise import (
    AddI,
    AddPtr,
    AndI,
    CmpI,
    Constant,
    DivSI,
    DivUI,
    ExtSI,
    ExtUI,
    MaxSI,
    MinSI,
    MulI,
    OrI,
    RemSI,
    RemUI,
    Select,
    ShLI,
    ShRSI,
    ShRUI,
    SubI,
    TruncI,
)
from kbuild.compiler.ops.tensor import Broadcast, ExpandDims, MakeRange, Reshape, Splat, Trans

LOOP = """\
tt.func @f(%x: !tt.ptr<f16> {divisibility = 16}, %n: i32 {divisibility = 16}, %m: i32, %k: i32) {
  %c64: i32 = arith.constant {value = 64}
  %range: tensor<64xi32> = tt.make_range {start = 0, end = 64}
  %0: tensor<64xi32> = tt.splat %n
  %1: tensor<64xi32> = tt.splat %m
  %mask_n: tensor<64xi1> = arith.cmpi %range, %0 {predicate = "slt"}
  %mask_m: tensor<64xi1> = arith.cmpi %range, %1 {predicate = "slt"}
  %e, %o: !tt.ptr<f16>, !tt.ptr<f16> = scf.for %k, %n, %m, init=[%x, %x] body(%i: i32, %p: !tt.ptr<f16>, %q: !tt.ptr<f16>) {
    %2: tensor<64x!tt.ptr<f16>> = tt.splat %p
    %aligned: tensor<64x!tt.ptr<f16>> = tt.addptr %2, %range
    %3: tensor<64x!tt.ptr<f16>> = tt.splat %q
    %misaligned: tensor<64x!tt.ptr<f16>> = tt.addptr %3, %range
    %4: i32 = arith.muli %n, %c64
    %more: !tt.ptr<f16> = tt.addptr %p, %4
    %next_q: !tt.ptr<f16> = tt.addptr %q, %m
    scf.yield %more, %next_q
  }
  %5: tensor<64xi32> = tt.axis_attributes %1 {divisibility = [8]}
  %6: tensor<64xi32> = arith.remsi %range, %1
  %hinted: tensor<64xi32> = tt.axis_attributes %6 {divisibility = [16], contiguity = [32]}
  tt.return
}
"""


def named(text: str) -> tuple[AxisInfo, dict[str, Value]]:
    """The analysis of a function and its values by name."""
    function = parse_module(text).kernel
    values = {a.name: a for a in function.arguments}
    for op in function.body.walk():
        values |= {v.name: v for v in (*op.results, *(a for region in op.regions for a in region.arguments))}
    return AxisInfo(function), values


def test_loops_keep_what_every_iteration_keeps() -> None:
    known, values = named(LOOP)
    assert known.get(values["aligned"]) == Info((64,), (16,), (1,))
    assert known.get(values["misaligned"]) == Info((64,), (2,), (1,))
    assert known.max_contiguous(values["aligned"]) == 8 and known.max_contiguous(values["misaligned"]) == 1
    assert known.get(values["e"]).divisibility == (16,) and known.get(values["o"]).divisibility == (2,)


def test_masks_let_through_whole_groups_when_the_bound_is_divisible() -> None:
    known, values = named(LOOP)
    assert known.mask_alignment(values["mask_n"]) == 16 and known.mask_alignment(values["mask_m"]) == 1


@pytest.mark.parametrize(
    ("predicate", "below"),
    [
        ("slt", True),
        ("sge", True),
        ("ult", True),
        ("uge", True),
        ("sgt", False),
        ("sle", False),
        ("ugt", False),
        ("ule", False),
        ("eq", None),
    ],
)
def test_groups_are_compared_alike_with_a_divisible_bound(predicate: str, below: bool | None) -> None:
    """With `range < n`, n divisible by 16, 16 elements compare alike; `range <= n` splits them, unless n is the
    consecutive side."""
    mask, range_, bound = (
        "tensor<64xi1>",
        "%range: tensor<64xi32> = tt.make_range {start = 0, end = 64}",
        "tensor<64xi32>",
    )
    known, values = named(f"""\
tt.func @f(%n: i32 {{divisibility = 16}}) {{
  {range_}
  %0: {bound} = tt.splat %n
  %one: {mask} = arith.cmpi %range, %0 {{predicate = "{predicate}"}}
  %other: {mask} = arith.cmpi %0, %range {{predicate = "{predicate}"}}
  tt.return
}}
""")
    assert known.get(values["one"]).constancy == (16 if below else 1,)
    assert known.get(values["other"]).constancy == (16 if below is False else 1,)


def test_hints_add_to_what_is_known() -> None:
    known, values = named(LOOP)
    assert known.get(values["hinted"]) == Info((32,), (16,), (1,))


def test_values_made_later_are_known_when_asked() -> None:
    known, values = named(LOOP)
    known.get(values["n"])
    op = values["mask_n"].op
    assert op is not None
    double = Builder.after(op).add(AddI(values["n"], values["n"]))
    assert known.get(double.result).divisibility == (16,)


WHILE = """\
tt.func @f(%x: !tt.ptr<f16> {divisibility = 16}, %y: !tt.ptr<f16> {divisibility = 16}, %n: i32 {divisibility = 16}, %m: i32) {
  %range: tensor<64xi32> = tt.make_range {start = 0, end = 64}
  %c0: i32 = arith.constant {value = 0}
  %p_end, %q_end, %i_end: !tt.ptr<f16>, !tt.ptr<f16>, i32 = scf.while %x, %y, %c0
      before(%p: !tt.ptr<f16>, %q: !tt.ptr<f16>, %i: i32) {
    %more: i1 = arith.cmpi %i, %m {predicate = "slt"}
    scf.condition %more, values=[%p, %q, %i]
  } after(%p_in: !tt.ptr<f16>, %q_in: !tt.ptr<f16>, %i_in: i32) {
    %ps: tensor<64x!tt.ptr<f16>> = tt.splat %p_in
    %aligned: tensor<64x!tt.ptr<f16>> = tt.addptr %ps, %range
    %qs: tensor<64x!tt.ptr<f16>> = tt.splat %q_in
    %misaligned: tensor<64x!tt.ptr<f16>> = tt.addptr %qs, %range
    %p_next: !tt.ptr<f16> = tt.addptr %p_in, %n
    %q_next: !tt.ptr<f16> = tt.addptr %q_in, %m
    %i_next: i32 = arith.addi %i_in, %n
    scf.yield %p_next, %q_next, %i_next
  }
  tt.return
}
"""


def test_a_while_keeps_what_every_round_keeps() -> None:
    known, values = named(WHILE)
    assert known.get(values["aligned"]) == Info((64,), (16,), (1,))
    assert known.get(values["misaligned"]) == Info((64,), (2,), (1,))
    for name in ("p", "p_in", "p_end", "i", "i_in", "i_end"):
        assert known.get(values[name]).divisibility == (16,), name
    for name in ("q", "q_in", "q_end"):
        assert known.get(values[name]).divisibility == (2,), name


LOADS = """\
tt.func @f(%p: !tt.ptr<i32>, %n: i32, %m: i32) {
  %range: tensor<64xi32> = tt.make_range {start = 0, end = 64}
  %c8: tensor<64xi32> = arith.constant {value = 8}
  %c4: tensor<64xi32> = arith.constant {value = 4}
  %eighths: tensor<64xi32> = arith.divsi %range, %c8
  %quarters: tensor<64xi32> = arith.divsi %range, %c4
  %ps: tensor<64x!tt.ptr<i32>> = tt.splat %p
  %same: tensor<64x!tt.ptr<i32>> = tt.addptr %ps, %eighths
  %ms: tensor<64xi32> = tt.splat %m
  %wide: tensor<64xi1> = arith.cmpi %quarters, %ms {predicate = "slt"}
  %narrow: tensor<64xi1> = arith.cmpi %range, %ms {predicate = "slt"}
  %plain: tensor<64xi32> = tt.load %same
  %masked: tensor<64xi32> = tt.load %same, mask=%wide, other=%c8
  %cut: tensor<64xi32> = tt.load %same, mask=%narrow, other=%c8
  %filled: tensor<64xi32> = tt.load %same, mask=%wide, other=%range
  tt.return
}
"""


@pytest.mark.parametrize(("name", "constancy"), [("plain", 8), ("masked", 4), ("cut", 1), ("filled", 1)])
def test_loaded_numbers_are_as_constant_as_their_pointers_masks_and_others(name: str, constancy: int) -> None:
    known, values = named(LOADS)
    assert known.get(values[name]).constancy == (constancy,)


class RandomTensors:
    """Expressions over two scalars, of which one is divisible by 16."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.function = Func(
            "f", Block([I32, I32, PointerType(F16)]), {}, ({"divisibility": 16}, {}, {"divisibility": 16})
        )
        self.build = Builder(self.function.body)
        self.values: list[Value] = []
        self.conditions: list[Value] = []

    def shape(self) -> tuple[int, ...]:
        return self.values[-1].type.shape  # type: ignore[union-attr]

    def tensor(self, element: Type = I32) -> TensorType:
        return TensorType(self.shape(), element)

    def leaf(self) -> Value:
        size = self.shape() if self.values else (16,)
        kind = self.random.integers(4)
        if kind == 0 and len(size) == 1:
            start = int(self.random.choice([0, 4, 8, 16, 3]))
            return self.build.add(MakeRange(start, start + size[0], TensorType(size, I32))).result
        if kind == 1:
            return self.build.add(
                Constant(int(self.random.choice([1, 2, 3, 4, 7, 8, 12, 16, 48])), TensorType(size, I32))
            ).result
        if kind == 2:
            return self.build.add(
                Splat(self.function.arguments[int(self.random.integers(2))], TensorType(size, I32))
            ).result
        return self.pick()

    def pick(self) -> Value:
        same = [v for v in self.values if v.type == self.tensor()] if self.values else []
        if not same:
            size = self.shape() if self.values else (16,)
            return self.build.add(Splat(self.function.arguments[0], TensorType(size, I32))).result
        return same[int(self.random.integers(len(same)))]

    def step(self) -> None:
        kind = int(self.random.integers(10)) if self.values else 0
        if kind < 6:
            common = [AddI, AddI, SubI, MulI, DivSI, RemSI, AndI, OrI, ShLI, ShRSI, MinSI, MaxSI]
            classes = [*common, SubI, DivUI, RemUI, DivSI, RemSI]
            cls = classes[int(self.random.integers(len(classes)))]
            rhs = self.leaf()
            if cls in (ShLI, ShRSI):
                rhs = self.build.add(Constant(int(self.random.integers(4)), rhs.type)).result
            self.values.append(
                self.build.add(cls(self.leaf() if not self.values else self.pick(), rhs)).result
            )
        elif kind == 6:
            predicate = str(self.random.choice(["slt", "sle", "sgt", "sge", "eq"]))
            self.conditions.append(self.build.add(CmpI(self.pick(), self.leaf(), predicate)).result)
            same = [c for c in self.conditions if c.type == self.tensor(I1)]
            self.values.append(self.build.add(Select(same[-1], self.pick(), self.leaf())).result)
        elif kind == 7 and len(self.shape()) == 1:
            axis = int(self.random.integers(2))
            grown = self.build.add(ExpandDims(self.values[-1], axis)).result
            shape = [*self.shape()]
            shape.insert(axis, 4)
            self.values.append(self.build.add(Broadcast(grown, TensorType(tuple(shape), I32))).result)
        elif kind == 8 and len(self.shape()) == 2:
            self.values.append(self.build.add(Trans(self.values[-1], (1, 0))).result)
        elif kind == 9 and len(self.shape()) == 1 and self.shape()[0] % 4 == 0:
            self.values.append(
                self.build.add(Reshape(self.values[-1], TensorType((self.shape()[0] // 4, 4), I32))).result
            )


def holds(info: Info, values: np.ndarray, unit: int) -> bool:
    """Whether facts are true of numbers."""
    wide = values.astype(np.int64)
    for axis in range(wide.ndim):
        rows = np.moveaxis(wide, axis, -1).reshape(-1, wide.shape[axis])
        groups = rows.reshape(-1, info.contiguity[axis])
        equal = rows.reshape(-1, info.constancy[axis])
        first = rows.reshape(-1, info.prefixes[axis])
        if (
            (np.diff(groups) != unit).any()
            or (np.diff(equal) != 0).any()
            or (groups[:, 0] % info.divisibility[axis]).any()
        ):
            return False
        if values.dtype == np.bool_ and (np.diff(first) > 0).any():
            return False
    return info.constant is None or bool((wide == info.constant).all())


@pytest.mark.parametrize("seed", range(100))
def test_facts_hold_of_what_is_computed(seed: int) -> None:
    tensors = RandomTensors(seed)
    for _ in range(8):
        tensors.step()
    base = tensors.build.add(Splat(tensors.function.arguments[2], tensors.tensor(PointerType(F16)))).result
    tensors.build.add(AddPtr(base, tensors.values[-1]))
    for bound in (tensors.function.arguments[0], tensors.function.arguments[1]):
        limit = tensors.build.add(Splat(bound, tensors.tensor())).result
        steps = tensors.build.add(MakeRange(0, 64, TensorType((64,), I32))).result
        for predicate in ("slt", "sle", "sgt", "sge", "eq", "ult"):
            tensors.conditions.append(tensors.build.add(CmpI(tensors.values[-1], limit, predicate)).result)
            earlier = tensors.conditions[int(tensors.random.integers(len(tensors.conditions)))]
            if earlier.type == tensors.conditions[-1].type:
                tensors.build.add(AndI(earlier, tensors.conditions[-1]))
            tensors.build.add(CmpI(steps, tensors.build.add(Splat(bound, steps.type)).result, predicate))
    tensors.build.add(Return(()))
    for scalars in ((16, 1), (48, 5), (160, 32), (-16, -5), (-64, 3)):
        assert_facts(tensors.function, [np.int32(scalars[0]), np.int32(scalars[1]), np.int64(4096)])


def assert_facts(function: Func, arguments: list[np.generic]) -> None:
    """The facts of all values hold of what the interpreter computes."""
    known = AxisInfo(function)
    machine = Machine(Module([function]), GlobalMemory([]), (0, 0, 0), (1, 1, 1), 0)
    with np.errstate(all="ignore"):
        machine.call(function, arguments)
    beyond: set[Value] = set()
    for op in function.body:
        for value in op.results:
            computed = np.asarray(machine[value])
            by_zero = isinstance(op, DivSI | RemSI | DivUI | RemUI) and not np.all(machine[op.rhs])
            large = bit_width(value.type) == 32 and np.any(np.abs(computed.astype(np.int64)) >= 1 << 30)
            if by_zero or large or any(v in beyond for v in op.operands):
                beyond.add(value)  # Quotients by zero may be anything, and so may sums that overflow.
                continue
            unit = 2 if is_pointer(value.type) else 1
            assert holds(known.get(value), computed, unit), [
                op.op_name,
                *(v.op and v.op.op_name for v in op.operands),
            ]


@pytest.mark.parametrize("start", [0, 3, -16])
@pytest.mark.parametrize("narrow", [None, I8, I16])
def test_facts_hold_of_runs_on_both_sides_of_zero(start: int, narrow: IntType | None) -> None:
    """Consecutive numbers, less a constant or an argument, through a narrow type, in the forms of quotients and
    masks."""
    function = Func("f", Block([I32, I32]), {}, ({"divisibility": 16}, {}))
    build, wide = Builder(function.body), TensorType((64,), I32)

    def add(op: Op) -> Value:
        return build.add(op).results[0]

    run = add(MakeRange(start, start + 64, wide))
    shifts = [add(Constant(number, wide)) for number in (5, 16, -16)] + [
        add(Splat(a, wide)) for a in function.arguments
    ]
    runs = [add(cls(run, shift)) for shift in shifts for cls in (AddI, SubI)]
    if narrow is not None:
        short = [add(TruncI(value, TensorType((64,), narrow))) for value in (run, *shifts, *runs)]
        short += [add(AddI(value, add(Constant(120, value.type)))) for value in short]
        runs = [add(cls(value, wide)) for value in short for cls in (ExtSI, ExtUI)]
    for value in runs:
        add(ExtUI(value, TensorType((64,), I64)))
    for value in (run, *runs):
        for divisor in (add(Constant(number, wide)) for number in (16, -16, 3)):
            for cls in (DivSI, RemSI, DivUI, RemUI, AndI, MinSI, MaxSI):
                add(cls(value, divisor))
            add(CmpI(value, divisor, "slt"))
            add(CmpI(value, divisor, "ult"))
        for cls in (ShRSI, ShRUI, ShLI):
            add(cls(value, add(Constant(3, wide))))
    build.add(Return(()))
    for scalars in ((48, 5), (-16, -5)):
        assert_facts(function, [np.int32(number) for number in scalars])


@pytest.mark.parametrize("size", [128, 256, 512])
def test_runs_end_where_a_narrow_type_does(size: int) -> None:
    """127 is followed by -128: what is extended again runs on for half of the type's numbers at most."""
    function = Func("f", Block([]), {}, ())
    build, wide = Builder(function.body), TensorType((size,), I32)
    short = build.add(TruncI(build.add(MakeRange(0, size, wide)).result, TensorType((size,), I8))).result
    run = build.add(ExtSI(short, wide)).result
    build.add(Return(()))
    assert AxisInfo(function).get(run).contiguity == (128,)
    assert_facts(function, [])
