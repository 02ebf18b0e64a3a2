"""Functions of libdevice, which Triton calls by their symbols: the same that `tl.extra.cuda.libdevice` names."""

from __future__ import annotations

import re
from typing import Any

import kbuild.compiler.semantic  # noqa: F401  fills the table
from kbuild.compiler.ir.core import Op
from kbuild.compiler.ir.types import TensorType, element_of, shape_of
from kbuild.compiler.semantic.context import BuildContext
from kbuild.compiler.semantic.registry import TABLES, Builtin
from kbuild.compiler.semantic.types import BY_SIGNATURE_NAME, DType
from kbuild.compiler.semantic.values import Tensor
from kbuild.compiler.upstream.building import Building, Results, reads
from kbuild.compiler.upstream.syntax import RawOp
from kbuild.errors import Loc

_PREFIX = "__nv_"
_ROUNDED = re.compile(r"[fd](?=(?:add|sub|mul|div|sqrt|rcp)_r[nzud]$)|f(?=_r[nzud]$)")
"""The letters that symbols have for a type beside a rounding: `__nv_fadd_rz`, `__nv_fmaf_rn`."""
_SUFFIX = re.compile(r"(?:f|d|ll|i)$")
"""Those at the end of other symbols: `__nv_tanhf`, `__nv_isnand`, `__nv_popcll`, `__nv_powif`."""
_OTHER_NAMES = {"fabs": "abs", "labs": "abs", "llabs": "abs"}


class _NoFrontend:
    """What builtins would ask of the reader of a kernel in Python."""

    def call(self, function: Any, args: list[Any]) -> Any:
        raise TypeError("a function of libdevice calls one of the kernel's")

    def attribute(self, value: Any, name: str) -> Any:
        return getattr(value, name)

    def argument_loc(self, name: str) -> Loc | None:
        return None

    def argument_text(self, name: str) -> str:
        return name

    def compared(self, name: str) -> None:
        return None


def function_of(symbol: str) -> tuple[Builtin, bool] | None:
    """The function that a symbol is for, and whether its integers have signs; None for one that kbuild lacks."""
    table = TABLES["libdevice"]
    name = _ROUNDED.sub("", symbol.removeprefix(_PREFIX))
    while True:
        for word, signed in (
            (name, True),
            (_OTHER_NAMES.get(name, name), True),
            (name.removeprefix("u"), False),
        ):
            if word in table:
                return table[word], signed
        shorter = _SUFFIX.sub("", name)
        if shorter == name:
            return None
        name = shorter


@reads("tt.extern_elementwise")
def read_extern_elementwise(building: Building, op: RawOp) -> Results:
    symbol = str(op.attributes.get("symbol", ""))
    found = function_of(symbol)
    if found is None:
        building.fail(op, f"kbuild has no function {symbol!r}", "it has those of tl.extra.cuda.libdevice")
    function, signed = found
    values = building.operands(op)
    context = BuildContext(building.builder, _NoFrontend(), 4)
    last = building.builder.block.last
    result = function.function(
        context,
        *(
            Tensor(value, _dtype(str(element_of(value.type)), signed), shape_of(value.type))
            for value in values
        ),
    )
    layouts = [value.type.layout for value in values if isinstance(value.type, TensorType)]
    _spread(last.next if last is not None else building.builder.block.first, layouts[0] if layouts else None)
    return [building.declared(op, result.value, building.result_type(op))]


def _dtype(name: str, signed: bool) -> DType:
    names = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
    word = names.get(name, name)
    return BY_SIGNATURE_NAME[word if signed or not word.startswith("i") else "u" + word[1:]]


def _spread(op: Op | None, layout: Any) -> None:
    """Give the tensors of some operations, which act on each element alone, the layout of their operands."""
    while op is not None and layout is not None:
        for result in op.results:
            if isinstance(result.type, TensorType) and result.type.layout is None:
                result.type = result.type.with_layout(layout)
        op = op.next
