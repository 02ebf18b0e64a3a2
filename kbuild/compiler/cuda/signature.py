"""The arguments of a manifest, and the parameters of a kernel in C++: whether they agree.

a = "*fp16:16"      const __half *a      agree
n = "i32"           unsigned n           do not: write n = "u32"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.compiler.cuda.mangling import BUILTIN, CppType
from kbuild.compiler.cuda.source import CudaKernel, TemplateParameter

TENSOR_MAP = ("CUtensorMap", "CUtensorMap_st")
"""The driver's type of tensor maps."""
CPP = {
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "fp32": "float",
    "fp64": "double",
    "fp8e4nv": "__nv_fp8_e4m3",
    "fp8e5": "__nv_fp8_e5m2",
    "i1": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
}
"""The type of C++ for each word that signatures have for a type."""
HEADERS = {
    "fp16": "cuda_fp16.h",
    "bf16": "cuda_bf16.h",
    "fp8e4nv": "cuda_fp8.h",
    "fp8e5": "cuda_fp8.h",
}
"""The headers that declare them."""

_WORDS = {cpp: word for word, cpp in CPP.items()} | {"char": "i8", "long": "i64", "unsigned long": "u64"}
_ALIASES = {
    "half": "__half",
    "nv_bfloat16": "__nv_bfloat16",
    "unsigned": "unsigned int",
    "uint": "unsigned int",
    "uchar": "unsigned char",
    "ushort": "unsigned short",
    "size_t": "unsigned long",
    "signed": "int",
    "signed int": "int",
    "long int": "long",
    "unsigned long int": "unsigned long",
    "long long int": "long long",
    "unsigned long long int": "unsigned long long",
    **{f"int{bits}_t": CPP[f"i{bits}"] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": CPP[f"u{bits}"] for bits in (8, 16, 32, 64)},
}
_VECTOR = re.compile(
    r"(u?char|u?short|u?int|u?long|u?longlong|float|double)[1-4](?:_16a|_32a)?|__(half|nv_bfloat16)2|__nv_fp8x[24]_(e4m3|e5m2)"
)
"""Vectors of elements, which pointers to elements may be read as."""
_VECTOR_ELEMENTS = {
    "char": "i8",
    "uchar": "u8",
    "short": "i16",
    "ushort": "u16",
    "int": "i32",
    "uint": "u32",
    "long": "i64",
    "ulong": "u64",
    "longlong": "i64",
    "ulonglong": "u64",
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
    "nv_bfloat16": "bf16",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
}
_WIDTH = re.compile(r"[a-z]+(\d+)")


def word_of(type_: CppType) -> str | None:
    """The signature's word for a type: `*fp32` for `const float *`; None for one that no package passes."""
    if type_.pointee is None:
        return "tensordesc" if type_.name in TENSOR_MAP else _WORDS.get(type_.name)
    if type_.is_reference:
        return None
    element = _element(type_.pointee)
    return None if element is None else f"*{element}"


def _element(pointee: CppType) -> str | None:
    """The word for what a pointer points to; of `void`, bytes."""
    if pointee.pointee is not None:
        return "i64"  # An address.
    vector = _VECTOR.fullmatch(pointee.name)
    if vector:
        return _VECTOR_ELEMENTS[vector[1] or vector[2] or vector[3]]
    return "u8" if pointee.name == "void" else _WORDS.get(pointee.name)


def agrees(word: str, type_: CppType) -> bool:
    """Whether an argument of a signature's type may be passed for a parameter."""
    plain = word.partition(":")[0]
    if word.startswith("tensordesc"):
        return type_.pointee is None and type_.name in TENSOR_MAP
    found = word_of(type_)
    if found is None or plain == found:
        return found is not None
    if not (plain.startswith("*") and found.startswith("*")) or type_.pointee is None:
        return False
    if type_.pointee.name == "void":
        return True
    # Integers of one size differ in what a kernel reads into them alone, and bytes may hold any type of one byte.
    return _bits(plain) == _bits(found) and (found[1] in "iu") and (plain[1] in "iu" or _bits(found) == 8)


def _bits(word: str) -> int:
    match = _WIDTH.match(word.lstrip("*"))
    assert match is not None
    return 8 if word.lstrip("*") == "i1" else int(match[1])


def written_type(text: str, template: Mapping[str, str] | None = None) -> CppType | None:
    """The type that a declaration spells, where its words are known: not of macros, templates and names of the
    project.  `template` has the words of a signature for types that are parameters of the template."""
    stars = text.count("*")
    words = re.sub(r"__restrict__|__restrict|restrict|volatile|const|__grid_constant__|\*", " ", text).split()
    name = " ".join(words)
    if "&" in name or not re.fullmatch(r"[\w ]+", name):
        return None
    if template and name in template:
        name = CPP.get(template[name], "")
    name = _ALIASES.get(name, name)
    known = name in _WORDS or name in BUILTIN.values() or name in TENSOR_MAP or _VECTOR.fullmatch(name)
    if not known:
        return None
    found = CppType(name)
    for _ in range(stars):
        found = CppType("", found)
    return found


def template_argument(parameter: TemplateParameter, value: Any) -> str:
    """A compile-time value as an argument of a template, in C++."""
    if parameter.is_type:
        return CPP.get(str(value), str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value:
        kind = parameter.type.removeprefix("const ")
        return value if kind in ("auto", "int", "unsigned", "bool") else f"{kind}::{value}"
    return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)


def definition(value: Any) -> str:
    """A compile-time value as the text of a macro: flags are 1 and 0, words of types the types of C++."""
    if isinstance(value, bool):
        return str(int(value))
    return CPP.get(value, value) if isinstance(value, str) else repr(value)


def given_template(kernel: CudaKernel, constexprs: Mapping[str, Any]) -> list[str] | str:
    """The arguments of a kernel's template; the name of the first parameter that has no value where a later one has
    one, or it has no default."""
    last = max((n for n, one in enumerate(kernel.template, 1) if one.name in constexprs), default=0)
    found: list[str] = []
    for number, one in enumerate(kernel.template, 1):
        if one.name in constexprs:
            found.append(template_argument(one, constexprs[one.name]))
        elif one.default is None:
            return one.name
        elif number < last:
            found.append(one.default)
    return found


def headers_of(constexprs: Mapping[str, Any], words: Sequence[str] = ()) -> list[str]:
    """The headers that declare the types among compile-time values."""
    names = [value for value in (*constexprs.values(), *words) if isinstance(value, str)]
    return list(dict.fromkeys(HEADERS[name] for name in names if name in HEADERS))
