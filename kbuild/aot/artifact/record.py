"""What a wheel of some architectures, or a part of a build, says of its build: `.dist-info/kbuild.json`, by which
`kbuild merge` makes the wheel of all of them.

    inputs         what went into the build, mostly as digests: wheels are of one project where these are equal
    manifest       kernels.toml, checked: what tables are made from
    distribution   METADATA, the project's own files and licences, by name
    rows           the variants with the facts of their cubins, as `assemble.write_archives` returns them
    part           of a part: which variants it has, and how many there are; null in a wheel
    zlib           the zlib that compressed the cubins

The archives of cubins lie in the wheel or part itself.  A wheel of all architectures has no such file.

A value of the manifest is written with its class, `{"Axis": {"name": "BLOCK", …}}`, and read back only as one of the
classes that a manifest consists of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from kbuild.aot.identity import canonical_json
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Manifest

FILE = "kbuild.json"
"""Its place in the wheel's `.dist-info`."""
_FORMAT = 2
_NOT_NEEDED = ("files", "identity", "made_from", "name", "serialized", "size", "variant", "warnings")
"""Facts that the tables of a package do not depend on; warnings may name files of another checkout, from which the
cache has the cubin."""


@dataclass(frozen=True)
class Coverage:
    """Which of a project's variants a part has."""

    shard: str
    """The shard, as `--shard` takes it."""
    kernels: tuple[str, ...]
    """The kernels that were named; empty where all were meant."""
    counts: Mapping[str, Mapping[str, int]]
    """How many variants there are in all, by architecture of the part and kernel."""
    places: tuple[int, ...]
    """For each row of the record, its number among the variants of its kernel and architecture, from 0."""

    @staticmethod
    def decode(fields: Mapping[str, Any]) -> Coverage:
        """The one with these fields, as JSON has them."""
        sequences = {name: tuple(fields[name]) for name in ("kernels", "places")}
        return Coverage(**{**fields, **sequences})


@dataclass(frozen=True)
class Record:
    """What is needed of a wheel's build besides the wheel."""

    inputs: Mapping[str, Any]
    """What wheels that are joined have in common."""
    manifest: Manifest
    """The project's, of all architectures."""
    distribution: Mapping[str, Any]
    """The fields of the project's `Distribution`, files by name."""
    archs: tuple[str, ...]
    """The architectures of the wheel."""
    rows: Sequence[tuple[Variant, dict[str, Any]]]
    """Its variants, with their facts and where their code is."""
    part: Coverage | None = None
    """Which variants they are; None in a wheel, which has all of its architectures."""
    zlib: str = ""
    """The version of zlib that compressed the cubins."""


def encode(record: Record) -> bytes:
    """The text of a record."""
    return canonical_json(
        {
            "format": _FORMAT,
            "inputs": record.inputs,
            "manifest": _encoded(record.manifest),
            "distribution": record.distribution,
            "archs": record.archs,
            "rows": [_encoded_row(*row) for row in record.rows],
            "part": asdict(record.part) if record.part else None,
            "zlib": record.zlib,
        }
    )


def decode(data: bytes) -> Record:
    """The record that was written as these bytes; ValueError if it is another version's, or none."""
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']}, not {_FORMAT}")
        manifest = _decoded(found["manifest"])
        if not isinstance(manifest, Manifest):
            raise ValueError("it has no manifest")
        rows = [_decoded_row(row) for row in found["rows"]]
        part = Coverage.decode(found["part"]) if found["part"] is not None else None
        if part and len(part.places) != len(rows):
            raise ValueError(f"it has {len(rows)} variants, and places for {len(part.places)}")
        archs = tuple(found["archs"])
        return Record(found["inputs"], manifest, found["distribution"], archs, rows, part, found["zlib"])
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _encoded_row(variant: Variant, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"variant": str(variant), "options": variant.options.requested(), "facts": _needed(facts)}


def _decoded_row(row: Mapping[str, Any]) -> tuple[Variant, dict[str, Any]]:
    variant = Variant.parse(row["variant"])
    # The text of a variant has no options of a request.
    return replace(variant, options=variant.options.changed(row["options"])), dict(row["facts"])


def _needed(facts: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in facts.items() if name not in _NOT_NEEDED}
    return kept | ({"portable": _needed(facts["portable"])} if "portable" in facts else {})


def _encoded(value: object) -> object:
    """A value of a manifest in plain types; fields without effect on what is built are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = {field.name: _encoded(getattr(value, field.name)) for field in fields(value) if field.repr}
        return {type(value).__name__: kept}
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a manifest has no {type(value).__name__}")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(item) for item in value)
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "float":
        return float(content)
    return _classes()[name](**{key: _decoded(item) for key, item in content.items()})


@lru_cache(maxsize=1)
def _classes() -> dict[str, type]:
    """The classes that a manifest consists of, by name."""
    found: dict[str, type] = {}
    waiting: list[Any] = [Manifest]
    while waiting:
        type_ = waiting.pop()
        waiting += get_args(type_)
        if isinstance(type_, type) and is_dataclass(type_) and type_.__name__ not in found:
            found[type_.__name__] = type_
            waiting += get_type_hints(type_).values()
    return found
