"""The launches of captures that `kbuild verify` and `kbuild tune` take: of each row the smallest and the largest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.aot.capture.adopt.calls import Call
from kbuild.aot.capture.adopt.rows import Row, Table
from kbuild.aot.manifest.launches.recorded import SCHEMA, RecordedArray, RecordedLaunch, contiguous
from kbuild.options import by_name


def launches_text(table: Table, grid: Sequence[str]) -> str:
    """The launches of a table's rows as a file; empty where none were recorded."""
    columns = [
        index
        for index, name in enumerate(table.columns)
        if by_name(name, "variant") is None and any(row.config[index] is not None for row in table.rows)
    ]
    hinted = [index for index in range(len(table.arguments)) if any(row.hints[index] for row in table.rows)]
    found = [(row, launch) for row in table.rows for launch in _ends([*_launches(table, row, grid)])]
    if not found:
        return ""
    leaves = table.calls.calls[0].leaves
    arrays = [leaf.name for leaf in leaves if leaf.pointer or "[" in leaf.type]
    header = {
        "kbuild": "launches",
        "schema": SCHEMA,
        "at": [*table.axes, *(table.columns[index] for index in columns)],
        "hints": [table.arguments[index] for index in hinted],
        "values": [*grid, *(leaf.name for leaf in leaves if leaf.name not in arrays)],
        "arrays": arrays,
    }
    lines = [json.dumps(header)]
    for row, launch in found:
        shapes = {array.name: _shape(array) for array in launch.arrays}
        values = dict(launch.values)
        parts = (
            [*row.point, *(row.config[index] for index in columns)],
            [row.hints[index] for index in hinted],
            [values[name] for name in header["values"]],
            [shapes.get(name) for name in arrays],
        )
        lines.append(json.dumps(parts))
    return "\n".join(lines) + "\n"


def _ends(launches: Sequence[RecordedLaunch]) -> list[RecordedLaunch]:
    """The smallest launch and the largest one, which may be the same."""
    if not launches:
        return []
    by_size = sorted(launches, key=lambda launch: launch.elements)
    return [*dict.fromkeys((by_size[0], by_size[-1]))]


def _launches(table: Table, row: Row, grid: Sequence[str]) -> Iterator[RecordedLaunch]:
    """The launches that asked for a row."""
    for call in table.asked.get(replace(row, facts=()), ()):
        for made in call.launches:
            launch = _launch(call, made, grid)
            if launch is not None and _holds(row, launch):
                yield launch


def _launch(call: Call, made: Mapping[str, Any], grid: Sequence[str]) -> RecordedLaunch | None:
    """One launch; None where a number is not known."""
    values: dict[str, Any] = dict(zip(grid, [*made["grid"], 1, 1]))
    arrays: list[RecordedArray] = []
    for leaf in call.leaves:
        value = made["values"].get(leaf.parameter)
        if leaf.name != leaf.parameter:
            index = int(leaf.name.rpartition("_")[2])
            value = value[index] if isinstance(value, list) and index < len(value) else None
        if leaf.pointer or "[" in leaf.type:
            if isinstance(value, dict) and "shape" in value:
                shape = tuple(value["shape"])
                arrays.append(RecordedArray(leaf.name, shape, tuple(value["strides"]) or contiguous(shape)))
        elif value is None and leaf.hint == "1":
            values[leaf.name] = 1
        elif isinstance(value, dict) and "float" in value:
            values[leaf.name] = str(value["float"])
        elif isinstance(value, int | float):
            values[leaf.name] = value
        else:
            return None
    return RecordedLaunch((), (), tuple(values.items()), tuple(arrays))


def _holds(row: Row, launch: RecordedLaunch) -> bool:
    """Whether the facts of a row, upper bounds of sizes, hold of a launch."""
    values = dict(launch.values)
    bounds = (fact.partition("<=") for fact in row.facts)
    return all(values[name] <= int(bound) for name, _, bound in bounds)


def _shape(array: RecordedArray) -> Any:
    """A shape, and the strides where they are not those of a contiguous array."""
    if array.strides == contiguous(array.shape):
        return [*array.shape]
    return [[*array.shape], [*array.strides]]
