"""Whether rows multiply, and the tables of a manifest that they are then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.capture.adopt.rows import Hints, Row, Table
from kbuild.aot.manifest.model import Value

_MOST_ENTRIES = 8
"""Configurations and sets of hints that a manifest has in lines of its own; more are a list."""


@dataclass
class Factors:
    """Rows as axes, hints and configurations."""

    matrix: dict[str, list[Value]] = field(default_factory=dict[str, list[Value]])
    hints: dict[str, str] = field(default_factory=dict[str, str])
    """Those that all variants have, by argument."""
    specialize: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    config: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def factored(table: Table) -> Factors | None:
    """The rows as tables; None where they do not multiply, or would take too many lines."""
    if any(value is None for row in table.rows for value in row.config):
        return None
    points = dict.fromkeys(row.point for row in table.rows)
    axes = [table.values(index) for index in range(len(table.axes))]
    sets = list(dict.fromkeys(row.hints for row in table.rows))
    places = dict.fromkeys((row.point, row.hints) for row in table.rows)
    if math.prod(map(len, axes)) != len(points) or len(points) * len(sets) != len(places):
        return None
    config = _config(table, axes)
    if config is None or len(config) > _MOST_ENTRIES or len(sets) > _MOST_ENTRIES:
        return None
    found = Factors(dict(zip(table.axes, axes)), config=config)
    for index, name in enumerate(table.arguments):
        hints = {each[index] for each in sets}
        if len(hints) == 1:
            found.hints[name] = hints.pop()
    if len(sets) > 1:
        found.specialize = [_set(table, each, found.hints) for each in sets]
    return found


def _set(table: Table, hints: Hints, common: dict[str, str]) -> dict[str, int]:
    """A set of hints, without those that all have."""
    return {name: int(hint) for name, hint in zip(table.arguments, hints) if hint and name not in common}


def _config(table: Table, axes: Sequence[Sequence[Value]]) -> list[dict[str, Any]] | None:
    """The configurations: one for all, or one for some values of an axis; with the same facts everywhere."""
    by_place: dict[tuple[Any, ...], list[Row]] = {}
    for row in table.rows:
        by_place.setdefault((row.point, row.hints), []).append(row)
    ways = {place: tuple((row.config, row.facts) for row in rows) for place, rows in by_place.items()}
    if len(set(ways.values())) == 1:
        return [_entry(table, config, facts, {}) for config, facts in next(iter(ways.values()))]
    for axis, values in enumerate(axes):
        chosen = {
            value: {way for (point, _), way in ways.items() if point[axis] == value} for value in values
        }
        if all(len(found) == 1 for found in chosen.values()):
            together: dict[tuple[Any, ...], list[Value]] = {}
            for value, found in chosen.items():
                together.setdefault(next(iter(found)), []).append(value)
            return [
                _entry(table, config, facts, {table.axes[axis]: values if len(values) > 1 else values[0]})
                for way, values in together.items()
                for config, facts in way
            ]
    return None


def _entry(
    table: Table, config: Sequence[Value], facts: Sequence[str], when: dict[str, Any]
) -> dict[str, Any]:
    where = dict(when)
    for fact in facts:
        name, _, bound = fact.partition("<=")
        where[name] = f"<= {bound}"
    return dict(zip(table.columns, config)) | ({"when": where} if where else {})
