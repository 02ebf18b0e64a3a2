"""The table `[kernel.verify]` of a manifest, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kbuild.aot.manifest import expressions, schema
from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.model import Argument, Verify
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import Reader, described, with_defaults
from kbuild.errors import ManifestError


def load_verify(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    args: tuple[Argument, ...],
    grid_args: tuple[Argument, ...],
) -> Verify | None:
    """The launches to verify with; None where the kernel has no such table."""
    if "verify" not in table:
        return None
    path = (*path, "verify")
    given = reader.get(path, table, dict, {})
    reader.keys(path, given, schema.VERIFY.names, schema.VERIFY.required)
    pointers = [argument.name for argument in args if argument.is_pointer]
    scalars = [argument for argument in args + grid_args if not argument.is_pointer]
    scalars += [
        Argument(name, type_) for name, type_, extent in expanded((a.name, a.type) for a in args) if extent
    ]
    integers = [argument.name for argument in scalars if _is_integer(argument.type)]
    sizes = read_texts(reader, (*path, "sizes"), given, pointers, pointers)
    loops = read_texts(reader, (*path, "loops"), given, integers, ())
    defaults = read_defaults(reader, path, given, scalars)
    values = [
        read_values(reader, key, entry, scalars, defaults)
        for key, entry in reader.tables((*path, "values"), given)
    ]
    zeros, ready = (_arrays(reader, (*path, key), given, pointers) for key in ("zeros", "ready"))
    return Verify(sizes, tuple(values), loops, _grid(reader, (*path, "grid"), given), zeros, ready)


def _grid(reader: Reader, path: KeyPath, table: Mapping[str, Any]) -> tuple[str, ...]:
    """A grid of another size than the kernel's."""
    given = reader.get(path, table, list, [])
    if len(given) > 3 or not all(isinstance(text, str) for text in given):
        reader.error(path, "expected one to three expressions in quotes")
        return ()
    return tuple(given)


def _arrays(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], pointers: Sequence[str]
) -> tuple[str, ...]:
    """A list of arguments that are arrays."""
    given = reader.get(path, table, list, [])
    for number, name in enumerate(given):
        if name not in pointers:
            reader.error((*path, number), f"expected an argument that is a pointer, found {described(name)}")
    return tuple(name for name in given if name in pointers)


def _is_integer(type_: str) -> bool:
    return type_[:1] in ("i", "u")


def read_texts(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], known: Collection[str], required: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """A table of expressions."""
    given = reader.spread(path, reader.get(path, table, dict, {}))
    reader.keys(path, given, known, required)
    for name, text in given.items():
        if not isinstance(text, str):
            reader.error((*path, name), f"expected an expression in quotes, found {described(text)}")
    return tuple((name, str(text)) for name, text in given.items())


def read_defaults(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], scalars: Sequence[Argument]
) -> Mapping[str, Any]:
    """The scalars of `defaults`, which launches need not give."""
    path = (*path, "defaults")
    given = reader.spread(path, reader.get(path, table, dict, {}))
    _check_values(reader, path, given, scalars, ())
    return given


def read_values(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    scalars: Sequence[Argument],
    defaults: Mapping[str, Any],
) -> tuple[tuple[str, int | float | str], ...]:
    """One launch's scalars, with the defaults that it does not give itself."""
    table = reader.spread(path, table)
    _check_values(
        reader, path, table, scalars, [argument.name for argument in scalars if argument.name not in defaults]
    )
    return tuple(with_defaults(table, defaults).items())


def _check_values(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    scalars: Sequence[Argument],
    required: Collection[str],
) -> None:
    types = {argument.name: argument.type for argument in scalars}
    reader.keys(path, table, types, required)
    for name, value in table.items():
        is_integer = _is_integer(types.get(name, ""))
        if name in types and (
            isinstance(value, bool) or not isinstance(value, int | str if is_integer else int | float)
        ):
            expected = "an integer or an expression" if is_integer else "a number"
            reader.error((*path, name), f"expected {expected}, found {described(value)}")
        elif is_integer and isinstance(value, int) and not _holds(types[name], value):
            reader.error((*path, name), f"{described(value)} is no {types[name]}")


def _holds(type_: str, value: int) -> bool:
    """Whether an integer type, such as `i32`, has this value; what names an axis is not known to have a size
    here."""
    if not type_[1:].isdigit():
        return True
    bits = int(type_[1:])
    return (
        0 <= value < 2**bits
        if type_[0] == "u" or bits == 1
        else -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    )


def check_expressions(
    reader: Reader, path: KeyPath, verify: Verify | None, names: Collection[str], scalars: Collection[str]
) -> None:
    """Notes what is no expression: sizes over `names`, steps over those that are no `scalars`, values also
    over each other."""
    if verify is None:
        return
    path = (*path, "verify")
    constexprs = {*names} - {*scalars}
    for name, text in verify.sizes:
        check_expression(reader, (*path, "sizes", name), text, names)
    for number, text in enumerate(verify.grid):
        check_expression(reader, (*path, "grid", number), text, names)
    for name, text in verify.loops:
        check_expression(reader, (*path, "loops", name), text, constexprs)
    for number, launch in enumerate(verify.values):
        known = constexprs | {name for name, value in launch if not isinstance(value, float)}
        for name, value in launch:
            if isinstance(value, str):
                own = (*path, "values", number, name)
                place = own if own in reader.lines else (*path, "defaults", name)
                check_expression(reader, place, value, known - {name})


def check_expression(reader: Reader, path: KeyPath, text: str, names: Collection[str]) -> None:
    """Notes a text that is no expression over the names."""
    try:
        expressions.parse(text, names, "")
    except ManifestError as error:
        reader.error(path, ascii(error.message.removeprefix(": "))[1:-1], error.hint)
