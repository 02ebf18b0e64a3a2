"""Tables `when = { … }` of a manifest, checked: points of architecture and matrix, and facts of run-time
arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from kbuild.aot.manifest import schema
from kbuild.aot.manifest.model import ARCHS, Argument, Axis, Condition, Guard, Specialization, Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import Reader, described, is_value, suggestion

_FACT = re.compile(schema.FACT)
_FACTOR = re.compile(r"\s*(?:(\w+)|cdiv\(\s*(\w+)\s*,\s*([1-9]\d{0,8})\s*\))\s*")


def condition(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    matrix: tuple[Axis, ...],
    args: tuple[Argument, ...] = (),
    specializations: tuple[Specialization, ...] = (),
) -> Condition:
    """Which points are meant; names of arguments, where they may be named, are left to `guards`."""
    known: dict[str, tuple[Value, ...]] = {"arch": ARCHS} | {axis.name: axis.values for axis in matrix}
    if specializations:
        known["specialize"] = tuple(one.name for one in specializations if one.name)
    arguments = {argument.name for argument in args}
    choices: list[tuple[str, tuple[Value, ...]]] = []
    for name, value in table.items():
        if _is_fact(name, arguments):
            continue
        key = (*path, name)
        if name not in known:
            what = "architecture, axis or argument" if args else "architecture or axis"
            reader.error(key, f"no such {what}", suggestion(name, [*known, *sorted(arguments)]))
            continue
        values = value if isinstance(value, list) else [value]
        for index, entry in enumerate(values):
            if not any(type(entry) is type(choice) and entry == choice for choice in known[name]):
                place = (*key, index) if isinstance(value, list) else key
                reader.error(
                    place,
                    f"{described(entry)} is not a value of {name}",
                    suggestion(entry, map(str, known[name])),
                )
        choices.append((name, tuple(entry for entry in values if is_value(entry))))
    return Condition(tuple(choices))


def guards(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], args: tuple[Argument, ...]
) -> tuple[Guard, ...]:
    """The run-time facts of a `when`: `M = "<= 64"`, several as `M = "> 16, <= 64"`, of a product as `"M * N"
    = "<= 4096"`, or of numbers of blocks as `"cdiv(M, 64) * cdiv(N, 128)" = "<= 132"`."""
    found: list[Guard] = []
    types = {argument.name: argument.type for argument in args}
    order = [name for name in types if name in table]
    products = [name for name in table if name not in types and _is_fact(name, types.keys())]
    for name in (*order, *products):
        key, text, factors = (*path, name), table[name], _factors(name)
        wrong = [
            types[factor] for factor, _ in factors if types[factor][:1] not in "iu" or types[factor] == "i1"
        ]
        if wrong:
            reader.error(key, f"only facts about integers can be asked for, and the argument is {wrong[0]}")
            continue
        for part in text.split(",") if isinstance(text, str) else (None,):
            match = _FACT.fullmatch(part) if part is not None else None
            if match is None or ("%" in match[1] and int(match[2]) <= 0):
                reader.error(
                    key, f"{described(text)} is not a fact", 'write it as "<= 64", "% 16" or "> 16, <= 64"'
                )
                break
            product = "*".join(f"{factor}:{size}" if size else factor for factor, size in factors)
            found.append(Guard(product, match[1], int(match[2])))
    return tuple(found)


def _is_fact(name: str, arguments: Collection[str]) -> bool:
    """Whether a key is about arguments alone."""
    return all(factor in arguments for factor, _ in _factors(name))


def _factors(name: str) -> tuple[tuple[str, str], ...]:
    """The arguments in a product, each with the size of the blocks that are counted, if any: `M * cdiv(N,
    64)`."""
    matches = [_FACTOR.fullmatch(part) for part in name.split("*")]
    return tuple((match[1] or match[2], match[3] or "") if match else (name, "") for match in matches)
