"""The table `[kernel.verify]` of a manifest, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.launches import tables
from kbuild.aot.manifest.model import Argument, Verify
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, placed, spread, with_defaults
from kbuild.aot.manifest.schema_values import POINTERS
from kbuild.aot.manifest.table import checked, record
from kbuild.errors import ManifestError


def load_verify(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    args: tuple[Argument, ...],
    grid_args: tuple[Argument, ...],
) -> Verify:
    """The launches to verify with."""
    values = checked(reader, path, given, tables.VERIFY)
    pointers = [argument.name for argument in args if argument.is_pointer]
    scalars = [argument for argument in args + grid_args if not argument.is_pointer]
    scalars += [
        Argument(name, type_) for name, type_, extent in expanded((a.name, a.type) for a in args) if extent
    ]
    integers = {"<argument>": [argument.name for argument in scalars if _is_integer(argument.type)]}
    loops = checked(reader, (*path, "loops"), values.get("loops", {}), tables.LOOPS, integers)
    defaults = read_defaults(reader, path, values, scalars)
    launches = [read_launch(reader, key, entry, scalars, defaults) for key, entry in values.get("values", ())]
    check_pointers(reader, path, given, values, ("zeros", "ready"), pointers)
    sizes = read_sizes(reader, path, values, pointers)
    constexprs = checked(
        reader,
        (*path, "reference_constexprs"),
        values.get("reference_constexprs", {}),
        tables.REFERENCE_CONSTEXPRS,
    )
    if "reference" not in values:
        for key in ("reference_constexprs", "reference_grid"):
            if key in values:
                reader.error(
                    (*path, key),
                    "is for a reference, and none is given",
                    'write reference = "file.py:function"',
                )
    return record(
        Verify,
        tables.VERIFY,
        values,
        sizes=sizes,
        values=tuple(launches),
        loops=tuple(loops.items()),
        reference_constexprs=tuple(constexprs.items()),
    )


def check_pointers(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    values: Mapping[str, Any],
    keys: Collection[str],
    pointers: Collection[str],
) -> None:
    """Notes names in the lists of some keys that are not pointers."""
    for key in keys:
        for place, name in placed(given.get(key, []), values.get(key, ())):
            if name not in pointers:
                message = f"expected {POINTERS.item.words}, found {described(name)}"
                reader.error((*path, key, *place), message)


def _is_integer(type_: str) -> bool:
    return type_[:1] in ("i", "u")


def read_sizes(
    reader: ManifestReader, path: KeyPath, values: Mapping[str, Any], pointers: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """The expressions of `sizes`, of which every pointer needs one."""
    if "sizes" not in values:
        return ()
    names = {"<argument>": pointers}
    return tuple(checked(reader, (*path, "sizes"), values["sizes"], tables.SIZES, names, pointers).items())


def read_defaults(
    reader: ManifestReader, path: KeyPath, values: Mapping[str, Any], scalars: Sequence[Argument]
) -> Mapping[str, Any]:
    """The scalars of `defaults`, which launches need not give."""
    return _scalars(reader, (*path, "defaults"), values.get("defaults", {}), scalars, ())


def read_launch(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    scalars: Sequence[Argument],
    defaults: Mapping[str, Any],
) -> tuple[tuple[str, int | float | str], ...]:
    """One launch's scalars, with the defaults that it does not give itself."""
    required = [argument.name for argument in scalars if argument.name not in defaults]
    found = _scalars(reader, path, given, scalars, required)
    return tuple(with_defaults(found, defaults).items())


def _scalars(
    reader: ManifestReader,
    path: KeyPath,
    given: Mapping[str, Any],
    scalars: Sequence[Argument],
    required: Collection[str],
) -> dict[str, Any]:
    """The scalars of a table; None for those that are wrong, so that their names are known."""
    types = {argument.name: argument.type for argument in scalars}
    names = {
        "<integer argument>": [name for name, type_ in types.items() if _is_integer(type_)],
        "<other argument>": [name for name, type_ in types.items() if not _is_integer(type_)],
    }
    found = checked(reader, path, given, tables.VALUES, names, required)
    for name, value in found.items():
        if _is_integer(types[name]) and isinstance(value, int) and not _holds(types[name], value):
            reader.error((*path, name), f"{described(value)} is not a value of {types[name]}")
    return dict.fromkeys(spread(given)) | found


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
    reader: ManifestReader, path: KeyPath, verify: Verify, names: Collection[str], scalars: Collection[str]
) -> None:
    """Notes texts that are not expressions: sizes over `names`, steps over those that are not `scalars`,
    values also over each other."""
    constexprs = {*names} - {*scalars}
    for name, text in verify.sizes:
        check_expression(reader, (*path, "sizes", name), text, names)
    for number, text in enumerate(verify.grid):
        check_expression(reader, (*path, "grid", number), text, names)
    for number, text in enumerate(verify.reference_grid):
        known = [*names, *(name for name, value in verify.reference_constexprs if isinstance(value, int))]
        check_expression(reader, (*path, "reference_grid", number), text, known)
    for name, text in verify.loops:
        check_expression(reader, (*path, "loops", name), text, constexprs)
    for number, launch in enumerate(verify.values):
        known = constexprs | {name for name, value in launch if not isinstance(value, float)}
        for name, value in launch:
            if isinstance(value, str):
                own = (*path, "values", number, name)
                place = own if own in reader.lines else (*path, "defaults", name)
                check_expression(reader, place, value, known - {name})


def check_expression(reader: ManifestReader, path: KeyPath, text: str, names: Collection[str]) -> None:
    """Notes a text that is not an expression over the names."""
    try:
        expressions.parse(text, names, "")
    except ManifestError as error:
        reader.error(path, ascii(error.message.removeprefix(": "))[1:-1], error.help)
