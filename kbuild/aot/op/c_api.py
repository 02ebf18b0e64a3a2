"""What the header of a package for C and C++ says of its functions, as the templates need it.

A function of C takes the tensors and scalars of an operator, or the arguments of a bare launch, in their order, and the
stream.  What may be left out is a pointer there: NULL stands for the default.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.aot.artifact.selection import ConstexprOption, KernelTable
from kbuild.aot.op.model import OpScalar
from kbuild.aot.op.tables import OperatorTable
from kbuild.errors import ManifestError

_TYPES = {"int": "int64_t", "bool": "bool", "float": "double", "str": "const char *"}
_MEMBERS = {"int": "integer", "bool": "integer", "float": "number"}
_CPP_WORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "case",
        "catch",
        "char",
        "char8_t",
    ]
    + [
        "char16_t",
        "char32_t",
        "compl",
        "concept",
        "const",
        "consteval",
        "constexpr",
        "constinit",
        "const_cast",
    ]
    + [
        "co_await",
        "co_return",
        "co_yield",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "enum",
    ]
    + ["explicit", "export", "extern", "false", "float", "friend", "goto", "inline", "int", "long", "mutable"]
    + [
        "namespace",
        "new",
        "noexcept",
        "not_eq",
        "nullptr",
        "operator",
        "or_eq",
        "private",
        "protected",
        "public",
    ]
    + ["register", "reinterpret_cast", "requires", "restrict", "short", "signed", "sizeof", "static"]
    + [
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
    ]
    + [
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
    ]
    + ["xor", "xor_eq"]
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    name: str
    """As C and C++ may have it."""
    c: str
    """Its type in C."""
    cpp: str
    """Its type in C++."""
    passed: str
    """What the function of C++ passes to that of C."""
    default: str = ""
    """In C++; empty where there is none."""

    @property
    def c_text(self) -> str:
        """Its declaration in C."""
        return f"{self.c}{'' if self.c.endswith('*') else ' '}{self.name}"

    @property
    def cpp_text(self) -> str:
        """Its declaration in C++."""
        default = f" = {self.default}" if self.default else ""
        return f"{self.cpp}{'' if self.cpp.endswith(('*', '&')) else ' '}{self.name}{default}"


def operator_function(table: OperatorTable, doc: str) -> dict[str, Any]:
    """An operator for `kernels.h.j2` and `library_functions.c.j2`."""
    op = table.op
    inputs = [_tensor(tensor.name, tensor.is_optional, tensor.is_mutated) for tensor in op.inputs]
    scalars = [_scalar(scalar) for scalar in op.scalars]
    outputs = [_tensor(t.name, t.name not in op.returns, is_written=True) for t in op.outputs]
    stream = Parameter("stream", "void *", "void *", "stream", "nullptr")
    needed = [p for p in (*inputs, *outputs, *scalars) if not p.default]
    return {
        "name": op.name,
        "doc": doc,
        "parameters": [*inputs, *scalars, *outputs, stream],
        "cpp_parameters": [*needed, *(p for p in (*inputs, *scalars, *outputs) if p.default), stream],
        "tensors": [p.name for p in (*inputs, *outputs)],
        "scalars": [_scalar_of(scalar, p.name) for scalar, p in zip(op.scalars, scalars)],
    }


def launch_function(kernel: KernelTable, doc: str) -> dict[str, Any]:
    """The bare launch of a kernel for the same templates."""
    values = {p.name: _value(p.name, p.kind) for p in kernel.given}
    options = [_option(option) for option in kernel.options]
    stream = Parameter("stream", "void *", "void *", "stream", "nullptr")
    own = [*values.values(), *options]
    members = {"integer": "integer", "float": "number"}
    return {
        "name": kernel.name,
        "doc": doc,
        "parameters": [*own, stream],
        "cpp_parameters": [*(p for p in own if not p.default), *(p for p in own if p.default), stream],
        "tensors": [values[p.name].name if p.kind == "pointer" else "NULL" for p in kernel.parameters],
        "values": [
            f"{{ .{members[p.kind]} = {values[p.name].name} }}"
            if p.name in values and p.kind in members
            else "{ 0 }"
            for p in kernel.parameters
        ],
        "scalars": [_option_of(option, p.name) for option, p in zip(kernel.options, options)],
    }


def functions_of_package(
    operators: Sequence[tuple[OperatorTable, str]], kernels: Sequence[tuple[KernelTable, str]]
) -> dict[str, Any]:
    """The functions of a package with these operators, and the bare launches of kernels that have a grid.

    Raises ManifestError where two functions have one name in C.
    """
    found = {
        "operator_functions": [operator_function(table, doc) for table, doc in operators],
        "launch_functions": [
            {**launch_function(kernel, doc), "number": number}
            for number, (kernel, doc) in enumerate(kernels)
            if kernel.grid
        ],
    }
    names = ["last_error", "preload"]
    for function in found["operator_functions"]:
        names += [function["name"], f"{function['name']}_xla"]
    names += [f"launch_{function['name']}" for function in found["launch_functions"]]
    for name in sorted({name for name in names if names.count(name) > 1}):
        raise ManifestError(
            f'two functions of the package are called "{name}" in C', help="op.name names an operator"
        )
    return found


def cpp_name(name: str) -> str:
    """The name of a function in C++, where words of the language and of the header itself get an underscore."""
    return f"{name}_" if name in _CPP_WORDS or name in ("check", "error", "launch", "preload") else name


def c_comment(text: str) -> str:
    """A comment in C."""
    lines = [line.rstrip() for line in text.strip().replace("*/", "* /").splitlines()]
    return "/* " + "\n".join([lines[0], *(f" * {line}".rstrip() for line in lines[1:])]) + " */"


def _name(name: str) -> str:
    """The name of a parameter, with an underscore behind where C++ needs the word itself, or the functions do."""
    return f"{name}_" if name in _CPP_WORDS or keyword.iskeyword(name) or name == "stream" else name


def _tensor(name: str, is_optional: bool, is_written: bool = False) -> Parameter:
    own = _name(name)
    const = "" if is_written else "const "
    if is_optional:
        return Parameter(own, f"{const}DLTensor *", f"{const}DLTensor *", own, "nullptr")
    return Parameter(own, f"{const}DLTensor *", f"{const}DLTensor &", f"&{own}")


def _scalar(scalar: OpScalar) -> Parameter:
    own, type_ = _name(scalar.name), _TYPES[scalar.kind]
    if scalar.computed is not None:
        return Parameter(
            own, f"const {type_} *", f"std::optional<{type_}>", f"{own} ? &*{own} : nullptr", "{}"
        )
    return Parameter(own, type_, type_, own, "" if scalar.is_required else _literal(scalar.default))


def _literal(value: object) -> str:
    """A default in C++; a word's is NULL, which C takes for it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        special = {"inf": "HUGE_VAL", "-inf": "-HUGE_VAL", "nan": "NAN"}
        return special.get(repr(value), repr(value))
    return "nullptr" if isinstance(value, str) else f"INT64_C({value})"


