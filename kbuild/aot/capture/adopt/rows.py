"""Rows of variants made from calls: which axes they have, and which configuration a call of each kind takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.capture.adopt.calls import Call, Calls
from kbuild.aot.manifest.model import Value
from kbuild.options import by_name

MOST_VALUES = 60
"""Values of an axis, which the launcher finds by the bits of a word."""
MOST_FACTS = 32
"""Keys of a tuner that get a row of their own, for each point and set of hints."""

Point = tuple[Value, ...]
Hints = tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One variant of a kernel, on every architecture."""

    point: Point
    """Values of the axes."""
    hints: Hints
    """One for each argument."""
    config: tuple[Value, ...]
    """Values of meta-parameters and options."""
    facts: tuple[str, ...] = ()
    """What has to hold of arguments, as `n==4096`."""


@dataclass
class Table:
    """The rows of one kernel of the package."""

    calls: Calls
    args: dict[str, str | list[str]] = field(default_factory=dict[str, str | list[str]])
    """Types of arguments without hints, by parameter, with axes in braces."""
    arguments: tuple[str, ...] = ()
    """Their names, those of elements of tuples among them."""
    axes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Meta-parameters and options."""
    rows: list[Row] = field(default_factory=list[Row])
    notes: list[str] = field(default_factory=list[str])
    """What its author should know."""

    def values(self, axis: int) -> list[Value]:
        """The values of an axis: numbers by size, others in the order in which they were met."""
        found = list(dict.fromkeys(row.point[axis] for row in self.rows))
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)
        return sorted(found, key=float) if is_number else found  # type: ignore[arg-type]


def table_of(calls: Calls) -> Table:
    """The rows that serve exactly these calls."""
    table = Table(calls)
    types = _type_axes(calls.calls, table)
    first = calls.calls[0]
    chosen = [
        name
        for name, value in first.constexprs.items()
        if name not in first.tuned and value is not None and by_name(name, "variant") is None
    ]
    others = [name for name in first.constexprs if name not in chosen]
    options = dict.fromkeys(name for call in calls.calls for name in call.options)
    table.axes = (*types, *chosen)
    table.columns = (*others, *(name for name in options if name not in others))
    found: dict[tuple[Point, Hints], list[tuple[tuple[Value, ...], Call]]] = {}
    for call in _few_values(calls.calls, chosen, table.notes):
        point = (
            *(_type_value(call, types[name]) for name in types),
            *(call.constexprs[name] for name in chosen),
        )
        config = tuple(_given(call, name) for name in table.columns)
        key = point, tuple(leaf.hint for leaf in call.leaves)
        found.setdefault(key, []).append((config, call))
    ambiguous = 0
    for (point, hints), configs in found.items():
        rows, is_ambiguous = _rows(point, hints, configs, set(table.arguments))
        ambiguous += is_ambiguous
        table.rows += rows
    _note(table, ambiguous)
    return table


def _type_axes(calls: Sequence[Call], table: Table) -> dict[str, int]:
    """The axes that types of arguments follow, each with the place of an argument of that type; arguments whose types are
    the same in every call share one."""
    names = {name for call in calls for name in call.constexprs} | {leaf.name for leaf in calls[0].leaves}
    axes: dict[tuple[str, ...], str] = {}
    places: dict[str, int] = {}
    texts: list[str] = []
    for index, leaf in enumerate(calls[0].leaves):
        column = tuple(call.leaves[index].type for call in calls)
        text = column[0]
        if len(set(column)) > 1:
            if column not in axes:
                wanted = [
                    "dtype" if not axes else f"{leaf.name}_dtype",
                    f"{leaf.name}_type",
                    f"type_of_{leaf.name}",
                ]
                axes[column] = next(name for name in wanted if name not in names and name not in places)
                places[axes[column]] = index
            text = f"{{{axes[column]}}}"
        texts.append(f"{leaf.pointer}{text}")
    for leaf, text in zip(calls[0].leaves, texts):
        if leaf.name == leaf.parameter:
            table.args[leaf.name] = text
        else:
            known = table.args.setdefault(leaf.parameter, [])
            assert isinstance(known, list)
            known.append(text)
    table.arguments = tuple(leaf.name for leaf in calls[0].leaves)
    return places


def _given(call: Call, name: str) -> Value:
    """A meta-parameter or option of a call."""
    if name in call.constexprs:
        return call.constexprs[name]
    option = by_name(name, "variant")
    return call.options.get(name, option.default if option else None)


def _type_value(call: Call, place: int) -> str:
    return call.leaves[place].type


def _few_values(calls: Sequence[Call], axes: Sequence[str], notes: list[str]) -> list[Call]:
    """The calls without those whose values of an axis are beyond the most used ones."""
    kept = list(calls)
    for name in axes:
        counts: dict[Any, int] = {}
        for call in kept:
            value = call.constexprs[name]
            counts[value] = counts.get(value, 0) + call.count
        if len(counts) > MOST_VALUES:
            most = set(sorted(counts, key=lambda value: -counts[value])[:MOST_VALUES])
            kept = [call for call in kept if call.constexprs[name] in most]
            notes.append(
                f"{name} was seen with {len(counts)} values: rows for the {MOST_VALUES} launched most"
            )
    return kept


def _rows(
    point: Point, hints: Hints, configs: list[tuple[tuple[Value, ...], Call]], arguments: set[str]
) -> tuple[list[Row], bool]:
    """The rows of one point and one set of hints: those for keys of a tuner, then the configuration of all other calls; and
    whether calls that look the same asked for different ones."""
    counts: dict[tuple[Value, ...], int] = {}
    for config, call in configs:
        counts[config] = counts.get(config, 0) + max(call.count, 1)
    usual = max(counts, key=lambda config: counts[config])
    facts: dict[tuple[str, ...], tuple[tuple[Value, ...], int]] = {}
    unknown = False
    for config, call in configs:
        if config == usual:
            continue
        own = [tuple(f"{name}=={key[name]}" for name in key if name in arguments) for key in call.keys]
        unknown = unknown or not any(own)
        for fact in filter(None, own):
            known = facts.get(fact)
            if known is None or call.count > known[1]:
                facts[fact] = config, call.count
    most = sorted(facts, key=lambda fact: -facts[fact][1])[:MOST_FACTS]
    rows = [Row(point, hints, facts[fact][0], fact) for fact in most]
    return [*rows, Row(point, hints, usual)], unknown


def _note(table: Table, ambiguous: int) -> None:
    """What the rows do not cover, and what generalises."""
    for index, name in enumerate(table.axes):
        values = table.values(index)
        is_size = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        if is_size and len(values) > 1:
            table.notes.append(f"{name} was seen with {len(values)} values: rows for each, and for no others")
    always: dict[str, list[str]] = {"1": [], "16": []}
    for index, name in enumerate(table.arguments):
        hints = {row.hints[index] for row in table.rows}
        is_pointer = bool(table.calls.calls[0].leaves[index].pointer)
        if len(hints) == 1 and not is_pointer:
            always.get(hints.pop(), []).append(name)
    for hint, names in always.items():
        if names:
            what = "one" if hint == "1" else "divisible by 16"
            verb = "were" if len(names) > 1 else "was"
            table.notes.append(f"{', '.join(names)} {verb} always {what}: other calls are not built")
    tuned = sorted({fact.partition("==")[0] for row in table.rows for fact in row.facts})
    if tuned:
        keys = len({row.facts for row in table.rows if row.facts})
        table.notes.append(
            f"@triton.autotune chose by {', '.join(tuned)}: rows for {keys} of the sizes, and for all others what it chose most"
        )
    if ambiguous:
        table.notes.append(
            f"{ambiguous} calls were asked for with different options, such as num_warps: the one launched most is built"
        )
