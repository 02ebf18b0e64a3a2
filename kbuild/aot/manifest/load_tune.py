"""The table `[kernel.tune]` of a manifest, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kbuild.aot.manifest import expressions, schema
from kbuild.aot.manifest.expressions import Expression
from kbuild.aot.manifest.load_verify import read_defaults, read_texts, read_values
from kbuild.aot.manifest.load_when import condition, guards
from kbuild.aot.manifest.model import Argument, Axis, Bucket, Config, Specialization, Tune, Value, Verify
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import Reader, described, is_value, suggestion
from kbuild.errors import ManifestError

MOST_CANDIDATES = 5_000
"""Configurations of one bucket."""

_OPTIONS = {option.name: option for option in schema.TUNED}

Candidates = Mapping[str, tuple[Value, ...]]


def load_tune(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    args: tuple[Argument, ...],
    grid_args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: tuple[Specialization, ...],
    configs: tuple[Config, ...],
    verify: Verify | None,
) -> Tune | None:
    """What to tune; None where the kernel has no such table."""
    if "tune" not in table:
        return None
    path = (*path, "tune")
    given = reader.get(path, table, dict, {})
    reader.keys(path, given, schema.TUNE.names, schema.TUNE.required)
    pointers = [argument.name for argument in args if argument.is_pointer]
    sizes = verify.sizes if verify else ()
    if "sizes" in given or verify is None:
        sizes = read_texts(reader, (*path, "sizes"), given, pointers, pointers)
        if "sizes" not in given and pointers:
            reader.error(path, 'missing key "sizes"', "how many elements each pointer points to")
    known = {name for config in configs for name, _ in config.constexprs}
    common = _candidates(reader, path, given, known)
    scalars = [argument for argument in args + grid_args if not argument.is_pointer]
    defaults = read_defaults(reader, path, given, scalars)
    buckets = []
    for key, entry in reader.tables((*path, "bucket"), given):
        reader.keys(key, entry, schema.BUCKET.names, schema.BUCKET.required)
        when = reader.get((*key, "when"), entry, dict, {})
        where = condition(reader, (*key, "when"), when, matrix, args, specializations)
        facts = guards(reader, (*key, "when"), when, args)
        values = read_values(
            reader, (*key, "values"), reader.get((*key, "values"), entry, dict, {}), scalars, defaults
        )
        numbers = {name: value for name, value in values if isinstance(value, int)}
        for guard in facts:
            if numbers.keys() >= set(guard.arguments):
                fact = expressions.parse(guard.expression, numbers, "")
                if not expressions.evaluate(fact, numbers):
                    reader.error(
                        (*key, "values", guard.arguments[0]), f"the bucket is for {guard.expression}"
                    )
        candidates = {**common, **_candidates(reader, key, entry, known)}
        if not candidates:
            reader.error(key, "no candidates", "give lists of meta-parameters in tune.candidates")
        if math.prod(map(len, candidates.values())) > MOST_CANDIDATES:
            reader.error(key, f"more than {MOST_CANDIDATES:,} candidates", "shorten a list")
        names = [*sorted(known), *_OPTIONS, *numbers]
        required = (*_require(reader, path, given, names), *_require(reader, key, entry, names))
        buckets.append(Bucket(where, facts, values, tuple(candidates.items()), required))
    return Tune(sizes, tuple(buckets))


def _require(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], names: list[str]
) -> tuple[Expression, ...]:
    """The expression of `require`, checked; none where there is no such key."""
    text = reader.get((*path, "require"), table, str, "")
    if not text:
        return ()
    try:
        return (expressions.parse(text, names, ""),)
    except ManifestError as error:
        reader.error((*path, "require"), error.message.removeprefix(": "), error.hint)
        return ()


def _candidates(reader: Reader, path: KeyPath, table: Mapping[str, Any], known: set[str]) -> Candidates:
    """The lists of `candidates`, by meta-parameter."""
    found: dict[str, tuple[Value, ...]] = {}
    for name, values in reader.get((*path, "candidates"), table, dict, {}).items():
        key = (*path, "candidates", name)
        if name not in known and name not in _OPTIONS:
            reader.error(key, "no configuration gives it", suggestion(name, [*sorted(known), *_OPTIONS]))
        elif not isinstance(values, list) or not values:
            reader.error(
                key,
                f"expected a list of values, found {'an empty list' if values == [] else described(values)}",
            )
        else:
            for index, value in enumerate(values):
                if not _fits(name, value):
                    reader.error((*key, index), f"{described(value)} cannot be a value of {name}")
            found[name] = tuple(values)
    return found


def _fits(name: str, value: object) -> bool:
    return _OPTIONS[name].is_legal(value) if name in _OPTIONS else is_value(value)