def _scalar_of(scalar: OpScalar, name: str) -> str:
    """A Scalar of the library, from the parameter of C."""
    if scalar.kind == "str":
        return f"{{ {name} != NULL, {{ 0 }}, {name} }}"
    member = _MEMBERS[scalar.kind]
    if scalar.computed is not None:
        return f"{{ {name} != NULL, {{ .{member} = {name} ? *{name} : 0 }}, NULL }}"
    return f"{{ 1, {{ .{member} = {name} }}, NULL }}"


def _value(name: str, kind: str) -> Parameter:
    own = _name(name)
    if kind == "pointer":
        return Parameter(own, "const DLTensor *", "const DLTensor *", own)
    type_ = {"integer": "int64_t", "float": "double"}[kind]
    return Parameter(own, type_, type_, own)


def _kind(option: ConstexprOption) -> str:
    """The type of an option's values, as `_TYPES` has it."""
    kinds = {type(value).__name__ for value in option.values}
    return next(kind for kind in ("str", "float", "int", "bool") if kind in kinds)


def _option(option: ConstexprOption) -> Parameter:
    own, type_ = _name(option.name), _TYPES[_kind(option)]
    if option.required:
        return Parameter(own, type_, type_, own)
    if type_.endswith("*"):
        return Parameter(own, type_, type_, own, "nullptr")
    return Parameter(own, f"const {type_} *", f"std::optional<{type_}>", f"{own} ? &*{own} : nullptr", "{}")


def _option_of(option: ConstexprOption, name: str) -> str:
    kind = _kind(option)
    if kind == "str":
        return f"{{ {name} != NULL, {{ 0 }}, {name} }}"
    given, value = ("1", name) if option.required else (f"{name} != NULL", f"{name} ? *{name} : 0")
    return f"{{ {given}, {{ .{_MEMBERS[kind]} = {value} }}, NULL }}"
