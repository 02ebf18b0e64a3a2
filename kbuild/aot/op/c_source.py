"""What the launcher's tables say of operators, in C."""

from __future__ import annotations

import math
from typing import Any

from kbuild.aot.artifact.selection import TYPES
from kbuild.aot.op.expressions import OpExpression, aligned_name, given_name, stride_name, to_c
from kbuild.aot.op.model import OpScalar, OpTensor
from kbuild.aot.op.tables import LaunchTable, OperatorTable

_KINDS = {"int": "SCALAR_INT", "float": "SCALAR_FLOAT", "bool": "SCALAR_BOOL", "str": "SCALAR_STR"}


def operator_context(table: OperatorTable) -> dict[str, Any]:
    """The values that `operator_tables.c.j2` needs of an operator."""
    op, printer = table.op, _Printer(table)
    requirements = [
        f"if (!({printer.integer(r.condition)})) return {index};" for index, r in enumerate(op.requirements)
    ]
    agreements = [
        f"if ({printer.integer(one)} != {printer.integer(other)}) return {len(op.requirements) + index};"
        for index, (one, other, _) in enumerate(table.agreements)
    ]
    return {
        "name": op.name,
        "inputs": len(op.inputs),
        "outputs": len(op.outputs),
        "workspaces": len(op.workspaces),
        "strides": table.first_strides[-1],
        "autocast": int(bool(op.autocast)),
        "dims": table.dims,
        "fixed": table.fixed,
        "returned": table.returned,
        "messages": table.messages,
        "tensors": [_tensor(table, index, tensor) for index, tensor in enumerate(op.tensors)],
        "scalars": [_scalar(scalar) for scalar in op.scalars],
        "parameters": [
            *((tensor.name, "POINTER") for tensor in op.inputs),
            *((scalar.name, "FLOAT" if scalar.kind == "float" else "INTEGER") for scalar in op.scalars),
            *((tensor.name, "POINTER") for tensor in op.outputs + op.workspaces),
        ],
        "defaults": [
            f"if (!f->given[{index}]) f->scalars[{index}].{_member(scalar)} = {printer.of(scalar.computed)};"
            for index, scalar in enumerate(op.scalars)
            if scalar.computed
        ],
        "require": requirements,
        "agree": agreements,
        "shapes": [
            f"{printer.place(name)} = {printer.integer(expression)};" for name, expression in table.computed
        ],
        "memory": _words_remembered(table) if any(value.is_part for value in op.values) else 0,
        "launches": [_launch(launch, printer) for launch in table.launches],
    }


def _words_remembered(table: OperatorTable) -> int:
    """Of one call: what `words_of_call` of the launcher counts, and the sizes."""
    op, strides = table.op, table.first_strides[-1]
    flags = len(op.scalars) + 2 * len(op.tensors)
    return 2 * len(table.dims) + strides + len(op.scalars) + 2 + -(-flags // 8)


def _member(scalar: OpScalar) -> str:
    return "number" if scalar.kind == "float" else "integer"


def _tensor(table: OperatorTable, index: int, tensor: OpTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "text": tensor.text,
        "rank": len(tensor.dims),
        "pack": tensor.pack,
        "dims": [table.dim(word) for word in tensor.dims],
        "first_stride": table.first_strides[index],
        "free": sum(1 << place for place in tensor.free),
        "types": sum(TYPES[name] for name in tensor.types),
        "group": table.groups.index(tensor.group) if tensor.group else -1,
        "is_optional": int(tensor.is_optional),
        "is_written": int(tensor.is_mutated or index >= len(table.op.inputs)),
        "is_zeroed": int(tensor.is_zeroed),
        "may_alias": int(tensor.may_alias),
    }


def _scalar(scalar: OpScalar) -> dict[str, Any]:
    """An OpScalar; `text` is None unless it is a word with a default."""
    value = scalar.default
    standard = "{ 0 }"
    if scalar.kind == "float" and value is not None:
        standard = f"{{ .number = {_double(float(value))} }}"
    elif scalar.kind in ("int", "bool") and value is not None:
        standard = f"{{ .integer = INT64_C({int(value)}) }}"
    text = value if scalar.kind == "str" else None
    return {
        "name": scalar.name,
        "kind": _KINDS[scalar.kind],
        "required": int(scalar.is_required),
        "computed": int(scalar.computed is not None),
        "standard": standard,
        "text": text,
        "words": scalar.words,
    }


def _double(value: float) -> str:
    if math.isinf(value):
        return "-__builtin_inf()" if value < 0 else "__builtin_inf()"
    return '__builtin_nan("")' if math.isnan(value) else repr(value)


def _launch(launch: LaunchTable, printer: _Printer) -> dict[str, Any]:
    numbers = dict(launch.options)
    values = [f"values[{index}] = {printer.value(expression)};" for index, expression in launch.values]
    values += [f"options[{index}] = {printer.value(expression)};" for index, expression in launch.options]
    return {
        "kernel": launch.kernel,
        "tensors": launch.tensors or (-1,),
        "words": launch.words or (-2,),
        "is_number": [
            int(index in numbers and numbers[index].kind == "float") for index in range(len(launch.words))
        ]
        or [0],
        "values": values,
        "when": printer.integer(launch.when) if launch.when else "",
    }


class _Printer:
    """Prints the expressions of one operator in C, over an `OpFrame *f`."""

    def __init__(self, table: OperatorTable) -> None:
        op = table.op
        self._integers: dict[str, str] = {name: f"INT64_C({value})" for name, value in table.constants}
        self._integers["num_sms"] = "f->num_sms"
        self._numbers: dict[str, str] = {}
        self._sizes = {name: f"f->sizes[{number}]" for number, name in enumerate(table.dims)}
        self._integers |= {name: self._sizes[name] for name in op.dims}
        self._integers |= {value.name: self._sizes.get(value.name, value.name) for value in op.values}
        for number, scalar in enumerate(op.scalars):
            if scalar.kind == "float":
                self._numbers[scalar.name] = f"f->scalars[{number}].number"
            else:
                self._integers[scalar.name] = f"f->scalars[{number}].integer"
        for number, tensor in enumerate(op.tensors):
            self._integers[given_name(tensor.name)] = f"(int64_t)f->given[{len(op.scalars) + number}]"
            self._integers[aligned_name(tensor.name)] = f"(int64_t)f->aligned[{number}]"
            for place, word in enumerate(tensor.dims):
                name = stride_name(tensor.name, word.removeprefix("*"))
                self._integers.setdefault(name, f"f->strides[{table.first_strides[number] + place}]")

    def place(self, name: str) -> str:
        """Where a computed number goes: what parts of a choice compute is of no use behind it."""
        return self._sizes.get(name, f"const int64_t {name}")

    def of(self, expression: OpExpression) -> str:
        """The expression: an int64_t, or a double."""
        return to_c(expression, self._integers.__getitem__, self._numbers.get)

    def integer(self, expression: OpExpression) -> str:
        """The expression as a truth value or a whole number."""
        return self.of(expression)

    def value(self, expression: OpExpression) -> str:
        """The expression as a Value."""
        member = "number" if expression.kind == "float" else "integer"
        return f"(Value){{ .{member} = {self.of(expression)} }}"
