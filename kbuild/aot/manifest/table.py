"""Tables of the manifest as rows, and the function that reads any of them by its rows.

[[kernel.config]]            Table CONFIG           checked(reader, path, {"num_wraps": 8, "BLOCK": 64}, CONFIG, …)
num_wraps = 8                Key num_warps …        notes: num_wraps: the kernel has no such parameter; did you mean …
BLOCK = 64                   Key <constexpr> …      gives: {"BLOCK": 64}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from kbuild.aot.manifest.kinds import Kind, Name, Shape
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, names_of, spread, suggestion

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """One key of a table, and all its own rules."""

    name: str
    """The key; `<…>` for any name of a kind."""
    fills: tuple[type, str] | None
    """The class and field of model.py that its value goes to; None if it is refused."""
    value: Kind | Table
    """Its legal values."""
    required: bool = False
    repeated: bool = False
    """Whether it is an array of such tables."""
    least: int = 0
    """How many tables such an array has at least."""
    missing: str = ""
    """The message where it is required, and is not there."""
    doc: str = ""
    """What it means, where the field's doc string is about something else."""

    @property
    def is_open(self) -> bool:
        """Whether it stands for any name of a kind."""
        return self.name.startswith("<")

    @property
    def shape(self) -> Shape:
        """What it may be, in JSON Schema; for a key that is not a table."""
        assert isinstance(self.value, Kind)
        return self.value.shape


@dataclass(frozen=True)
class Table:
    """One table of the manifest."""

    header: str
    """How it is written."""
    describes: type
    """The class of model.py that it becomes."""
    keys: tuple[Key, ...]
    """The first whose name fits takes a key of the manifest."""
    unknown: str = "unknown key"
    """The message for keys that none takes."""
    declares: bool = False
    """Whether its keys introduce names, so that any that is a name is taken."""
    spreads: bool = False
    """Whether a key may name several arguments, as `"M, N, K" = "i32"` does."""

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that have a fixed name."""
        return tuple(key.name for key in self.keys if not key.is_open)

    @property
    def required(self) -> tuple[str, ...]:
        """The required keys."""
        return tuple(key.name for key in self.keys if key.required)

    def key(self, name: str, names: Mapping[str, Collection[str]]) -> Key | None:
        """The row for a key of the manifest; None if there is none."""
        for key in self.keys:
            if name in names.get(key.name, ()) if key.is_open and not self.declares else name == key.name:
                return key
        return self.keys[-1] if self.declares else None


def checked(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    table: Table,
    names: Mapping[str, Collection[str]] | None = None,
    required: Collection[str] = (),
) -> dict[str, Any]:
    """The values that are as the rows say, by key and in the order given; all others are noted, and left out.

    `names` are those that open keys such as `<argument>` stand for here, and `required` those of them that have to
    be there.  An array of tables becomes a list of their paths and contents; what a table holds is not looked at.
    """
    names, found = names or {}, dict[str, Any]()
    given = _spread(reader, path, given) if table.spreads else given
    for name, value in given.items():
        place = (*path, name)
        key = table.key(name, names)
        if key is None:
            known = [*(each for several in names.values() for each in several), *table.names]
            reader.error(place, table.unknown, suggestion(name, known))
        elif table.declares and Name().read(name, place, reader.error) is None:
            continue
        elif (legal := _read(reader, place, key, value)) is not None:
            found[name] = legal
    for key in table.keys:
        if key.required and (key.name not in given or (key.least and given[key.name] == [])):
            reader.error(path, key.missing or f'missing key "{key.name}"')
    for name in required:
        if name not in given:
            reader.error(path, f'missing key "{name}"')
    return found


def _spread(reader: ManifestReader, path: KeyPath, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A table with a key for every argument; those that are given twice are noted."""
    seen = set[str]()
    for key in given:
        for name in names_of(key):
            reader.also_at((*path, key), (*path, name))
            if name in seen:
                reader.error((*path, key), f"{described(name)} is given twice")
            seen.add(name)
    return spread(given)


def _read(reader: ManifestReader, path: KeyPath, key: Key, value: object) -> Any:
    """The value of one key; None where it is wrong."""
    if isinstance(key.value, Kind):
        return key.value.read(value, path, reader.error)
    if not key.repeated:
        return value if _is(Mapping, reader, path, value) else None
    entries = enumerate(value if _is(list, reader, path, value) else ())  # type: ignore[arg-type]
    return [
        ((*path, index), entry) for index, entry in entries if _is(Mapping, reader, (*path, index), entry)
    ]


def _is(kind: type, reader: ManifestReader, path: KeyPath, value: object) -> bool:
    if not isinstance(value, kind):
        expected = "a list" if kind is list else "a table"
        reader.error(path, f"expected {expected}, found {described(value)}")
    return isinstance(value, kind)


def record(cls: type[T], table: Table, values: Mapping[str, Any], /, **made: Any) -> T:
    """The record that a table describes, of what `checked` gave and the fields that are `made` of several keys.

    A field whose key is not there has its default; one that has none, and so has a mistake, is blank.
    """
    defaults = {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
    for key in table.keys:
        if not isinstance(key.value, Kind) or key.is_open or not key.fills or key.fills[0] is not cls:
            continue
        field = key.fills[1]
        if field not in made and (key.name in values or defaults[field] is MISSING):
            made[field] = values.get(key.name, key.value.blank)
    return cls(**made)
