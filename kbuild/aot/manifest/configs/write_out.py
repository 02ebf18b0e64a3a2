"""Kernels like others, and configurations that stand for several or compute their values, written out as plain
tables.

A kernel takes the keys that it does not give from the one before it that `like` names, and a choice of an operator those
of that operator's choice.  A list of facts repeats its line.  An expression in place of a meta-parameter is computed: an
axis of the matrix stands for each of its values, and a run-time argument for the largest that `when` lets through.

    { BLOCK = "next_power_of_2(n)", when = { n = ["<= 256", "<= 1000"] } }

    { BLOCK = 256, when = { n = "<= 256" } }
    { BLOCK = 1024, when = { n = "<= 1000" } }

The result is checked by `load_kernel.py` as if it had been written in the manifest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.aot.manifest import expressions, schema_values
from kbuild.aot.manifest.expressions import Expression, ExpressionFault
from kbuild.aot.manifest.functions.kernel_function import KernelParameter
from kbuild.aot.manifest.kinds import ConstexprKind, dotted_type, is_layout
from kbuild.aot.manifest.load_when import is_fact
from kbuild.aot.manifest.model import Argument, Axis, Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, suggestion
from kbuild.errors import ManifestError
from kbuild.options import options

Entry = Mapping[str, Any]

_FACT = re.compile(schema_values.FACT)


def inherit(reader: ManifestReader) -> None:
    """Give kernels the keys of those that they are like, and these keys the lines where they are written."""
    kernels = reader.table.get("kernel")
    if not isinstance(kernels, list):
        return
    first: dict[str, int] = {}
    written: list[Any] = []
    for index, table in enumerate(kernels):
        path = ("kernel", index)
        like = table.get("like") if isinstance(table, Mapping) else None
        if isinstance(like, str) and like not in first:
            reader.error(
                (*path, "like"), f"no kernel {described(like)} before this one", suggestion(like, first)
            )
        elif isinstance(like, str):
            base = written[first[like]]
            own = {name for name in base if name in table} | {"name", "like", "op"}
            for place, line in [*reader.lines.items()]:
                if place[:2] == ("kernel", first[like]) and len(place) > 2 and place[2] not in own:
                    reader.lines[(*path, *place[2:])] = line
            for name in base.keys() - own:
                written_by = reader.writers.get(("kernel", first[like], name), like)
                reader.writers[(*path, name)] = written_by
            table = {**{name: value for name, value in base.items() if name not in own}, **table}
        if isinstance(table, Mapping):
            table = _with_choices(
                reader, path, table, {name: (at, written[at]) for name, at in first.items()}
            )
        if isinstance(table, Mapping) and isinstance(name := table.get("name"), str):
            first.setdefault(name, index)
        written.append(table)
    reader.table = {**reader.table, "kernel": written}


def _with_choices(
    reader: ManifestReader, path: KeyPath, table: Entry, before: Mapping[str, tuple[int, Entry]]
) -> Entry:
    """The kernel with what the choices of its operator take from those of kernels before it."""
    choices = _choices(table)
    if not any(isinstance(choice, Mapping) and "like" in choice for choice in choices):
        return table
    made: list[Any] = []
    for number, choice in enumerate(choices):
        key = (*path, "op", "choose", number)
        like = choice.get("like") if isinstance(choice, Mapping) else None
        if isinstance(like, str):
            at, other = before.get(like, (0, {}))
            theirs = [*_choices(other), *[None] * (number + 1)][number]
            if isinstance(theirs, Mapping):
                place = ("kernel", at, "op", "choose", number)
                own = {**theirs, **choice}
                for where, line in [*reader.lines.items()]:
                    if where[:5] == place and len(where) > 5 and where[5] not in choice:
                        reader.lines[(*key, *where[5:])] = line
                choice = own
            else:
                known = [name for name, (_, one) in before.items() if len(_choices(one)) > number]
                message = f"no operator of {described(like)} before this one chooses as often"
                reader.error((*key, "like"), message, suggestion(like, known))
        made.append(choice)
    return {**table, "op": {**table["op"], "choose": made}}


def _choices(table: Entry) -> list[Any]:
    """The choices of a kernel's operator, as the manifest has them."""
    op = table.get("op")
    choices = op.get("choose") if isinstance(op, Mapping) else None
    return choices if isinstance(choices, list) else []


def for_axes(
    entries: Iterable[tuple[KeyPath, Entry]], legal: Mapping[str, Collection[object]]
) -> Iterator[tuple[KeyPath, Entry]]:
    """The entries of another kernel without those for values that the axes of this one do not have; `legal` has them."""
    for key, entry in entries:
        given = entry.get("when")
        when = {**given} if isinstance(given, Mapping) else {}
        for name, known in legal.items():
            if name in when:
                asked = when[name] if isinstance(when[name], list) else [when[name]]
                when[name] = [value for value in asked if value in known]
        if all(when[name] != [] for name in legal if name in when):
            yield key, {**entry, "when": when} if when else entry


def repeated(
    entries: Iterable[tuple[KeyPath, Entry]], args: Collection[Argument]
) -> Iterator[tuple[KeyPath, Entry]]:
    """The entries, each as often as its `when` has facts in lists."""
    arguments = {argument.name for argument in args}
    for key, entry in entries:
        given = entry.get("when")
        when = given if isinstance(given, Mapping) else {}
        lists = {
            name: facts
            for name, facts in when.items()
            if isinstance(facts, list) and facts and is_fact(name, arguments)
        }
        for facts in itertools.product(*lists.values()):
            yield key, {**entry, "when": {**when, **dict(zip(lists, facts))}} if lists else entry


