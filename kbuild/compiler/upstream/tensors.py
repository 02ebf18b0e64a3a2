"""Operations on tensors that need more than a row: constants, shapes, loads, casts, reductions, text for the GPU."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import (
    F16,
    I1,
    I32,
    I64,
    FloatType,
    IntType,
    PointerType,
    TensorType,
    Type,
    bit_width,
    element_of,
    is_pointer,
    is_tensor,
    like,
    pointee_of,
)
from kbuild.compiler.layout import slice_of
from kbuild.compiler.ops.elementwise import (
    AddI,
    AndI,
    Bitcast,
    CmpF,
    Constant,
    ExtF,
    ExtSI,
    IntToPtr,
    IsNan,
    OrI,
    Select,
    TruncF,
    TruncI,
    XOrI,
)
from kbuild.compiler.ops.tensor import (
    Assert,
    Broadcast,
    GetNumPrograms,
    GetProgramId,
    GridDependencyWait,
    InlineAsm,
    LaunchDependents,
    Load,
    MakeTensorDescriptor,
    MakeTensorPtr,
    MapElementwise,
    Print,
    Reduce,
    Reshape,
    Scan,
    Splat,
    Split,
)
from kbuild.compiler.upstream.attributes import Dense, numbers_in
from kbuild.compiler.upstream.building import Building, Results, Row, reads
from kbuild.compiler.upstream.control import region
from kbuild.compiler.upstream.rows import MEMORY_ATTRIBUTES
from kbuild.compiler.upstream.syntax import RawOp

_AXES = {"x": 0, "y": 1, "z": 2}
_LAUNCHES = {"griddepcontrol.wait": GridDependencyWait, "griddepcontrol.launch_dependents": LaunchDependents}
"""Instructions that Triton's `tl.extra.cuda.gdc_wait` and `gdc_launch_dependents` are."""
_ROUND_TO_TF32 = "cvt.rna.tf32.f32 $0, $1;"
"""The text by which Triton rounds the operands of a dot in several tf32."""
_PADDINGS = {"pad_zero": "zero", "pad_nan": "nan"}


@reads("kbuild.alias")
def read_alias(building: Building, op: RawOp) -> Results:
    """The argument of a block, which is what was passed to it."""
    return [building.operand(op, 0)]


@reads("tt.get_program_id")
def read_program_id(building: Building, op: RawOp) -> Results:
    return building.add(GetProgramId(_AXES[op.words[0]] if op.words else op.attributes["axis"])).results


@reads("tt.get_num_programs")
def read_num_programs(building: Building, op: RawOp) -> Results:
    return building.add(GetNumPrograms(_AXES[op.words[0]] if op.words else op.attributes["axis"])).results


@reads("arith.constant")
def read_constant(building: Building, op: RawOp) -> Results:
    type_, value = building.result_type(op), op.literals[0]
    if isinstance(value, Dense):
        numbers = [*dict.fromkeys(numbers_in(value.value))]
        if len(numbers) != 1 or isinstance(numbers[0], str):
            building.fail(op, "a tensor of different constants", "kbuild has those of one number")
        value = numbers[0]
    return [_constant(building, value, type_)]


@reads("ub.poison", "llvm.mlir.undef", "llvm.mlir.poison")
def read_poison(building: Building, op: RawOp) -> Results:
    """Any number will do."""
    return [_constant(building, 0, building.result_type(op))]


def _constant(building: Building, value: Any, type_: Type) -> Value:
    if is_pointer(type_):
        return building.add(IntToPtr(building.add(Constant(value, like(type_, I64))).result, type_)).result
    element = element_of(type_)
    if isinstance(element, IntType) and element.bits == 1:
        value = bool(value)
    elif isinstance(element, FloatType):
        # What the text has, which may not be rounded to the type.
        return building.add(Constant.of(value, type_)).result
    return building.add(Constant(value, type_)).result


@reads("tt.splat")
def read_splat(building: Building, op: RawOp) -> Results:
    return building.add(Splat(building.operand(op, 0), building.result_type(op))).results


@reads("tt.broadcast")
def read_broadcast(building: Building, op: RawOp) -> Results:
    """No data moves between threads: the operand has the layout of the result without the repeated axes."""
    source, type_ = building.operand(op, 0), building.result_type(op)
    assert isinstance(type_, TensorType) and isinstance(source.type, TensorType)
    layout = type_.layout
    for axis, size in enumerate(source.type.shape if layout is not None else ()):
        if size == 1 and layout is not None and layout.shape[axis] != 1:
            layout = slice_of(layout, axis).expand_dims(axis)
    own = source.type.layout
    if layout is not None and own is not None and _threads_differ(own, layout):
        source = building.converted(source, layout)
    return building.add(Broadcast(source, type_)).results


