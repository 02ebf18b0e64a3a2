"""Runs the LLVM text that the lowering emits, on the CPU: all threads of a program in lockstep, one numpy
array per register.

Knows the straight-line subset (forward branches only) that collective operations are lowered to.  Addresses
of shared memory start at 0.  A thread that reads what another warp wrote since the last barrier is an error.
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Sequence

import numpy as np

from kbuild.compiler.analysis.scratch import scratch_bytes
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.types import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    TensorType,
    Type,
    element_of,
    layout_of,
)
from kbuild.compiler.layout import LinearLayout, default_blocked
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.lowering import lower_block
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.tensor import ReduceReturn
from kbuild.targets import find_target

DTYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
}
TYPE = r"(?:range\([^)]*\) )?(<\d+ x \w+>|ptr addrspace\(\d\)|\w+)"
UNSIGNED = {1: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "fadd": np.add,
    "fmul": np.multiply,
    "shl": np.left_shift,
    "ashr": np.right_shift,
}
COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
CALLS = {
    "smax": np.maximum,
    "smin": np.minimum,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "maxnum": np.fmax,
    "minnum": np.fmin,
}
REDUX = {
    "add": np.sum,
    "max": np.max,
    "min": np.min,
    "or": np.bitwise_or.reduce,
    "and": np.bitwise_and.reduce,
    "xor": np.bitwise_xor.reduce,
}


def unsigned(values: np.ndarray) -> np.ndarray:
    return values.view(UNSIGNED[8 * values.dtype.itemsize])


def matched(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text)
    assert found is not None, f"not understood: {text}"
    return found


class Machine:
    """One program of `warps` warps; `registers` maps names to arrays over its threads."""

    def __init__(self, registers: dict[str, np.ndarray], warps: int, shared_bytes: int) -> None:
        self.threads = np.arange(32 * warps)
        self.registers = registers
        self.shared = np.full(shared_bytes, 0xA5, np.uint8)
        self.writer = np.full(shared_bytes, -1)
        self.active = np.ones(len(self.threads), bool)
        self.arriving: dict[str, np.ndarray] = {}
        self.count: dict[str, int] = {}

    def run(self, lines: list[str]) -> None:
        for line in lines:
            text = line.strip()
            if text.endswith(":"):
                self.active = self.arriving[text[:-1]]
                continue
            name, _, instruction = text.partition(" = ") if text.startswith("%") else ("", "", text)
            opcode = instruction.split()[0]
            self.count[opcode] = self.count.get(opcode, 0) + 1
            with np.errstate(all="ignore"):
                result = getattr(self, f"do_{opcode}", self.binary)(instruction)
            if name:
                self.registers[name] = result

    def value(self, text: str, type_: str) -> np.ndarray:
        if text in self.registers:
            return self.registers[text]
        if vector := re.match(r"<(\d+) x (\w+)>", type_):
            assert text == "poison"
            return np.zeros((len(self.threads), int(vector[1])), DTYPES[vector[2]])
        if type_.startswith("ptr"):
            assert text == "@shared", text
            return np.zeros(len(self.threads), np.int64)
        dtype = DTYPES[type_]
        if text.startswith("0x"):
            bits = int(text.lstrip("0xH"), 16) if text != "0x0" else 0
            number = np.uint16(bits).view(np.float16) if "H" in text else np.uint64(bits).view(np.float64)
        else:
            number = {"true": True, "false": False, "poison": 0}.get(text) if text.isalpha() else int(text)
        return np.full(len(self.threads), number).astype(dtype)

    def binary(self, text: str) -> np.ndarray:
        opcode, type_, left, right = matched(rf"(\w+)(?: disjoint)? {TYPE} ([^,]+), ([^,]+)", text).groups()
        a, b = self.value(left, type_), self.value(right, type_)
        if opcode == "or" and " disjoint " in text:
            assert not (a & b).any(), text
        if opcode == "lshr":
            return (unsigned(a) >> unsigned(b)).view(a.dtype)
        return BINARY[opcode](a, b)

    def do_icmp(self, text: str) -> np.ndarray:
        predicate, type_, left, right = matched(rf"[if]cmp (\w+) {TYPE} ([^,]+), ([^,]+)", text).groups()
        a, b = self.value(left, type_), self.value(right, type_)
        if predicate[0] == "u" and text.startswith("i"):
            a, b = unsigned(a), unsigned(b)
        return np.isnan(a) | np.isnan(b) if predicate == "uno" else COMPARE[predicate[-2:]](a, b)

    do_fcmp = do_icmp

    def do_select(self, text: str) -> np.ndarray:
        match = matched(rf"select i1 ([^,]+), {TYPE} ([^,]+), {TYPE} ([^,]+)", text)
        return np.where(
            self.value(match[1], "i1"), self.value(match[3], match[2]), self.value(match[5], match[4])
        )

    def do_zext(self, text: str) -> np.ndarray:
        opcode, source, name, result = matched(rf"(\w+) {TYPE} (\S+) to {TYPE}", text).groups()
        value = self.value(name, source)
        if opcode == "bitcast":
            viewed = np.ascontiguousarray(value).view(DTYPES[result.strip("<>").split()[-1]])
            return viewed.reshape(len(self.threads), -1) if result.startswith("<") else viewed.reshape(-1)
        if opcode == "zext" and value.dtype != bool:
            value = unsigned(value)
        return (value & 1 != 0) if result == "i1" else value.astype(DTYPES[result])

    do_sext = do_trunc = do_bitcast = do_zext

    def do_insertelement(self, text: str) -> np.ndarray:
        match = matched(rf"insertelement {TYPE} (\S+), {TYPE} (\S+), i32 (\d+)", text)
        vector = self.value(match[2], match[1]).copy()
        vector[:, int(match[5])] = self.value(match[4], match[3])
        return vector

    def do_extractelement(self, text: str) -> np.ndarray:
        match = matched(rf"extractelement {TYPE} (\S+), i32 (\d+)", text)
        return self.value(match[2], match[1])[:, int(match[3])]

    def do_getelementptr(self, text: str) -> np.ndarray:
        match = matched(rf"getelementptr i8, {TYPE} (\S+), (?:i32|i64) (\S+)", text)
        return self.value(match[2], match[1]) + self.value(match[3], "i32")

    def places(self, pointer: str, size: int, align: int) -> np.ndarray:
        """Addresses of the bytes that each active thread accesses."""
        start = self.value(pointer, "ptr addrspace(3)")[self.active]
        assert not (start % align).any() and align == size, f"{pointer} is not aligned to its {size} bytes"
        return start[:, None] + np.arange(size)

    def do_load(self, text: str) -> np.ndarray:
        match = matched(rf"load {TYPE}, ptr addrspace\(3\) (\S+), align (\d+)", text)
        result = self.value("poison", match[1]).copy()
        size = result[:1].nbytes
        places = self.places(match[2], size, int(match[3]))
        writers, own = self.writer[places], (self.threads[self.active] // 32)[:, None]
        assert ((writers == -1) | (writers == own)).all(), f"read before a barrier: {text}"
        result[self.active] = self.shared[places].view(result.dtype).reshape(result[self.active].shape)
        return result

    def do_store(self, text: str) -> None:
        match = matched(rf"store {TYPE} (\S+), ptr addrspace\(3\) (\S+), align (\d+)", text)
        value = np.ascontiguousarray(self.value(match[2], match[1])[self.active])
        places = self.places(match[3], value[:1].nbytes, int(match[4]))
        self.shared[places] = value.view(np.uint8).reshape(places.shape)
        self.writer[places] = (self.threads[self.active] // 32)[:, None]

    def do_atomicrmw(self, text: str) -> np.ndarray:
        match = matched(rf"atomicrmw add ptr addrspace\(3\) (\S+), {TYPE} (\S+) .*", text)
        value = self.value(match[3], match[2])
        places = self.places(match[1], value.itemsize, value.itemsize)[:, 0] // value.itemsize
        np.add.at(self.shared.view(value.dtype), places, value[self.active])
        return value

    def do_call(self, text: str) -> np.ndarray | list[np.ndarray] | None:
        name, arguments = matched(r".*@llvm\.([\w.]+)\((.*)\)", text).groups()
        operands = [self.value(a.rsplit(" ", 1)[1], a.rsplit(" ", 1)[0]) for a in arguments.split(", ") if a]
        self.count[name] = self.count.get(name, 0) + 1
        if name == "nvvm.read.ptx.sreg.tid.x":
            return self.threads.astype(np.int32)
        if "barrier" in name:
            assert self.active.all(), "a barrier that not all threads reach"
            self.writer[:] = -1
            return None
        if name.startswith(("nvvm.shfl", "nvvm.redux", "nvvm.bar.warp")):
            lanes = self.active.reshape(-1, 32).sum(axis=1)
            assert ((lanes == 0) | (lanes == 32)).all(), f"{name}: not all lanes of a warp reach it"
            if "bar.warp" in name:
                return None
            return (
                self.shuffle(name, operands)
                if "shfl" in name
                else self.redux(name.rsplit(".", 1)[1], operands[0])
            )
        function = CALLS[name.split(".")[0]]
        return function(*operands)

    def shuffle(self, name: str, operands: list[np.ndarray]) -> np.ndarray:
        _, value, lane, clamp = operands
        if "bfly" in name:
            return value[self.threads ^ lane]
        if ".up." in name or ".down." in name:
            from_ = self.threads % 32 + (lane if ".down." in name else -lane)
            return np.where((from_ >= 0) & (from_ < 32), value[self.threads // 32 * 32 + from_ % 32], value)
        segment = clamp >> 8 & 31
        return value[self.threads // 32 * 32 + (self.threads & segment | lane & 31 & ~segment)]

    def redux(self, name: str, value: np.ndarray) -> np.ndarray:
        warps = value.reshape(-1, 32)
        if name.startswith("u"):
            return np.repeat(REDUX[name[1:]](unsigned(warps), axis=1), 32).view(np.int32)
        return np.repeat(REDUX[name](warps, axis=1), 32).astype(np.int32)

    def do_br(self, text: str) -> None:
        if condition := re.fullmatch(r"br i1 (\S+), label %(\w+), label %(\w+)", text):
            holds = self.value(condition[1], "i1")
            edges = [(condition[2], self.active & holds), (condition[3], self.active & ~holds)]
        else:
            edges = [(text.rsplit("%", 1)[1], self.active)]
        for label, threads in edges:
            self.arriving[label] = self.arriving.get(label, False) | threads


# -- an operation by itself: lowered, run, and collected from all threads that hold it ---------------------------

NUMPY: dict[Type, type] = {
    I1: np.bool_,
    I8: np.int8,
    I16: np.int16,
    I32: np.int32,
    I64: np.int64,
    F16: np.float16,
    F32: np.float32,
    F64: np.float64,
}


def bit_permutation(source: random.Random, shape: Sequence[int], warps: int, copies: int = 1) -> LinearLayout:
    """A layout whose every bit is one bit of one axis, in any order, some of them copies."""
    tensor = [1 << bit for bit in range((LinearLayout.make(shape).numel - 1).bit_length())]
    bases = tensor + [0] * max(copies, 5 + warps - len(tensor))
    source.shuffle(bases)
    return LinearLayout.make(shape, lane=bases[:5], warp=bases[5 : 5 + warps], register=bases[5 + warps :])


def combine(types: Sequence[Type], make: Callable[[Builder, list[Value]], Sequence[Value]]) -> Block:
    """A combine function; `make` writes its body."""
    block = Block([*types, *types])
    build = Builder(block)
    build.add(ReduceReturn(tuple(make(build, block.arguments))))
    return block


def apply(cls: type[Op]) -> Callable[[Builder, list[Value]], list[Value]]:
    return lambda build, arguments: [build.add(cls(*arguments)).result]


def largest_first(build: Builder, arguments: list[Value]) -> list[Value]:
    """The larger value with its index; of equal values the one with the lower index."""
    a, i, b, j = arguments
    greater = build.add(rows.CmpF(a, b, "ogt")).result
    equal = build.add(rows.CmpF(a, b, "oeq")).result
    before = build.add(rows.CmpI(i, j, "slt")).result
    tie = build.add(rows.AndI(equal, before)).result
    wins = build.add(rows.OrI(greater, tie)).result
    return [build.add(rows.Select(wins, a, b)).result, build.add(rows.Select(wins, i, j)).result]


def affine(build: Builder, arguments: list[Value]) -> list[Value]:
    """Composition of x → m·x + c, which does not commute."""
    m, c, n, d = arguments
    product, scaled = build.add(rows.MulI(m, n)).result, build.add(rows.MulI(c, n)).result
    return [product, build.add(rows.AddI(scaled, d)).result]


def execute(
    op: Op, warps: int, inputs: dict[Value, np.ndarray], share: int = 1
) -> tuple[list[np.ndarray], Machine]:
    """Lower an operation alone, run it, and gather its results; every place that holds an element must agree.  It
    gets one part in `share` of the memory that it would take."""
    size = scratch_bytes(op, 1 << warps)
    if share > 1 and size >= share:
        op.__dict__["max_scratch"] = size // share
        size = scratch_bytes(op, 1 << warps)
    op.__dict__["scratch"] = 16 if size else None
    block = Block()
    block.append(op)
    emit = Emitter(Func("kernel", block, {"num_warps": 1 << warps}), find_target("sm_90"))
    registers: dict[str, np.ndarray] = {}
    for number, (value, array) in enumerate(inputs.items()):
        places = hardware(layout_of(value.type) or default_blocked((), 1), warps)
        emit.bind(value, [f"%in{number}.{register}" for register in range(len(places))])
        registers.update({f"%in{number}.{r}": array.reshape(-1)[flat] for r, flat in enumerate(places)})
    lower_block(emit, block)
    found = [list(emit.registers(result)) for result in op.results]
    machine = Machine(registers, 1 << warps, size + 16)
    machine.run(emit.finish())
    assert (machine.shared[:16] == 0xA5).all()
    return [
        collected(machine, result.type, names, warps) for result, names in zip(op.results, found)
    ], machine


def hardware(layout: LinearLayout, warps: int) -> np.ndarray:
    """The flat coordinate that each register (first axis) of each thread (second axis) holds."""
    threads = [layout.flat(lane=thread & 31, warp=thread >> 5) for thread in range(32 << warps)]
    return np.array(layout.registers())[:, None] ^ np.array(threads)[None, :]


def collected(machine: Machine, type_: Type, names: list[str], warps: int) -> np.ndarray:
    layout, element = layout_of(type_) or default_blocked((), 1 << warps), element_of(type_)
    result = np.zeros(layout.numel, NUMPY[element])
    llvm = next(name for name, dtype in DTYPES.items() if dtype == NUMPY[element])
    places = hardware(layout, warps)
    assert len(names) == len(places)
    held = [machine.value(name, llvm) for name in names]
    for flat, values in zip(places, held):
        result[flat] = values
    for flat, values in zip(places, held):
        np.testing.assert_array_equal(result[flat], values, "holders of copies disagree")
    return result.reshape(layout.shape)


def operands(
    layout: LinearLayout, types: Sequence[Type], rng: np.random.Generator
) -> dict[Value, np.ndarray]:
    """Tensors of small random numbers."""
    block = Block([TensorType(layout.shape, type_, layout) for type_ in types])
    ranges = [(0, 2) if type_ == I1 else (-3, 4) for type_ in types]
    arrays = [
        rng.integers(*limits, layout.shape).astype(NUMPY[type_]) for limits, type_ in zip(ranges, types)
    ]
    return dict(zip(block.arguments, arrays))
