"""The table `[kernel.tune]` of a manifest, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.configs.load_configs import LoadedConfigs
from kbuild.aot.manifest.configs.write_out import repeated
from kbuild.aot.manifest.expressions import Expression
from kbuild.aot.manifest.launches import tables
from kbuild.aot.manifest.launches.load_verify import check_pointers, read_defaults, read_launch, read_sizes
from kbuild.aot.manifest.load_when import read_when
from kbuild.aot.manifest.model import (
    Argument,
    Axis,
    Bucket,
    Guard,
    Specialization,
    Tune,
    Value,
    Verify,
)
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader
from kbuild.aot.manifest.table import checked, record
from kbuild.errors import ManifestError
from kbuild.targets import TARGETS

MAX_CANDIDATES = 5_000
"""Configurations of one bucket."""

Candidates = Mapping[str, tuple[Value, ...]]


def load_tune(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    args: tuple[Argument, ...],
    grid_args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: tuple[Specialization, ...],
    loaded: LoadedConfigs,
    verify: Verify | None,
    is_recorded: bool,
) -> Tune:
    """What to tune; `is_recorded` says whether there are captured launches to do it with."""
    tune = checked(reader, path, given, tables.TUNE)
    pointers = [argument.name for argument in args if argument.is_pointer]
    is_recorded = is_recorded and "bucket" not in given
    if not is_recorded:
        _check_given(reader, path, given, bool(pointers) and verify is None)
    check_pointers(reader, path, given, tune, ("zeros", "restore"), pointers)
    presumed = (*(verify.zeros if verify else ()), *loaded.decorated.zeros)
    zeros = tune.get("zeros", tuple(dict.fromkeys(presumed)))
    restore = tune.get("restore", loaded.decorated.restore)
    sizes = verify.sizes if verify and "sizes" not in given else read_sizes(reader, path, tune, pointers)
    configs = [*loaded.configs, *(config for row in loaded.alternatives for config in row)]
    known = sorted({name for config in configs for name, _ in config.constexprs})
    common = _candidates(reader, path, tune, known)
    if is_recorded:
        _check_recorded(reader, path, given, common)
    scalars = [argument for argument in args + grid_args if not argument.is_pointer]
    defaults = read_defaults(reader, path, tune, scalars)
    buckets = []
    for key, entry in repeated(tune.get("bucket", ()), args):
        bucket = checked(reader, key, entry, tables.BUCKET)
        where, facts = read_when(
            reader, (*key, "when"), bucket.get("when", {}), matrix, args, specializations
        )
        values = read_launch(reader, (*key, "values"), bucket.get("values", {}), scalars, defaults)
        numbers = {name: value for name, value in values if isinstance(value, int)}
        _check_facts(reader, (*key, "values"), facts, numbers)
        candidates = {**common, **_candidates(reader, key, bucket, known)}
        _check_candidates(reader, key, key if "candidates" in bucket else path, candidates, loaded)
        integers = [name for name, value in values if value is None or isinstance(value, int)]
        names = [*known, *tables.CANDIDATES.names, *integers]
        required = (*_require(reader, path, tune, names), *_require(reader, key, bucket, names))
        buckets.append(
            record(
                Bucket,
                tables.BUCKET,
                bucket,
                when=where,
                guards=facts,
                values=values,
                candidates=tuple(candidates.items()),
                require=required,
            )
        )
    made = {"sizes": sizes, "buckets": tuple(buckets), "zeros": zeros, "restore": restore}
    made["candidates"] = tuple(common.items()) if is_recorded else ()
    return record(Tune, tables.TUNE, tune, **made)


def _check_candidates(
    reader: ManifestReader, key: KeyPath, owner: KeyPath, candidates: Candidates, loaded: LoadedConfigs
) -> None:
    """Notes that a bucket has no lists, which stand in `owner`, too long ones, or such as it cannot have."""
    if candidates and (names := loaded.decorated.computed):
        help = "leave them out, and those of @triton.autotune are tried, or write config"
        message = f"{', '.join(names)} of @triton.heuristics would not follow them"
        reader.error((*owner, "candidates"), message, help)
    if not candidates and not loaded.alternatives:
        reader.error(key, "no candidates", "give lists of meta-parameters in tune.candidates")
    if math.prod(map(len, candidates.values())) > MAX_CANDIDATES:
        reader.error(key, f"more than {MAX_CANDIDATES:,} candidates", "shorten a list")


def _check_given(reader: ManifestReader, path: KeyPath, given: Mapping[str, Any], needs_sizes: bool) -> None:
    """Notes keys that are missing where launches are those of the manifest."""
    if "bucket" not in given:
        reader.error(
            path, 'missing key "bucket"', "which calls to tune for, and a launch that stands for them"
        )
    if needs_sizes and "sizes" not in given:
        reader.error(path, 'missing key "sizes"', "how many elements each pointer points to")


def _check_recorded(
    reader: ManifestReader, path: KeyPath, given: Mapping[str, Any], candidates: Candidates
) -> None:
    """Notes what is only for launches of the manifest: the grids of captured ones are for the captured meta-parameters."""
    for key in ("sizes", "require", "defaults"):
        if key in given:
            reader.error(
                (*path, key), "is for buckets, and there are none", "captured launches have their own"
            )
    for name in candidates:
        if name not in tables.CANDIDATES.names:
            message = f"captured launches have the grid for the {name} that was captured"
            reader.error(
                (*path, "candidates", name), message, "write buckets, and the kernel's grid as expressions"
            )


def _check_facts(
    reader: ManifestReader, path: KeyPath, facts: tuple[Guard, ...], numbers: Mapping[str, int]
) -> None:
    """Notes facts of a bucket that its own launch does not keep."""
    known = {expressions.NUM_SMS: max(target.multiprocessors for target in TARGETS.values()), **numbers}
    for guard in facts:
        if numbers.keys() >= set(guard.arguments):
            fact = expressions.parse(guard.expression, known, "")
            if not expressions.evaluate(fact, known):
                reader.error((*path, guard.arguments[0]), f"the bucket is for {guard.expression}")


def _require(
    reader: ManifestReader, path: KeyPath, values: Mapping[str, Any], names: list[str]
) -> tuple[Expression, ...]:
    """The expression of `require`, checked; empty where the key is missing."""
    text = values.get("require", "")
    if not text:
        return ()
    try:
        return (expressions.parse(text, names, ""),)
    except ManifestError as error:
        reader.error((*path, "require"), error.message.removeprefix(": "), error.help)
        return ()


def _candidates(
    reader: ManifestReader, path: KeyPath, values: Mapping[str, Any], known: Sequence[str]
) -> Candidates:
    """The lists of `candidates`, by meta-parameter or option."""
    given = values.get("candidates", {})
    return checked(reader, (*path, "candidates"), given, tables.CANDIDATES, {"<constexpr>": known})
