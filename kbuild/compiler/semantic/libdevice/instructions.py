"""Functions of libdevice that are one PTX instruction: directed roundings, conversions, bit operations."""

from __future__ import annotations

from typing import Any

from kbuild.compiler.semantic.cast import cast_to
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.debug import inline_asm_elementwise
from kbuild.compiler.semantic.promote import to_tensor
from kbuild.compiler.semantic.registry import builtin
from kbuild.compiler.semantic.types import FP32, FP64, INT32, INT64, UINT32, UINT64, DType
from kbuild.compiler.semantic.values import Tensor

_ROUNDINGS = {"rn": "rn", "rd": "rm", "ru": "rp", "rz": "rz"}
"""libdevice's name of a rounding, and PTX's: to nearest even, down, up, toward zero."""
_REGISTERS = {FP32: "f", FP64: "d", INT32: "r", UINT32: "r", INT64: "l", UINT64: "l"}
_PTX_TYPES = {FP32: "f32", FP64: "f64", INT32: "s32", UINT32: "u32", INT64: "s64", UINT64: "u64"}
_C_NAMES = {FP32: "float", FP64: "double", INT32: "int", UINT32: "uint", INT64: "ll", UINT64: "ull"}


def instruction(ctx: BuildContext, text: str, result: DType, *args: Tensor) -> Tensor:
    """One instruction per element: `text` without its operands, `mul.rz.f32`."""
    constraints = ",".join(["=" + _REGISTERS[result], *(_REGISTERS[item.dtype] for item in args)])  # type: ignore[index]
    operands = ", ".join(f"${number}" for number in range(len(args) + 1))
    return inline_asm_elementwise(ctx, f"{text} {operands};", constraints, tuple(args), result, True, 1)


def _floats(ctx: BuildContext, *args: Any) -> list[Tensor]:
    """Arguments as fp64 if one of them is, else as fp32."""
    tensors = [to_tensor(ctx, item, "x") for item in args]
    dtype = FP64 if any(item.dtype == FP64 for item in tensors) else FP32
    return [cast_to(ctx, item, dtype) for item in tensors]


def _arithmetic(name: str, operation: str, count: int, mode: str) -> None:
    def compute(ctx: BuildContext, args: tuple[Any, ...]) -> Tensor:
        values = _floats(ctx, *args)
        dtype = values[0].dtype
        assert isinstance(dtype, DType)
        return instruction(ctx, f"{operation}.{_ROUNDINGS[mode]}.{_PTX_TYPES[dtype]}", dtype, *values)

    def one(ctx: BuildContext, x):
        return compute(ctx, (x,))

    def two(ctx: BuildContext, x, y):
        return compute(ctx, (x, y))

    def three(ctx: BuildContext, x, y, z):
        return compute(ctx, (x, y, z))

    function = (one, two, three)[count - 1]
    function.__doc__ = f"`{operation}`, rounded {_ROUNDINGS[mode]} as PTX has it."
    builtin("libdevice", f"{name}_{mode}")(function)


for _mode in _ROUNDINGS:
    for _name, _operation, _count in (
        ("add", "add", 2),
        ("sub", "sub", 2),
        ("mul", "mul", 2),
        ("fma", "fma", 3),
        ("rcp", "rcp", 1),
    ):
        _arithmetic(_name, _operation, _count, _mode)
    if _mode != "rn":  # these are operations of their own
        _arithmetic("div", "div", 2, _mode)
        _arithmetic("sqrt", "sqrt", 1, _mode)


def _conversion(source: DType, target: DType, mode: str) -> None:
    whole = "i" if target.is_int() else ""  # to a whole number

    def function(ctx: BuildContext, x):
        x = cast_to(ctx, to_tensor(ctx, x, "x"), source)
        return instruction(
            ctx, f"cvt.{_ROUNDINGS[mode]}{whole}.{_PTX_TYPES[target]}.{_PTX_TYPES[source]}", target, x
        )

    function.__doc__ = f"{source} converted to {target}, rounded {_ROUNDINGS[mode]} as PTX has it."
    builtin("libdevice", f"{_C_NAMES[source]}2{_C_NAMES[target]}_{mode}")(function)


for _mode in _ROUNDINGS:
    for _float in (FP32, FP64):
        for _integer in (INT32, UINT32, INT64, UINT64):
            _conversion(_float, _integer, _mode)
            if not (_float == FP64 and _integer.bits == 32):
                _conversion(_integer, _float, _mode)
    _conversion(FP64, FP32, _mode)


def _bits(ctx: BuildContext, x: Any, operation: str, narrow: DType, wide: DType) -> Tensor:
    """A bit operation on 32 or 64 bits, by the argument's width."""
    x = to_tensor(ctx, x, "x")
    dtype = wide if x.dtype.primitive_bitwidth == 64 else narrow
    return instruction(ctx, f"{operation}.b{dtype.bits}", dtype, cast_to(ctx, x, dtype))


@builtin("libdevice")
def brev(ctx: BuildContext, x):
    """The bits in reverse order."""
    return _bits(ctx, x, "brev", INT32, INT64)


@builtin("libdevice")
def byte_perm(ctx: BuildContext, x, y, s):
    """Four bytes of x and y, chosen by the digits of s (PTX `prmt`)."""
    values = [cast_to(ctx, to_tensor(ctx, item, "x"), INT32) for item in (x, y, s)]
    return instruction(ctx, "prmt.b32", INT32, *values)


@builtin("libdevice")
def llrint(ctx: BuildContext, x):
    """The nearest whole number, ties to even, as int64."""
    (x,) = _floats(ctx, x)
    return instruction(ctx, f"cvt.rni.s64.{'f64' if x.dtype == FP64 else 'f32'}", INT64, x)


@builtin("libdevice")
def rcp64h(ctx: BuildContext, x):
    """1 / x in fp64, of which only the upper half of the bits is right (PTX `rcp.approx.ftz.f64`)."""
    return instruction(ctx, "rcp.approx.ftz.f64", FP64, cast_to(ctx, to_tensor(ctx, x, "x"), FP64))