@dataclass(frozen=True)
class ExpressionScope:
    """What the expressions of a kernel's configurations may name."""

    reader: ManifestReader
    path: KeyPath
    """Of the kernel."""
    args: tuple[Argument, ...]
    matrix: tuple[Axis, ...]
    parameters: Mapping[str, KernelParameter]


def computed(
    scope: ExpressionScope, entries: Iterable[tuple[KeyPath, Entry]], defaults: Entry
) -> Iterator[tuple[KeyPath, Entry, Entry]]:
    """Each entry with the defaults, both with numbers where they had expressions; several times if these name
    axes.  An expression that has no value is noted, and 1 stands for it."""
    for key, entry in entries:
        together = {**defaults, **entry}
        texts = {name: text for name, text in together.items() if _is_expression(scope, name, text)}
        places = {name: (*(key if name in entry else (*scope.path, "defaults")), name) for name in texts}
        known = _constants(scope, together)
        parsed = _parsed(scope, texts, places, known)
        for point in _points(scope, entry, parsed.values()):
            values = _values(scope, parsed, places, {**known, **point}, entry)
            numbers = dict.fromkeys(texts, 1) | values
            when = {"when": {**entry.get("when", {}), **point}} if point else {}
            yield key, _replaced(entry, numbers) | when, _replaced(defaults, {**entry, **numbers})


def _is_expression(scope: ExpressionScope, name: str, value: object) -> bool:
    """Whether a meta-parameter is given by an expression: a plain word is a value."""
    is_parameter = name in scope.parameters and scope.parameters[name].is_constexpr
    if not is_parameter or not isinstance(value, str):
        return False
    return not (ConstexprKind().takes(value) or dotted_type(value) or is_layout(value))


def _replaced(table: Entry, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A table with numbers for the expressions that it has itself."""
    return {
        name: numbers[name] if name in numbers and isinstance(value, str) else value
        for name, value in table.items()
    }


def _constants(scope: ExpressionScope, together: Entry) -> dict[str, int]:
    """The integers that a configuration gives or leaves at their defaults; axes are not among them."""
    values: dict[str, Value] = {option.name: option.default for option in options("variant")}
    values |= {name: one.default for name, one in scope.parameters.items() if one.is_literal}
    values |= together
    for axis in scope.matrix:
        values.pop(axis.name, None)
    return {name: value for name, value in values.items() if isinstance(value, int)}


def _parsed(
    scope: ExpressionScope, texts: Mapping[str, str], places: Mapping[str, KeyPath], known: Collection[str]
) -> dict[str, Expression]:
    """The expressions that are right."""
    axes = [axis.name for axis in scope.matrix if isinstance((*axis.values, "")[0], int)]
    arguments = [argument.name for argument in scope.args if argument.type[:1] in "iu"]
    found: dict[str, Expression] = {}
    for name, text in texts.items():
        names = {*axes, *arguments, *known, *texts} - {name}
        try:
            found[name] = expressions.parse(text, sorted(names), "")
        except ManifestError as error:
            scope.reader.error(places[name], ascii(error.message.removeprefix(": "))[1:-1], error.help)
    return found


def _points(scope: ExpressionScope, entry: Entry, parsed: Iterable[Expression]) -> Iterator[dict[str, int]]:
    """Values of the axes that are named, where the configuration is meant for them."""
    named = {name for expression in parsed for name in expression.names}
    axes = [axis for axis in scope.matrix if axis.name in named]
    when = entry.get("when")
    choices: list[list[Any]] = []
    for axis in axes:
        given = when.get(axis.name, list(axis.values)) if isinstance(when, Mapping) else list(axis.values)
        choices.append(given if isinstance(given, list) else [given])
    for values in itertools.product(*choices):
        yield dict(zip((axis.name for axis in axes), values))


def _values(
    scope: ExpressionScope,
    parsed: Mapping[str, Expression],
    places: Mapping[str, KeyPath],
    known: Mapping[str, Any],
    entry: Entry,
) -> dict[str, int]:
    """The values of the expressions, in whichever order they name each other."""
    values = {name: value for name, value in known.items() if isinstance(value, int)}
    left, found = dict(parsed), {}
    arguments = {argument.name for argument in scope.args}
    while left:
        ready = [name for name, one in left.items() if not left.keys() & set(one.names)]
        for name in ready or left:
            expression = left.pop(name) if ready else left[name]
            try:
                if not ready:
                    raise ExpressionFault(f"depends on itself, by way of {', '.join(left)}")
                bounds = {one: _largest(entry, one) for one in expression.names if one in arguments}
                found[name] = values[name] = expressions.evaluate(expression, values | bounds)
            except ExpressionFault as fault:
                scope.reader.error(places[name], str(fault))
                values[name] = 1
        left = left if ready else {}
    return found


def _largest(entry: Entry, name: str) -> int:
    """The largest value of an argument that `when` lets through; ExpressionFault if it bounds none."""
    when = entry.get("when")
    text = when.get(name, "") if isinstance(when, Mapping) else ""
    bounds: list[int] = []
    for part in text.split(",") if isinstance(text, str) else ():
        match = _FACT.fullmatch(part)
        if match and match[1] in ("<", "<=", "==") and match[2].removeprefix("-").isdigit():
            bounds.append(int(match[2]) - (match[1] == "<"))
    if not bounds:
        raise ExpressionFault(f'{name} has no largest value here: say it in `when`, as {name} = "<= 1024"')
    return min(bounds)
