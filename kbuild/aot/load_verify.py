"""The table `[kernel.verify]` of a manifest, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kbuild.aot import expressions, schema
from kbuild.aot.manifest import Argument, Verify
from kbuild.aot.positions import Path as KeyPath
from kbuild.aot.reader import Reader, described
from kbuild.errors import ManifestError


def load_verify(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], args: tuple[Argument, ...], grid_args: tuple[Argument, ...]
) -> Verify | None:
    """The launches to verify with; None where the kernel has no such table."""
    if "verify" not in table:
        return None
    path = (*path, "verify")
    given = reader.get(path, table, dict, {})
    reader.keys(path, given, schema.VERIFY.names, schema.VERIFY.required)
    pointers = [argument.name for argument in args if argument.is_pointer]
    scalars = [argument for argument in args + grid_args if not argument.is_pointer]
    sizes = reader.get((*path, "sizes"), given, dict, {})
    reader.keys((*path, "sizes"), sizes, pointers, pointers)
    for name, text in sizes.items():
        if not isinstance(text, str):
            reader.error((*path, "sizes", name), f"expected an expression in quotes, found {described(text)}")
    values = [_values(reader, key, entry, scalars) for key, entry in reader.tables((*path, "values"), given)]
    return Verify(tuple((name, str(text)) for name, text in sizes.items()), tuple(values))


def _values(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], scalars: list[Argument]
) -> tuple[tuple[str, int | float], ...]:
    """One launch's scalars."""
    types = {argument.name: argument.type for argument in scalars}
    reader.keys(path, table, types, types)
    for name, value in table.items():
        is_integer = types.get(name, "")[:1] in ("i", "u")
        if name in types and (isinstance(value, bool) or not isinstance(value, int if is_integer else int | float)):
            expected = "an integer" if is_integer else "a number"
            reader.error((*path, name), f"expected {expected}, found {described(value)}")
    return tuple(table.items())


def check_sizes(reader: Reader, path: KeyPath, verify: Verify | None, names: Collection[str]) -> None:
    """Notes sizes that are no expressions over the names."""
    for name, text in verify.sizes if verify else ():
        try:
            expressions.parse(text, names, "")
        except ManifestError as error:
            reader.error((*path, "verify", "sizes", name), ascii(error.message.removeprefix(": "))[1:-1], error.hint)
