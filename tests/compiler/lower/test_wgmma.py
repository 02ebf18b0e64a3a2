"""Warpgroup dots, executed as the PTX manual describes the instruction, thread by thread and byte by byte."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kbuild.compiler.interp import decode, encode
from kbuild.compiler.ir.core import Block, Func
from kbuild.compiler.ir.types import F8E4M3FN, F16, F32, I8, I32, MemDescType, TensorType, Type, bit_width
from kbuild.compiler.layout import coalesced, dot_operand, in_pairs, wgmma_accumulator, wgmma_shared
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.lowering import lower_block
from kbuild.compiler.ops.elementwise import Constant
from kbuild.compiler.ops.gpu import LocalAlloc
from kbuild.compiler.ops.nvidia import WarpGroupDot, WarpGroupDotWait
from kbuild.compiler.ops.tensor import Barrier
from kbuild.targets import find_target
from tests.compiler.lower.simt import Machine, collected, hardware

SM_90 = find_target("sm_90")
READ = {"f16": np.float16, "tf32": np.float32, "s8": np.int8}
ELEMENTS: dict[Type, str] = {F16: "f16", F32: "tf32", I8: "s8", F8E4M3FN: "e4m3"}


def fields(pattern: str, text: str) -> tuple[str, ...]:
    """The groups of the first match, which there must be."""
    found = re.search(pattern, text)
    assert found is not None, f"not understood: {text}"
    return found.groups()


class WarpGroupMachine(Machine):
    """Knows the inline assembly of wgmmas, whose tuples of results are lists of registers."""

    def do_ptrtoint(self, text: str) -> np.ndarray:
        return self.value(text.split()[3], "ptr addrspace(3)").astype(np.int32)

    def do_extractvalue(self, text: str) -> np.ndarray:
        name, index = fields(r"extractvalue \{.*\} (\S+), (\d+)", text)
        return self.registers[name][int(index)]

    def do_call(self, text: str) -> np.ndarray | list[np.ndarray] | None:
        found = re.fullmatch(r'call (?:.*) asm sideeffect "(.*)", "(.*)"\((.*)\) convergent', text)
        if found is None:
            return super().do_call(text)
        template, constraints, arguments = found[1].replace("\\0A", "\n"), found[2].split(","), found[3]
        results = sum(each.startswith("=") for each in constraints)
        operands = [self.value(a.rsplit(" ", 1)[1], a.rsplit(" ", 1)[0]) for a in arguments.split(", ") if a]
        tied = {int(each): operands[n] for n, each in enumerate(constraints[results:]) if each.isdigit()}
        registers = {f"${n}": operand for n, operand in tied.items()}
        registers.update({f"${results + n}": operand for n, operand in enumerate(operands)})
        for line in template.splitlines()[1:-1] if template.startswith("{") else template.splitlines():
            self.count[line.split(".")[0]] = self.count.get(line.split(".")[0], 0) + 1
            if line.startswith("add.s32"):
                target, source, amount = fields(r"add.s32 (\w+), (\$\d+), (\d+);", line)
                registers[target] = registers[source] + np.int32(amount)
            elif line.startswith("mov.b64"):
                target, low, high = fields(r"mov.b64 (\w+), \{(\w+), (\d+)\};", line)
                assert target not in registers, "two steps share a descriptor"
                registers[target] = registers[low].astype(np.int64) & 0xFFFFFFFF | np.uint64(
                    int(high) << 32
                ).astype(np.int64)
            elif line.startswith("mov"):
                target, source = fields(r"mov.b32 (\$\d+), (\$\d+);", line)
                registers[target] = registers[source]
            elif line.startswith("wgmma.mma_async"):
                self.multiply(line, registers)
        values = [registers[f"${n}"] for n in range(results)]
        return values[0] if results == 1 else values

    def multiply(self, line: str, registers: dict[str, np.ndarray]) -> None:
        """One instruction: every warpgroup multiplies what its descriptors name."""
        n, k, kind = fields(r"m64n(\d+)k(\d+)\.\w+\.(\w+)\.", line)
        assert (self.writer == -1).all(), "the memory was written after the last barrier"
        sums, left, right, scale, immediates = fields(r" \{(.*?)\}, (\w+|\{.*?\}), (\w+), ([01])(.*);", line)
        flags = [int(flag) for flag in immediates.split(", ")[3:]]
        names = sums.split(", ")
        if scale == "0":
            registers.update(
                {
                    name: np.zeros(len(self.threads), np.int32 if kind == "s8" else np.float32)
                    for name in names
                }
            )
        for group in range(len(self.threads) // 128):
            threads = slice(128 * group, 128 * group + 128)
            b = self.tile(registers[right][threads], int(n), int(k), kind, flags[-1] if flags else 0)
            if left in registers:
                a = self.tile(registers[left][threads], 64, int(k), kind, flags[0] if flags else 0)
            else:
                words = [registers[name][threads] for name in left.strip("{}").split(", ")]
                a = fragment_of_a(words, int(k), kind)
            total = a.astype(np.float64) @ b.astype(np.float64).T
            for index, name in enumerate(names):
                rows, columns = place_of_d(index)
                registers[name] = registers[name].copy()
                registers[name][threads] += total[rows, columns].astype(registers[name].dtype)

    def tile(self, descriptors: np.ndarray, outer: int, depth: int, kind: str, transposed: int) -> np.ndarray:
        """The operand, outer × depth, that a descriptor names (PTX ISA, "Strides", canonical layouts)."""
        assert (descriptors == descriptors[0]).all(), "all threads of a warpgroup give the same descriptor"
        bits = int(descriptors[0]) & (1 << 64) - 1
        start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        width, size = {1: 128, 2: 64, 3: 32}[bits >> 62], {"f16": 2, "tf32": 4, "s8": 1, "e4m3": 1}[kind]
        i, j = np.arange(outer)[:, None], np.arange(depth)[None, :]
        if transposed:
            assert size == 2
            panel = width // size
            address = start + i // panel * leading + i % panel * size + j // 8 * stride + j % 8 * width
        else:
            assert start % width + depth * size <= width, "a step does not leave its panel"
            address = start + i // 8 * stride + i % 8 * width + j * size
        address = address ^ (address >> 7 & width // 16 - 1) << 4
        return numbers(self.shared[address[..., None] + np.arange(size)], kind)


def numbers(data: np.ndarray, kind: str) -> np.ndarray:
    """Elements given by their bytes, along the last axis."""
    if kind == "e4m3":
        return decode(data[..., 0], F8E4M3FN)
    return np.ascontiguousarray(data).view(READ[kind])[..., 0]


def place_of_d(index: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of register `index` of D, for the threads of a warpgroup."""
    thread = np.arange(128)
    return 16 * (thread // 32) + thread % 32 // 4 + 8 * (index >> 1 & 1), 8 * (index >> 2) + 2 * (
        thread % 4
    ) + (index & 1)


