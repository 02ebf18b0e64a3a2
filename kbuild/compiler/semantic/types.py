"""The types that a kernel's author sees: numbers with their sign, pointers, blocks.

The IR's integers carry no sign; these do, and every choice between a signed and an unsigned operation is made
by them. Names and predicates are those of `triton.language`, since kernels use them (`x.dtype.is_fp16()`,
`X.dtype.element_ty`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kbuild.compiler.ir import types as ir
from kbuild.compiler.layout import LinearLayout, author_text
from kbuild.compiler.layout.derived import written


class TypeBase:
    """The predicates that all of these types have."""

    def is_block(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    def is_void(self) -> bool:
        return False

    def is_floating(self) -> bool:
        return False

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_int_signed(self) -> bool:
        return False

    def is_int_unsigned(self) -> bool:
        return False

    def is_standard_floating(self) -> bool:
        return False

    def is_fp8(self) -> bool:
        return False


@dataclass(frozen=True, repr=False)
class DType(TypeBase):
    """A type of numbers."""

    name: str
    """`int1 int8 … uint64 fp8e4nv fp8e4b15 fp8e5 fp16 bf16 fp32 fp64`, or `void`."""
    kind: str
    """`bool`, `int`, `float` or `void`."""
    bits: int
    signed: bool
    element: ir.Type | None

    @property
    def ir(self) -> ir.Type:
        assert self.element is not None, f"{self.name} has no values"
        return self.element

    @property
    def scalar(self) -> DType:
        return self

    @property
    def primitive_bitwidth(self) -> int:
        return self.bits

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return max(self.bits // 8, 1)

    @property
    def int_bitwidth(self) -> int:
        return self.bits

    @property
    def fp_mantissa_width(self) -> int:
        """Stored bits of the significand."""
        return self.element.mantissa_bits if isinstance(self.element, ir.FloatType) else 0

    def is_void(self) -> bool:
        return self.kind == "void"

    def is_floating(self) -> bool:
        return self.kind == "float"

    def is_standard_floating(self) -> bool:
        return self.kind == "float" and self.bits > 8

    def is_int(self) -> bool:
        return self.kind in ("int", "bool")

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_int_signed(self) -> bool:
        return self.kind == "int" and self.signed

    def is_int_unsigned(self) -> bool:
        return self.is_int() and not self.signed

    def is_fp8(self) -> bool:
        return self.kind == "float" and self.bits == 8

    def is_fp8e4nv(self) -> bool:
        return self.name == "fp8e4nv"

    def is_fp8e4b15(self) -> bool:
        return self.name == "fp8e4b15"

    def is_fp8e5(self) -> bool:
        return self.name == "fp8e5"

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_int1(self) -> bool:
        return self.name == "int1"

    def is_int8(self) -> bool:
        return self.name == "int8"

    def is_int16(self) -> bool:
        return self.name == "int16"

    def is_int32(self) -> bool:
        return self.name == "int32"

    def is_int64(self) -> bool:
        return self.name == "int64"

    def is_uint8(self) -> bool:
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        return self.name == "uint64"

    def get_int_min_value(self) -> int:
        return -(1 << (self.bits - 1)) if self.is_int_signed() else 0

    def get_int_max_value(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.is_int_signed() else (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class PointerDtype(TypeBase):
    """A pointer into global memory to numbers; to a block, it is a block pointer."""

    element_ty: DType | BlockType
    const: bool = False

    @property
    def ir(self) -> ir.Type:
        # Truth values lie in memory as bytes.
        return ir.PointerType(ir.I8 if self.element_ty == INT1 else self.element_ty.ir)

    @property
    def scalar(self) -> PointerDtype:
        return self

    @property
    def primitive_bitwidth(self) -> int:
        return 64

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    def is_block_pointer(self) -> bool:
        return isinstance(self.element_ty, BlockType)

    def __str__(self) -> str:
        return f"pointer<{self.element_ty}>"

    __repr__ = __str__


ScalarType = DType | PointerDtype


@dataclass(frozen=True, repr=False)
class BlockType(TypeBase):
    """A tensor: an element type and a shape."""

    element_ty: ScalarType
    shape: tuple[int, ...]
    place: LinearLayout | None = None
    """Where the elements are, in a kernel whose author chooses that."""

    @property
    def ir(self) -> ir.Type:
        return ir.TensorType(self.shape, self.element_ty.ir, self.place)

    @property
    def scalar(self) -> ScalarType:
        return self.element_ty

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * (self.element_ty.primitive_bitwidth // 8)

    @property
    def layout(self) -> object:
        """Where the elements are, as the author wrote it; None where he does not choose that."""
        return None if self.place is None else written(self.place)

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    def is_block(self) -> bool:
        return True

    def is_floating(self) -> bool:
        return self.element_ty.is_floating()

    def is_int(self) -> bool:
        return self.element_ty.is_int()

    def __str__(self) -> str:
        place = "" if self.place is None else f" in {author_text(self.place)}"
        return f"{self.element_ty}[{', '.join(map(str, self.shape))}]{place}"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class DescriptorDtype(TypeBase):
    """The type of a tensor descriptor, which has the attributes of its blocks' type, too."""

    block_type: BlockType

    @property
    def element_ty(self) -> ScalarType:
        return self.block_type.element_ty

    @property
    def scalar(self) -> ScalarType:
        return self.block_type.element_ty

    @property
    def shape(self) -> tuple[int, ...]:
        return self.block_type.shape

    @property
    def numel(self) -> int:
        return self.block_type.numel

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return self.block_type.nbytes

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.block_type.shape

    def __str__(self) -> str:
        return f"tensor_descriptor<{self.block_type}>"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class ConstexprType(TypeBase):
    """The type of a value known while compiling, which is as much as the value."""

    value: Any

    def __str__(self) -> str:
        return f"constexpr_type[{self.value}]"

    __repr__ = __str__


