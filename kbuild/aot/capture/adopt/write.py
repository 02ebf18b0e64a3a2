"""The texts of what `kbuild import` writes: a manifest, and the lists of variants beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kbuild.aot.capture.adopt.factors import Factors, factored
from kbuild.aot.capture.adopt.launches import launches_text
from kbuild.aot.capture.adopt.locate import Located
from kbuild.aot.capture.adopt.rows import Table
from kbuild.aot.init.toml_text import WIDTH, grouped, toml_key, toml_list, toml_value
from kbuild.aot.manifest.configs.listed import SCHEMA

FOLDER = "captured"
"""Where lists of variants and embedded sources are, beside the manifest."""
_GRID = ("grid_0", "grid_1", "grid_2")


def head_text(package: str, archs: Sequence[str], requirements: Sequence[str]) -> list[str]:
    """What stands before the kernels."""
    lines = [
        "# Written by `kbuild import` of what `kbuild capture` has recorded; docs/adopt.md explains it.",
        *([f"# Sources are those of installed wheels: {', '.join(requirements)}."] if requirements else []),
        "schema = 1",
        "",
        "[package]",
        f"name = {toml_value(package)}",
        'version = "0.1.0"',
    ]
    return [*lines, *toml_list("archs", [toml_value(arch) for arch in archs])]


def kernel_text(name: str, table: Table, located: Located) -> tuple[list[str], dict[str, str]]:
    """The `[[kernel]]` of a table, and its lists by file: of variants, where these do not multiply, and of launches, where
    some were recorded."""
    kernel = table.calls.kernel
    factors = factored(table)
    grid = _grid_names({name for name, _ in kernel.params} | {*table.axes, *table.arguments})
    lines = [
        "[[kernel]]",
        f"name = {toml_value(name)}",
        f"source = {toml_value(located.source)}",
        f"function = {toml_value(located.function)}",
        f"digest = {toml_value(kernel.digest)}",
        f"serves = {toml_value(f'{kernel.module}:{kernel.name}')}",
    ]
    if table.seen:
        lines += _table("seen", table.seen)
    lines += toml_list("grid", [toml_value(axis) for axis in grid])
    lines.append(f"grid_args = {toml_value({', '.join(grid): 'i32'})}")
    lines += _table("args", grouped(_args(table, factors)))
    files: dict[str, str] = {}
    if text := launches_text(table, grid):
        files[f"{FOLDER}/{name}.launches.jsonl"] = text
        lines.append(f'launches = "{FOLDER}/{name}.launches.jsonl"')
    if factors is None:
        files[f"{FOLDER}/{name}.jsonl"] = list_text(table)
        return [*lines, f'variants = "{FOLDER}/{name}.jsonl"'], files
    if factors.matrix:
        lines += _table("matrix", factors.matrix)
    if factors.specialize:
        lines += toml_list("specialize", [toml_value(grouped(hints)) for hints in factors.specialize], True)
    lines += toml_list("config", [toml_value(config) for config in factors.config], True)
    return lines, files


def _grid_names(taken: set[str]) -> tuple[str, ...]:
    """Names of the sizes of the grid, which callers give as `grid=(…)` or by these."""
    prefix = ""
    while any(f"{prefix}{name}" in taken for name in _GRID):
        prefix += "launch_"
    return tuple(f"{prefix}{name}" for name in _GRID)


def _args(table: Table, factors: Factors | None) -> dict[str, Any]:
    """The types of arguments, with the hints that all variants have."""
    hints = factors.hints if factors else {}

    def hinted(name: str, text: str) -> str:
        return f"{text}:{hints[name]}" if hints.get(name) else text

    return {
        name: [hinted(f"{name}_{index}", text) for index, text in enumerate(type_)]
        if isinstance(type_, list)
        else hinted(name, type_)
        for name, type_ in table.args.items()
    }


def _table(key: str, values: dict[str, Any]) -> Iterator[str]:
    """A table on one line, or with a line for each key."""
    inline = f"{key} = {toml_value(values)}"
    if len(inline) <= WIDTH:
        yield inline
    else:
        yield from (f"{key}.{toml_key(name)} = {toml_value(value)}" for name, value in values.items())


def list_text(table: Table) -> str:
    """The rows of a table as a list of variants."""
    hinted = [index for index in range(len(table.arguments)) if any(row.hints[index] for row in table.rows)]
    header = {
        "kbuild": "variants",
        "schema": SCHEMA,
        "axes": [*table.axes],
        "hints": [table.arguments[index] for index in hinted],
        "config": [*table.columns],
    }
    lines = [json.dumps(header)]
    for row in table.rows:
        parts: list[Any] = [[*row.point], [row.hints[index] for index in hinted], [*row.config]]
        lines.append(json.dumps([*parts, [*row.facts]] if row.facts else parts))
    return "\n".join(lines) + "\n"
