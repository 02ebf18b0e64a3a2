"""Every elementwise row, in every type it can have, compiles to PTX that ptxas assembles, for every
architecture."""

from __future__ import annotations

import pytest

from kbuild.compiler.backend.cubin import assemble
from kbuild.compiler.backend.llvm import to_ptx
from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func, Module, Value
from kbuild.compiler.ir.types import (
    BF16,
    F8E4M3B15,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PointerType,
    TensorType,
    Type,
    element_of,
)
from kbuild.compiler.layout import default_blocked
from kbuild.compiler.lower import lower_module
from kbuild.compiler.lower.math.functions import has_math
from kbuild.compiler.ops import elementwise as rows
from kbuild.compiler.ops.control import Return
from kbuild.compiler.ops.tensor import Load, MakeRange, Splat, Store
from kbuild.targets import find_target

LAYOUT = default_blocked((64,), 1)
INTEGERS, FLOATS, TINY = (I1, I8, I16, I32, I64), (F16, BF16, F32, F64), (F8E4M3FN, F8E5M2)
F64_MISSING = (rows.PowF, rows.Erf, rows.ATan, rows.ATan2, rows.ASin, rows.ACos)


def tensor(element: Type) -> TensorType:
    return TensorType((64,), element, LAYOUT)


class Kernel:
    """A kernel that loads tensors of all types once, and stores what each row makes of them."""

    def __init__(self) -> None:
        self.block = Block()
        self.build = Builder(self.block)
        self.loaded: dict[tuple[Type, int], Value] = {}
        self.offsets = self.build.add(MakeRange(0, 64, type=tensor(I32))).result
        self.stores = 0

    def pointers(self, element: Type) -> Value:
        base = self.block.add_argument(PointerType(element))
        splat = self.build.add(Splat(base, tensor(PointerType(element)))).result
        return self.build.add(rows.AddPtr(splat, self.offsets)).result

    def value(self, element: Type, number: int) -> Value:
        if (element, number) not in self.loaded:
            self.loaded[element, number] = self.build.add(Load(self.pointers(element))).result
        return self.loaded[element, number]

    def keep(self, result: Value) -> None:
        self.build.add(Store(self.pointers(element_of(result.type)), result))

    def compile(self, arch: str) -> bytes:
        self.build.add(Return(()))
        func = Func("rows", self.block, {"num_warps": 1})
        target = find_target(arch)
        return assemble(to_ptx(lower_module(Module([func]), target), target), arch)[0]


def arithmetic_rows():
    for cls in vars(rows).values():
        row = isinstance(cls, type) and issubclass(cls, rows.Elementwise) and cls.op_name
        if row and not issubclass(cls, rows.Cast) and cls not in (rows.AddPtr, rows.Select):
            yield cls


def types_of(cls) -> tuple[Type, ...]:
    integer = cls.op_name.endswith(("i", "ui", "si")) or cls in (rows.CountOnes, rows.CountLeadingZeros)
    if cls.op_name.startswith("arith.") and integer and not cls.op_name.endswith("f"):
        return INTEGERS
    if integer:
        return INTEGERS[1:]
    return FLOATS[:-1] if cls in F64_MISSING else FLOATS


def fields_of(cls, element: Type) -> dict:
    if issubclass(cls, rows.Compare):
        return {"predicate": "slt" if cls is rows.CmpI else "olt"}
    return {}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_row_in_every_type_assembles(arch):
    kernel = Kernel()
    for cls in arithmetic_rows():
        for element in types_of(cls):
            operands = [kernel.value(element, number) for number in range(len(cls.operand_fields))]
            kernel.keep(kernel.build.add(cls(*operands, **fields_of(cls, element))).result)
    assert kernel.compile(arch)[:4] == b"\x7fELF"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_conversion_assembles(arch):
    kernel = Kernel()
    floats = (*TINY, *FLOATS)
    for old in floats:
        for new in floats:
            if old.bits < new.bits:
                kernel.keep(kernel.build.add(rows.ExtF(kernel.value(old, 0), tensor(new))).result)
            elif old != new:
                kernel.keep(kernel.build.add(rows.TruncF(kernel.value(old, 0), tensor(new))).result)
        for new in INTEGERS[1:]:
            for cls in (rows.FPToSI, rows.FPToUI):
                kernel.keep(kernel.build.add(cls(kernel.value(old, 0), tensor(new))).result)
    for old in INTEGERS:
        for new in floats:
            for cls in (rows.SIToFP, rows.UIToFP):
                kernel.keep(kernel.build.add(cls(kernel.value(old, 0), tensor(new))).result)
        for new in INTEGERS:
            for cls in (
                (rows.ExtSI, rows.ExtUI)
                if old.bits < new.bits
                else (rows.TruncI,)
                if old.bits > new.bits
                else ()
            ):
                kernel.keep(kernel.build.add(cls(kernel.value(old, 0), tensor(new))).result)
    for new in (F16, BF16, F8E4M3FN, F8E5M2):
        kernel.keep(kernel.build.add(rows.TruncF(kernel.value(F32, 0), tensor(new), rounding="rtz")).result)
    kernel.keep(kernel.build.add(rows.ExtF(kernel.value(F8E4M3B15, 0), tensor(F16))).result)
    kernel.keep(kernel.build.add(rows.TruncF(kernel.value(F16, 0), tensor(F8E4M3B15), rounding="rna")).result)
    for old, new in ((F32, I32), (I16, BF16), (F64, I64), (F8E5M2, I8), (F16, BF16)):
        kernel.keep(kernel.build.add(rows.Bitcast(kernel.value(old, 0), tensor(new))).result)
    for element in (*INTEGERS, *floats):
        picked = rows.Select(kernel.value(I1, 0), kernel.value(element, 0), kernel.value(element, 1))
        kernel.keep(kernel.build.add(picked).result)
    assert kernel.compile(arch)[:4] == b"\x7fELF"


def test_rows_are_by_formula_or_by_instruction():
    assert all(not (cls.llvm and has_math(cls)) for cls in arithmetic_rows())