VOID = DType("void", "void", 0, False, None)
INT1 = DType("int1", "bool", 1, False, ir.I1)
INT8, INT16, INT32, INT64 = (
    DType(f"int{t.bits}", "int", t.bits, True, t) for t in (ir.I8, ir.I16, ir.I32, ir.I64)
)
UINT8, UINT16, UINT32, UINT64 = (
    DType(f"uint{t.bits}", "int", t.bits, False, t) for t in (ir.I8, ir.I16, ir.I32, ir.I64)
)
FP8E4NV = DType("fp8e4nv", "float", 8, True, ir.F8E4M3FN)
FP8E4B15 = DType("fp8e4b15", "float", 8, True, ir.F8E4M3B15)
FP8E5 = DType("fp8e5", "float", 8, True, ir.F8E5M2)
FP16 = DType("fp16", "float", 16, True, ir.F16)
BF16 = DType("bf16", "float", 16, True, ir.BF16)
FP32 = DType("fp32", "float", 32, True, ir.F32)
FP64 = DType("fp64", "float", 64, True, ir.F64)

BY_TL_NAME: dict[str, DType] = {
    "void": VOID,
    "int1": INT1,
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "uint8": UINT8,
    "uint16": UINT16,
    "uint32": UINT32,
    "uint64": UINT64,
    "float8e4nv": FP8E4NV,
    "float8e4b15": FP8E4B15,
    "float8e5": FP8E5,
    "float16": FP16,
    "bfloat16": BF16,
    "float32": FP32,
    "float64": FP64,
}
"""The dtypes by their names in `triton.language`."""

BY_SIGNATURE_NAME: dict[str, DType] = {
    "i1": INT1,
    "i8": INT8,
    "i16": INT16,
    "i32": INT32,
    "i64": INT64,
    "u1": INT1,
    "u8": UINT8,
    "u16": UINT16,
    "u32": UINT32,
    "u64": UINT64,
    "fp8e4nv": FP8E4NV,
    "fp8e4b15": FP8E4B15,
    "fp8e5": FP8E5,
    "fp16": FP16,
    "bf16": BF16,
    "fp32": FP32,
    "fp64": FP64,
}
"""The dtypes by their names in signatures."""

BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in BY_TL_NAME.values()}


def as_dtype(value: Any) -> Any:
    """The type that a word names, as `"fp16"` or `"float16"`, where a type is needed; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(as_dtype(item) for item in value)
    if not isinstance(value, str):
        return value
    return BY_SIGNATURE_NAME.get(value) or BY_TL_NAME.get(value.removeprefix("tl.")) or value


def type_of(
    dtype: ScalarType, shape: tuple[int, ...], place: LinearLayout | None = None
) -> ScalarType | BlockType:
    """The type of a value: the scalar type itself for shape ()."""
    return BlockType(dtype, shape, place) if shape else dtype


def int_dtype(bits: int, signed: bool) -> DType:
    """The integer type of a width."""
    return BY_SIGNATURE_NAME[f"{'i' if signed else 'u'}{bits}"]


def number_dtype(value: Any) -> DType | None:
    """The type of a literal: int32, or else uint32, int64, uint64; fp32, or else fp64; None when nothing
    holds it."""
    if isinstance(value, bool):
        return INT1
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return INT32
        if 0 <= value < 2**32:
            return UINT32
        if -(2**63) <= value < 2**63:
            return INT64
        return UINT64 if 0 <= value < 2**64 else None
    size = abs(value)
    fits = size in (0.0, float("inf")) or size != size or 2.0**-126 <= size <= (2 - 2.0**-23) * 2.0**127
    return FP32 if fits else FP64
