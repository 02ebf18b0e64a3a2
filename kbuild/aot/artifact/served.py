"""The functions of libraries that a package serves, from the kernels of its manifest and the rows of its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kbuild.aot.capture.adopt.calls import IGNORED
from kbuild.aot.capture.serving.facts import ServedArgument, ServedFunction, ServedLaunch
from kbuild.aot.manifest.descriptors import parts
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Axis, Kernel, Value
from kbuild.options import CUDA, TRITON, options


def served_functions(
    kernels: Iterable[Kernel], variants: Mapping[str, Sequence[Variant]]
) -> tuple[ServedFunction, ...]:
    """Those of the kernels that serve one; `variants` are the rows of each kernel's table, in its order."""
    found: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.serves and kernel.name in variants:
            found.setdefault((kernel.serves, kernel.digest), []).append(kernel)
    return tuple(
        ServedFunction(
            module=serves.partition(":")[0],
            name=serves.partition(":")[2],
            digest=digest,
            parameters=own[0].parameters,
            launches=tuple(_launch(kernel, variants[kernel.name]) for kernel in own),
        )
        for (serves, digest), own in found.items()
    )


def option_defaults() -> dict[str, Value]:
    """Options of Triton's, and what they are where a manifest does not say otherwise."""
    known = {name: one.default for one in options("variant") for name in one.names if one.language != CUDA}
    return known | {
        name: value if not isinstance(value, dict) else repr(value) for name, value in IGNORED.items()
    }


def _launch(kernel: Kernel, variants: Sequence[Variant]) -> ServedLaunch:
    constexprs = [name for name, is_constexpr, *_ in kernel.parameters if is_constexpr]
    axes = tuple(axis.name for axis in kernel.matrix if axis.name in constexprs)
    columns = (*constexprs, *_options(variants))
    configs: dict[tuple[Value, ...], int] = {}
    rows = tuple(configs.setdefault(_row(variant, columns), len(configs)) for variant in variants)
    return ServedLaunch(
        name=kernel.name,
        arguments=tuple(_arguments(kernel)),
        axes=axes,
        columns=columns,
        configs=tuple(configs),
        rows=rows,
        keys=tuple(name for name, _ in kernel.seen),
        seen=tuple(zip(*(values for _, values in kernel.seen))),
        types=tuple(_types(kernel)),
        listed=kernel.variants,
        header=kernel.columns,
    )


def _types(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """The axes that are types of arguments, each with the first that has it."""
    for axis in kernel.matrix:
        named = (argument.name for argument in kernel.args if f"{{{axis.name}}}" in argument.type)
        if not axis.is_parameter and (argument := next(named, None)):
            yield axis.name, argument


def _options(variants: Sequence[Variant]) -> Iterator[str]:
    """The options that names show, and those that any row has not at their defaults."""
    for option in options("variant"):
        given = {getattr(variant.options, option.name) for variant in variants}
        if option.language in ("", TRITON) and (option.is_shown or given != {option.default}):
            yield option.alias or option.name


def _row(variant: Variant, columns: Sequence[str]) -> tuple[Value, ...]:
    values = variant.values
    chosen = {name: getattr(variant.options, option.name) for option in options() for name in option.names}
    return tuple(values[name] if name in values else chosen.get(name) for name in columns)


def _arguments(kernel: Kernel) -> Iterator[ServedArgument]:
    """The parameters that are arguments; elements of tuples are arguments of their own, `strides_0`, `strides_1`."""
    types = {argument.name: argument.type for argument in kernel.args}
    kinds = {name: _kind(type_, kernel.matrix) for name, type_ in types.items()}
    for name, is_constexpr, *_ in kernel.parameters:
        if name in types:
            found = parts(types[name])
            padding = "nan" if "]:nan" in types[name] else "zero"
            yield ServedArgument(name, (kinds[name],), block=found[1] if found else (), padding=padding)
        elif not is_constexpr:
            elements = [other for other in types if re.fullmatch(rf"{re.escape(name)}_\d+", other)]
            if elements:
                yield ServedArgument(name, tuple(kinds[other] for other in elements), is_tuple=True)


def _kind(type_: str, axes: Sequence[Axis]) -> str:
    """What a call gives for a type."""
    if type_.startswith(("*", "tensordesc<")):
        return "pointer"
    values = {f"{{{axis.name}}}": str(axis.values[0]) for axis in axes}
    word = values.get(type_, type_).partition(":")[0]
    return "bool" if word == "i1" else "integer" if word[0] in "iu" else "float"