def _threads_differ(one: Any, other: Any) -> bool:
    """Whether two layouts spread a tensor differently over threads; in registers they may have copies."""
    return any(one.bases_of(dim) != other.bases_of(dim) for dim in ("lane", "warp", "block"))


@reads("tt.reshape")
def read_reshape(building: Building, op: RawOp) -> Results:
    """Triton's result has any layout where the order of elements does not matter, and one that follows otherwise."""
    source, type_ = building.operand(op, 0), building.result_type(op)
    assert isinstance(type_, TensorType) and isinstance(source.type, TensorType)
    own, layout = source.type.layout, type_.layout
    if own is None or layout is None:
        return building.add(Reshape(source, type_, "allow_reorder" in op.words)).results
    if "allow_reorder" in op.words and own.size("register") == layout.size("register"):
        return building.add(Reshape(source, type_, True)).results
    made = building.add(Reshape(source, type_.with_layout(own.reshape(type_.shape))))
    return [building.converted(made.result, layout)]


@reads("tt.split")
def read_split(building: Building, op: RawOp) -> Results:
    type_ = building.result_type(op)
    return [
        building.declared(op, half, type_) for half in building.add(Split(building.operand(op, 0))).results
    ]


@reads("arith.cmpf")
def read_cmpf(building: Building, op: RawOp) -> Results:
    """`uno` holds where one of two numbers is NaN, `ord` where none is."""
    lhs, rhs = building.operands(op)
    predicate = op.words[0] if op.words else op.attributes["predicate"]
    if predicate not in ("uno", "ord"):
        return building.add(CmpF(lhs, rhs, predicate)).results
    result = building.add(IsNan(lhs)).result
    if rhs is not lhs:
        result = building.add(OrI(result, building.add(IsNan(rhs)).result)).result
    if predicate == "ord":
        result = building.add(XOrI(result, building.add(Constant(True, result.type)).result)).result
    return [result]


@reads("arith.select")
def read_select(building: Building, op: RawOp) -> Results:
    """One condition may be that of all elements."""
    types = op.operand_types
    first = types[0] if len(types) > 1 else I1
    condition = building.value(op, op.operands[0], first)
    values = [
        building.value(op, name, building.result_type(op, -1 if len(types) > 1 else 0))
        for name in op.operands[1:]
    ]
    if isinstance(values[0].type, TensorType) and condition.type == I1:
        condition = building.add(Splat(condition, like(values[0].type, I1))).result
    return building.add(Select(condition, *values)).results


@reads("tt.fp_to_fp")
def read_fp_to_fp(building: Building, op: RawOp) -> Results:
    """Wider is exact, narrower rounds; between formats of one width it goes by f16, which holds all f8."""
    source, type_ = building.operand(op, 0), building.result_type(op)
    if element_of(source.type) == element_of(type_):
        return [source]
    if bit_width(source.type) == bit_width(type_):
        source = building.add(ExtF(source, like(type_, F16))).result
    if bit_width(source.type) < bit_width(type_):
        return building.add(ExtF(source, type_)).results
    return building.add(TruncF(source, type_, op.attributes.get("rounding", "rtne"))).results


@reads("tt.bitcast", "arith.bitcast")
def read_bitcast(building: Building, op: RawOp) -> Results:
    source, type_ = building.operand(op, 0), building.result_type(op)
    return [source] if source.type == type_ else building.add(Bitcast(source, type_)).results


@reads("arith.index_cast", "arith.index_castui")
def read_index_cast(building: Building, op: RawOp) -> Results:
    source, type_ = building.operand(op, 0), building.result_type(op)
    if source.type == type_:
        return [source]
    cast = ExtSI if bit_width(source.type) < bit_width(type_) else TruncI
    return building.add(cast(source, type_)).results


@reads("llvm.intr.assume")
def read_assumption(building: Building, op: RawOp) -> Results:
    """What holds anyway."""
    return []


# Memory


@reads("tt.load")
def read_load(building: Building, op: RawOp) -> Results:
    row = Row(
        Load,
        operands=("ptr", "mask", "other"),
        attributes={
            **MEMORY_ATTRIBUTES,
            "isVolatile": "volatile",
            "padding": ("padding", lambda number: {1: "zero", 2: "nan"}.get(number, "")),
        },
    )
    return building.by_row(op, row)


