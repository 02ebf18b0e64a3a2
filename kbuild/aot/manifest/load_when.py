"""Tables `when = { … }` of a manifest, checked: points of architecture and matrix, and facts of run-time
arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from kbuild.aot.manifest import schema, schema_values
from kbuild.aot.manifest.expressions import NUM_SMS
from kbuild.aot.manifest.model import Argument, Axis, Guard, PointCondition, Specialization, Value, is_same
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, one_line, placed, suggestion
from kbuild.aot.manifest.table import checked

_FACT = re.compile(schema_values.FACT)
_FACTOR = re.compile(r"\s*(?:(\w+)|cdiv\(\s*(\w+)\s*,\s*([1-9]\d{0,8})\s*\))\s*")


def read_exclude(
    reader: ManifestReader, path: KeyPath, table: Mapping[str, Any], matrix: tuple[Axis, ...]
) -> PointCondition:
    """Which points are left out."""
    axes = {axis.name: axis.values for axis in matrix}
    return _condition(
        reader, path, table, checked(reader, path, table, schema.EXCLUDE, {"<axis>": axes}), axes
    )


def read_when(
    reader: ManifestReader,
    path: KeyPath,
    table: Mapping[str, Any],
    matrix: tuple[Axis, ...],
    args: tuple[Argument, ...],
    specializations: tuple[Specialization, ...],
) -> tuple[PointCondition, tuple[Guard, ...]]:
    """Which points are meant, and which facts are asked for."""
    axes = {axis.name: axis.values for axis in matrix}
    types = {argument.name: argument.type for argument in args}
    combined = [name for name in table if name not in types and is_fact(name, types)]
    names = {"<axis>": axes, "<argument>": [*sorted(types), *combined]}
    values = checked(reader, path, table, schema_values.WHEN, names)
    asked = [name for name in (*types, *combined) if name in table and name not in axes]
    choices = {name: value for name, value in values.items() if name not in asked}
    called = tuple(one.name for one in specializations if one.name)
    where = _condition(reader, path, table, choices, axes | {"specialize": called})
    return where, _guards(reader, path, {name: (values.get(name) or ("",))[0] for name in asked}, types)


def _condition(
    reader: ManifestReader,
    path: KeyPath,
    table: Mapping[str, Any],
    choices: Mapping[str, tuple[Value, ...]],
    known: Mapping[str, tuple[Value, ...]],
) -> PointCondition:
    """Notes chosen values that are not among the `known` ones of their axis."""
    for name, values in choices.items():
        for place, value in placed(table[name], values):
            if name in known and not any(is_same(value, choice) for choice in known[name]):
                message = f"{described(value)} is not a value of {name}"
                legal = [one_line(choice).strip('"') for choice in known[name]]
                reader.error((*path, name, *place), message, suggestion(value, legal))
    return PointCondition(tuple(choices.items()))


def _guards(
    reader: ManifestReader, path: KeyPath, facts: Mapping[str, str], types: Mapping[str, str]
) -> tuple[Guard, ...]:
    """The run-time facts of a `when`: `M = "<= 64"`, several as `M = "> 16, <= 64"`, of a product as `"M * N"
    = "<= 4096"`, or of numbers of blocks as `"cdiv(M, 64) * cdiv(N, 128)" = "<= num_sms"`."""
    found: list[Guard] = []
    for name, text in facts.items():
        factors = _factors(name)
        wrong = [
            types[factor] for factor, _ in factors if types[factor][:1] not in "iu" or types[factor] == "i1"
        ]
        if wrong:
            message = f"only facts about integers can be asked for, and the argument is {wrong[0]}"
            reader.error((*path, name), message)
            continue
        product = "*".join(f"{factor}:{size}" if size else factor for factor, size in factors)
        for match in _FACT.finditer(text):
            is_share = NUM_SMS in match[2]
            if is_share and NUM_SMS in types:
                reader.error((*path, name), f"{NUM_SMS} is an argument here, and facts compare with numbers")
            found.append(Guard(product, match[1], "".join(match[2].split()) if is_share else int(match[2])))
    return tuple(found)


def is_fact(name: str, arguments: Collection[str]) -> bool:
    """Whether a key names only arguments."""
    return all(factor in arguments for factor, _ in _factors(name))


def _factors(name: str) -> tuple[tuple[str, str], ...]:
    """The arguments in a product, each with the size of the blocks that are counted, if any: `M * cdiv(N,
    64)`."""
    matches = [_FACTOR.fullmatch(part) for part in name.split("*")]
    return tuple((match[1] or match[2], match[3] or "") if match else (name, "") for match in matches)
