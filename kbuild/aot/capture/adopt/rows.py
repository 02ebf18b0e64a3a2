"""Rows of variants made from calls: which axes they have, and which configuration a call of each kind takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.capture.adopt.calls import Call, Calls
from kbuild.aot.capture.adopt.choices import Config, Sample, rules
from kbuild.aot.manifest.model import Value
from kbuild.options import by_name

MOST_VALUES = 60
"""Values of an axis, which the launcher finds by the bits of a word."""
MOST_FACTS = 32
"""Rows for sizes by which a tuner chose, for each point and set of hints."""
MOST_SEEN = 500
"""Keys of a tuner that the manifest names."""

Point = tuple[Value, ...]
Hints = tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One variant of a kernel, on every architecture."""

    point: Point
    """Values of the axes."""
    hints: Hints
    """One for each argument."""
    config: Config
    """Values of meta-parameters and options."""
    facts: tuple[str, ...] = ()
    """What has to hold of arguments, as `n<=4096`."""


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
    asked: dict[Row, list[Call]] = field(default_factory=dict[Row, list[Call]])
    """The calls by what they asked for, rows without facts."""
    seen: dict[str, list[Value]] = field(default_factory=dict[str, list[Value]])
    """The keys for which a tuner chose, by name: the first of each is the first key."""
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
    found: dict[tuple[Point, Hints], list[tuple[Config, Call]]] = {}
    for call in _few_values(calls.calls, chosen, table.notes):
        point = (
            *(_type_value(call, types[name]) for name in types),
            *(call.constexprs[name] for name in chosen),
        )
        config = tuple(_given(call, name) for name in table.columns)
        key = point, tuple(leaf.hint for leaf in call.leaves)
        table.asked.setdefault(Row(*key, config), []).append(call)
        found.setdefault(key, []).append((config, call))
    ambiguous = 0
    for (point, hints), configs in found.items():
        rows, is_ambiguous = _rows(point, hints, configs, set(table.arguments))
        ambiguous += is_ambiguous
        table.rows += rows
    table.seen = _seen(calls.calls)
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
    point: Point, hints: Hints, configs: list[tuple[Config, Call]], arguments: set[str]
) -> tuple[list[Row], bool]:
    """The rows of one point and one set of hints, by the keys of a tuner; and whether calls that look the same asked for
    different ones."""
    counts: dict[Config, int] = {}
    choices: dict[tuple[tuple[str, int], ...], dict[Config, int]] = {}
    for config, call in configs:
        count = max(call.count, 1)
        counts[config] = counts.get(config, 0) + count
        for key in call.keys:
            sizes = tuple(
                (name, key[name]) for name in sorted(key) if name in arguments and _is_size(key[name])
            )
            known = choices.setdefault(sizes, {})
            known[config] = known.get(config, 0) + count
    usual = max(counts, key=lambda config: counts[config])
    if len(counts) == 1:
        return [Row(point, hints, usual)], False
    names = {tuple(name for name, _ in sizes) for sizes in choices}
    if len(names) != 1 or names == {()}:
        return [Row(point, hints, usual)], True
    chosen = {sizes: max(known, key=lambda config: known[config]) for sizes, known in choices.items()}
    samples = [Sample(dict(sizes), config) for sizes, config in chosen.items()]
    ambiguous = any(len(known) > 1 for known in choices.values()) or len(set(chosen.values())) < len(counts)
    return [Row(point, hints, config, facts) for facts, config in rules(samples, MOST_FACTS)], ambiguous


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _seen(calls: Sequence[Call]) -> dict[str, list[Value]]:
    """The keys that a tuner was asked for, those that were launched most if they are many, by name."""
    counts: dict[tuple[tuple[str, int], ...], int] = {}
    for call in calls:
        for key in call.keys:
            if not all(map(_is_size, key.values())):
                return {}
            one = tuple(sorted(key.items()))
            counts[one] = counts.get(one, 0) + call.count
    names = {tuple(name for name, _ in one) for one in counts}
    if len(names) != 1:
        return {}
    most = sorted(counts, key=lambda one: -counts[one])[:MOST_SEEN]
    return {name: [dict(one)[name] for one in sorted(most)] for name in names.pop()}


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
    tuned = sorted({fact.partition("<=")[0] for row in table.rows for fact in row.facts})
    if tuned:
        table.notes.append(
            f"@triton.autotune chose by {', '.join(tuned)}: other sizes get the choice of the nearest that was seen"
        )
    if ambiguous:
        table.notes.append(
            f"{ambiguous} calls were asked for with different options, such as num_warps: the one launched most is built"
        )