@reads("tt.make_tensor_ptr")
def read_make_tensor_ptr(building: Building, op: RawOp) -> Results:
    """`tt.make_tensor_ptr %base, [%m, %n], [%s, %t], [%i, %j] {order = array<i32: 1, 0>} : <tensor<…>>`."""
    type_ = building.result_type(op, elided="!tt.ptr")
    shape, strides, offsets = (building.listed(op, items, I64) for items in op.lists)
    base = building.value(op, op.operands[0], PointerType(element_of(pointee_of(type_))))
    order = tuple(op.attributes["order"])
    return building.add(MakeTensorPtr(base, shape, strides, offsets, order, type_)).results


@reads("tt.make_tensor_descriptor")
def read_make_tensor_descriptor(building: Building, op: RawOp) -> Results:
    own = op.result_types[0] if op.has_result_types else op.operand_types[-1]
    type_ = building.syntax.elided(own, "!tt.tensordesc")
    shape, strides = (building.listed(op, items, I64) for items in op.lists)
    padding = op.attributes.get("padding", "zero")
    base = building.value(op, op.operands[0], op.operand_types[0])
    descriptor = MakeTensorDescriptor(
        base, shape, strides, type_, _PADDINGS.get(padding, "nan" if padding == 2 else "zero")
    )
    return building.add(descriptor).results


# Reductions


def _combine(building: Building, op: RawOp) -> Block:
    return region(building, op.regions[0], op, is_yielding=False)


@reads("tt.reduce")
def read_reduce(building: Building, op: RawOp) -> Results:
    sources = tuple(building.operands(op))
    made = building.add(Reduce(sources, op.attributes["axis"], _combine(building, op)))
    return [
        building.declared(op, result, building.result_type(op, index))
        for index, result in enumerate(made.results)
    ]


@reads("tt.scan")
def read_scan(building: Building, op: RawOp) -> Results:
    reverse = bool(op.attributes.get("reverse", False))
    return building.add(
        Scan(tuple(building.operands(op)), op.attributes["axis"], _combine(building, op), reverse)
    ).results


@reads("tt.map_elementwise")
def read_map_elementwise(building: Building, op: RawOp) -> Results:
    types = tuple(building.result_type(op, index) for index in range(len(op.result_types)))
    packed = int(op.attributes.get("pack", 1))
    sources = tuple(building.operands(op))
    return building.add(MapElementwise(sources, _combine(building, op), types, packed)).results


# Text


@reads("tt.elementwise_inline_asm")
def read_inline_asm(building: Building, op: RawOp) -> Results:
    text, types = op.literals[0], tuple(op.result_types)
    instruction = _LAUNCHES.get(text.split(";")[0].strip())
    if instruction is not None:
        building.add(instruction())
        return [_constant(building, 0, type_) for type_ in types]
    if text == _ROUND_TO_TF32 and len(op.operands) == 1:
        return [_rounded_to_tf32(building, building.operand(op, 0))]
    asm = InlineAsm(
        tuple(building.operands(op)),
        text,
        op.attributes["constraints"],
        types,
        bool(op.attributes.get("pure", False)),
        int(op.attributes.get("packed_element", 1)),
    )
    return building.add(asm).results


def _rounded_to_tf32(building: Building, value: Value) -> Value:
    """The nearest tf32 in the bits of an f32, ties away from zero; NaN stays."""
    integer = like(value.type, I32)
    bits = building.add(Bitcast(value, integer)).result
    half, mask = (building.add(Constant(number, integer)).result for number in (1 << 12, -(1 << 13)))
    rounded = building.add(AndI(building.add(AddI(bits, half)).result, mask)).result
    chosen = building.add(Select(building.add(IsNan(value)).result, bits, rounded)).result
    return building.add(Bitcast(chosen, value.type)).result


@reads("tt.print")
def read_print(building: Building, op: RawOp) -> Results:
    signed = tuple(bool(number) for number in op.attributes.get("isSigned", ()))
    values = tuple(building.operands(op))
    # Triton puts a space before a prefix and a colon and another space after it.
    prefix = op.literals[0].removeprefix(" ").removesuffix(" ").removesuffix(":")
    building.add(Print(values, prefix, bool(op.attributes.get("hex", False)), signed))
    return []


@reads("tt.assert")
def read_assert(building: Building, op: RawOp) -> Results:
    condition = building.operand(op, 0)
    if is_tensor(condition.type) and element_of(condition.type) != I1:
        building.fail(op, "its condition is not a truth value")
    building.add(Assert(condition, op.literals[0]))
    return []
