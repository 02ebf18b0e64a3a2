"""The kernels of a file in CUDA C++, as a manifest sees them: run-time parameters, and as compile-time ones the parameters of
the template and those macros that the manifest gives values."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from kbuild.aot.manifest.functions.kernel_function import KernelFunction, KernelParameter
from kbuild.aot.manifest.model import Argument, Axis, Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader
from kbuild.compiler.cuda.includes import Closure, closure
from kbuild.compiler.cuda.signature import CPP, agrees, word_of, written_type
from kbuild.compiler.cuda.source import CudaKernel, TemplateParameter
from kbuild.options import CUDA


def cuda_closure(file: Path, include: Collection[str], root: Path) -> Closure:
    """The file, and those of the project that it includes; UsageError for one that cannot be read."""
    return closure(str(file), include, str(root))


def cuda_functions(found: Closure, wanted: Collection[str]) -> dict[str, KernelFunction]:
    """The kernels of a file by name.  `wanted` are the compile-time values that the manifest gives: those that are no
    parameters of a kernel are macros, where the sources have such a name."""
    source = next(iter(found.files.values()))
    macros = [name for name in wanted if name in found.words]
    functions = {kernel.name: _function(kernel, macros, found.tested) for kernel in source.kernels}
    # Namespaces need not be written where the name is clear without.
    return {name.rpartition("::")[2]: function for name, function in functions.items()} | functions


def _function(kernel: CudaKernel, macros: Iterable[str], tested: Collection[str]) -> KernelFunction:
    parameters = [
        KernelParameter(one.name, False, has_default=False, written=one.type, line=one.loc.line)
        for one in kernel.parameters
    ]
    parameters += [_template_parameter(one, kernel.loc.line) for one in kernel.template]
    known = {one.name for one in parameters}
    parameters += [
        KernelParameter(name, True, name in tested, written="macro") for name in macros if name not in known
    ]
    return KernelFunction(tuple(parameters), kernel.doc, is_jit=True, language=CUDA)


def _template_parameter(one: TemplateParameter, line: int) -> KernelParameter:
    if one.default is None:
        return KernelParameter(one.name, True, False, written=one.type, line=line)
    words = {"true": True, "false": False} | {cpp: word for word, cpp in CPP.items()}
    value: Value = words.get(one.default)
    try:
        literal = ast.literal_eval(one.default)
        value = literal if isinstance(literal, int | float) else value
    except (ValueError, SyntaxError):
        pass
    return KernelParameter(one.name, True, True, value, value is not None, one.type, line)


def wanted_constants(table: Mapping[str, Any]) -> dict[str, None]:
    """The names that a kernel's table gives compile-time values."""
    configs = table.get("config")
    tables = [table.get("matrix"), table.get("defaults"), *(configs if isinstance(configs, list) else ())]
    return {name: None for one in tables if isinstance(one, Mapping) for name in one if isinstance(name, str)}


def check_types(
    reader: ManifestReader,
    path: KeyPath,
    source: str,
    function: KernelFunction,
    args: Iterable[Argument],
    matrix: Iterable[Axis],
) -> None:
    """Notes arguments whose type is another than that of the parameter, where the source writes that out; what it is behind
    macros and names of the project's own, the compiler says."""
    parameters = {one.name: one for one in function.parameters if not one.is_constexpr}
    axes = {axis.name: axis.values for axis in matrix}
    for argument in args:
        parameter = parameters.get(argument.name)
        if parameter is None:
            continue
        for point in _points(argument.type, axes):
            type_ = written_type(parameter.written, point)
            word = argument.type.format(**point) if "{" in argument.type else argument.type
            if type_ is None or agrees(word, type_):
                continue
            message = (
                f'"{word}" is not the type of {source}:{parameter.line}: {parameter.written} {argument.name}'
            )
            advice = (
                f'write "{word_of(type_)}"'
                if word_of(type_)
                else "it may be a pointer, a number, or a CUtensorMap"
            )
            reader.error((*path, "args", argument.name), message.replace("* ", "*"), advice)
            break


def _points(type_: str, axes: Mapping[str, tuple[Value, ...]]) -> list[dict[str, str]]:
    """The values of the axis that a type names, or nothing where it names none."""
    named = [name for name in axes if f"{{{name}}}" in type_]
    return [{name: str(value)} for name in named for value in axes[name]] or [{}]
