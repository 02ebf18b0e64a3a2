"""The key `launches`: launches that were captured, in a file beside the manifest, one a line.

    {"kbuild": "launches", "schema": 1, "at": ["dtype", "BLOCK"], "hints": ["n"], "values": ["grid_0", "n"], "arrays": ["x"]}
    [["fp16", 1024], ["16"], [4, 4096], [[4096]]]
    [["fp16", 1024], [""], [8, 1000], [[[8, 1000], [1008, 1]]]]

The first line names the columns: values known at compile time, arguments with hints, numbers, and arrays.  Each other line has
a launch of the variant with these values and hints: its numbers, and of each array the shape, with the strides where the array is
not contiguous, or null where it was not a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.aot.manifest.launches.recorded import (
    COLUMNS,
    SCHEMA,
    RecordedArray,
    RecordedLaunch,
    contiguous,
)
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described
from kbuild.errors import Loc, ManifestError

_LARGEST = 32 << 20


def load_recorded(
    reader: ManifestReader, path: KeyPath, values: Mapping[str, Any]
) -> tuple[RecordedLaunch, ...]:
    """The launches that a kernel names; none where it names none.  Mistakes are noted with the line of the file."""
    if "launches" not in values:
        return ()
    file = reader.root / values["launches"]
    if not file.is_file() or not file.resolve().is_relative_to(reader.root):
        reader.error((*path, "launches"), f"no file {described(values['launches'])} in the project")
        return ()
    if file.stat().st_size > _LARGEST:
        reader.error((*path, "launches"), "the file is larger than 32 MiB")
        return ()
    lines = file.read_bytes().splitlines()
    columns: list[list[str]] = []
    found: list[RecordedLaunch] = []
    for number, line in enumerate(lines or [b""], 1):
        try:
            if not columns:
                columns = _columns(json.loads(line))
            elif line.strip():
                found.append(_launch(json.loads(line), columns))
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            what = "a launch" if columns else f"the first line of a list of launches of schema {SCHEMA}"
            text = f'kernel "{values.get("name", "")}": not {what}'
            reader.errors.append(
                ManifestError(text, Loc(file.as_posix(), number), "kbuild import writes them")
            )
            break
    return tuple(found)


def _columns(header: Any) -> list[list[str]]:
    """The names in the first line.  Raises ValueError, KeyError or TypeError for another one."""
    if header["kbuild"] != "launches" or header["schema"] != SCHEMA:
        raise ValueError
    return [[str(name) for name in header[kind]] for kind in COLUMNS]


def _launch(made: Any, columns: Sequence[Sequence[str]]) -> RecordedLaunch:
    """One line.  Raises ValueError or TypeError for another one."""
    if [len(part) for part in made] != [len(names) for names in columns]:
        raise ValueError
    at, hints, values, arrays = (tuple(zip(names, part)) for names, part in zip(columns, made))
    return RecordedLaunch(
        at,
        tuple((name, str(hint)) for name, hint in hints),
        tuple((name, _number(value)) for name, value in values),
        tuple(_array(name, shape) for name, shape in arrays if shape is not None),
    )


def _number(value: Any) -> int | float:
    """A number; those that are not finite are text."""
    if isinstance(value, str):
        return float(value)
    if not isinstance(value, int | float):
        raise TypeError
    return value


def _array(name: str, given: Any) -> RecordedArray:
    has_strides = bool(given) and isinstance(given[0], list)
    shape = tuple(int(size) for size in (given[0] if has_strides else given))
    strides = tuple(int(stride) for stride in given[1]) if has_strides else contiguous(shape)
    if len(shape) != len(strides):
        raise ValueError
    return RecordedArray(name, shape, strides)
