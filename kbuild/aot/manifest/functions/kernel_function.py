"""What a manifest has to agree with of a kernel's function, in whichever language it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbuild.aot.manifest.model import Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, names_of
from kbuild.options import TRITON


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel."""

    name: str
    """Its name."""
    is_constexpr: bool
    """Whether it is annotated `tl.constexpr`."""
    has_default: bool
    """Whether a call may leave it out."""
    default: Value = None
    """The default's value where `is_literal`, and for a type such as `tl.float16` the manifest's word."""
    is_literal: bool = False
    """Whether the default is a plain value rather than an expression that only the compiler can work out."""
    written: str = ""
    """Its type as the source writes it, in languages that have them."""
    line: int = 0
    """Where it stands in the source, 1-based; 0 where that is of no use."""


@dataclass(frozen=True)
class KernelFunction:
    """The parts of a kernel function that a manifest has to agree with."""

    parameters: tuple[KernelParameter, ...]
    """In order."""
    doc: str
    """Its doc string, or nothing."""
    decorators: tuple[str, ...] = ()
    """Those of `@triton.autotune` and `@triton.heuristics` that it has."""
    is_jit: bool = False
    """Whether a decorator such as `@triton.jit` makes it a kernel."""
    language: str = TRITON
    """`triton` or `cuda`."""


def with_elements(
    reader: ManifestReader, path: KeyPath, args: Mapping[str, Any], function: KernelFunction
) -> tuple[dict[str, Any], KernelFunction]:
    """The table `args` and the function with the elements of tuples as arguments of their own: `strides_0` and
    `strides_1` for `strides = ["i32", "i32"]`."""
    known = [parameter.name for parameter in function.parameters]
    table: dict[str, Any] = {}
    elements: dict[str, list[str]] = {}

    def element(place: KeyPath, name: str, given: Any) -> list[str]:
        """The arguments that a tuple, or an element of one, stands for."""
        if isinstance(given, list) and given:
            return [
                leaf
                for index, item in enumerate(given)
                for leaf in element((*place, index), f"{name}_{index}", item)
            ]
        reader.also_at(place, (*path, name))
        if name in known:
            message = f"the kernel has a parameter {name}, which would be the name of an element"
            reader.error(place[: len(path) + 1], message, "give one of them another name")
        table[name] = given
        return [name]

    for key, given in args.items():
        if isinstance(given, list) and given:
            for name in names_of(key):
                elements[name] = element((*path, key), name, given)
        else:
            table[key] = given
    parameters = (
        replace(parameter, name=name) if name != parameter.name else parameter
        for parameter in function.parameters
        for name in (
            [parameter.name] if parameter.is_constexpr else elements.get(parameter.name, [parameter.name])
        )
    )
    return table, replace(function, parameters=tuple(parameters))