def fragment_of_a(words: list[np.ndarray], k: int, kind: str) -> np.ndarray:
    """A from its four registers: row g (+8 in odd ones), 32 bits from column 4·t bytes (+16 in the last two)
    on."""
    data = np.zeros((64, k * 32 // k), np.uint8)
    thread = np.arange(128)
    for index, word in enumerate(words):
        rows = 16 * (thread // 32) + thread % 32 // 4 + 8 * (index & 1)
        for byte in range(4):
            data[rows, 4 * (thread % 4) + 16 * (index >> 1) + byte] = word.view(np.uint8).reshape(128, 4)[
                :, byte
            ]
    return numbers(data.reshape(64, k, -1), kind)


def check_dot(
    element: Type, shape: tuple[int, int, int], warps: tuple[int, int], n: int, orders: str, zero: bool
) -> Machine:
    """Lower one dot whose tiles are stored from registers, run it, and compare.  `orders` says for A and B which
    of m, n, k is contiguous in memory, or for A in registers `r`, or `p` where the elements along k are in pairs."""
    m, columns, k = shape
    generator = np.random.default_rng(0)
    accumulator = I32 if element == I8 else F32
    bits = bit_width(element)
    atom = next(a for a in SM_90.wgmma_atoms if (a.a, a.b, a.n) == (str(element), str(element), n))
    block, inputs, values = Block(), {}, []
    offset = 0
    for index, (rows, cols) in enumerate(((m, k), (k, columns))):
        array = generator.integers(-3, 4, (rows, cols))
        values.append(array)
        held = encode(array.astype(np.float32), element).view(
            np.int8 if element == F8E4M3FN else READ[ELEMENTS[element]]
        )
        in_registers = orders[index] in "rp"
        first_contiguous = orders[index] == ("m" if index == 0 else "k")
        order = (0, 1) if first_contiguous else (1, 0)
        layout = coalesced((rows, cols), order, 8, warps[0] * warps[1])
        if in_registers:
            layout = dot_operand((m, k), warps, 0, 2 if orders[0] == "p" else atom.k_width)
        source = Block([TensorType((rows, cols), element, layout)]).arguments[0]
        inputs[source] = (held, source)
        if not in_registers:
            contiguous = k if orders[index] == "k" else 64 if index == 0 else n
            tile = wgmma_shared((rows, cols), bits, min(128, contiguous * bits // 8), first_contiguous)
            if orders[0] == "p":
                tile = in_pairs(tile, 0)
            alloc = LocalAlloc(MemDescType((rows, cols), element, tile), source, offset)
            block.append(alloc)
            offset += rows * cols * bits // 8
            source = alloc.result
        values.append(source)
    c_type = TensorType((m, columns), accumulator, wgmma_accumulator((m, columns), warps, n))
    start = generator.integers(-3, 4, (m, columns)).astype(np.int32 if element == I8 else np.float32)
    c = Block([c_type]).arguments[0]
    inputs[c] = (start, c)
    if zero:
        start = np.zeros_like(start)
        c = block.append(Constant.of(0, c_type)).results[0]
    block.append(Barrier())
    dot = block.append(WarpGroupDot(values[1], values[3], c, atom.name, is_async=True))
    result = block.append(WarpGroupDotWait((dot.results[0],), 0)).results[0]
    warp_bits = (warps[0] * warps[1]).bit_length() - 1
    emit = Emitter(Func("kernel", block, {"num_warps": warps[0] * warps[1]}), SM_90)
    registers: dict[str, np.ndarray] = {}
    for number, (array, value) in enumerate(inputs.values()):
        places = hardware(value.type.layout, warp_bits)
        emit.bind(value, [f"%in{number}.{register}" for register in range(len(places))])
        registers.update({f"%in{number}.{r}": array.reshape(-1)[flat] for r, flat in enumerate(places)})
    lower_block(emit, block)
    names = list(emit.registers(result))
    machine = WarpGroupMachine(registers, warps[0] * warps[1], offset)
    machine.run(emit.finish())
    np.testing.assert_array_equal(
        collected(machine, result.type, names, warp_bits), values[0] @ values[2] + start
    )
    return machine


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("orders", ["kn", "kk", "mn", "mk", "rn", "rk"])
@pytest.mark.parametrize(
    ("shape", "warps", "n"),
    [
        ((64, 64, 64), (4, 1), 64),
        ((128, 32, 64), (4, 1), 32),
        ((64, 64, 32), (4, 2), 32),
        ((256, 128, 32), (8, 1), 128),
        ((64, 256, 128), (4, 2), 64),
        ((64, 16, 16), (4, 1), 16),
    ],
)
def test_16_bits(shape, warps, n, orders, zero):
    machine = check_dot(F16, shape, warps, n, orders, zero)
    m, columns, k = shape
    assert machine.count["wgmma"] - 3 == max(1, m // 16 // warps[0]) * (columns // n // warps[1]) * k // 16


@pytest.mark.parametrize("orders", ["kk", "rk"])
@pytest.mark.parametrize("element", [F32, I8, F8E4M3FN])
def test_other_types_are_contiguous_along_k(element, orders):
    check_dot(element, (128, 32, 64), (4, 1), 32, orders, False)


@pytest.mark.parametrize(
    ("shape", "warps"), [((128, 32, 64), (4, 1)), ((64, 64, 32), (4, 2)), ((64, 32, 8), (4, 1))]
)
def test_both_operands_in_pairs_along_k(shape, warps):
    check_dot(F32, shape, warps, 32, "pk", False)
