"""The key `variants`: a list of variants in a file of its own, one a line, where they do not multiply.

    {"kbuild": "variants", "schema": 1, "axes": ["dtype", "BLOCK"], "hints": ["x", "n"], "config": ["num_warps"]}
    [["fp16", 1024], ["16", "16"], [4]]
    [["fp16", 2048], ["16", ""], [8], ["n <= 4096"]]

The first line names the columns: axes of the matrix, arguments with hints, and meta-parameters and options.  Each other line
has the values of a variant, and may have facts of arguments, as `when` of a configuration has them.  Of variants with
the same axes and hints the first whose facts hold is taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.manifest.configs.features import obstacle
from kbuild.aot.manifest.expand import parse_guard
from kbuild.aot.manifest.functions.kernel_function import KernelFunction
from kbuild.aot.manifest.kinds import Name, Setting
from kbuild.aot.manifest.model import (
    DTYPES,
    HINTS,
    Axis,
    Config,
    Guard,
    PointCondition,
    Specialization,
    Value,
)
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described, shown_key, suggestion
from kbuild.aot.manifest.schema_values import VALUE
from kbuild.errors import Loc, ManifestError
from kbuild.options import TRITON, CompileOptions, by_name

SCHEMA = 1
"""Raised when the meaning of a line changes."""
LIST_HINTS = ("", *HINTS)
"""The hints that a row may have for an argument."""
_REPLACED = ("matrix", "specialize", "config", "defaults", "exclude")
"""Keys that a kernel with a list has not."""
_LARGEST = 32 << 20
_MOST_ERRORS = 20

Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Listed:
    """What a list says of a kernel; nothing where there is a mistake in it."""

    matrix: tuple[Axis, ...] = ()
    specializations: tuple[Specialization, ...] = (Specialization(),)
    configs: tuple[Config, ...] = (Config(),)
    """One for each row, in their order; each names its point and its specialisation in `when`."""
    points: tuple[Point, ...] = ()
    header: tuple[tuple[str, ...], ...] = ((), (), ())
    """The names of its columns: axes, arguments with hints, and meta-parameters and options."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Parameters whose values rows give as those of configurations."""
        return self.header[2]


@dataclass
class _Rows:
    """The rows read so far."""

    axes: dict[str, dict[tuple[type, Value], None]]
    hints: dict[tuple[tuple[str, str], ...], str] = field(
        default_factory=dict[tuple[tuple[str, str], ...], str]
    )
    configs: list[Config] = field(default_factory=list[Config])
    points: dict[Point, None] = field(default_factory=dict[Point, None])
    settled: dict[tuple[Point, str], list[tuple[frozenset[Guard], int]]] = field(
        default_factory=dict[tuple[Point, str], list[tuple[frozenset[Guard], int]]]
    )


def load_listed(
    reader: ManifestReader,
    path: KeyPath,
    table: Mapping[str, Any],
    values: Mapping[str, Any],
    function: KernelFunction,
    arguments: Collection[str],
) -> Listed | None:
    """The list that a kernel names; None where it names none.  Mistakes are noted with the line of the file."""
    if "variants" not in values:
        return None
    key = (*path, "variants")
    for name in _REPLACED:
        if name in table:
            reader.error(
                (*path, name), f"the list of variants says it: {values['variants']}", "leave out one of them"
            )
    if function.language != TRITON:
        reader.error(key, "lists are for kernels in Triton's language", "write matrix and config")
        return Listed()
    file = reader.root / values["variants"]
    if not file.is_file() or not file.resolve().is_relative_to(reader.root):
        reader.error(key, f"no file {described(values['variants'])} in the project")
        return Listed()
    if file.stat().st_size > _LARGEST:
        reader.error(key, "the file is larger than 32 MiB")
        return Listed()
    return _Reader(reader, file.as_posix(), values.get("name", ""), function, arguments).read(
        file.read_bytes()
    )


class _Reader:
    """Reads one list."""

    def __init__(
        self,
        reader: ManifestReader,
        file: str,
        kernel: str,
        function: KernelFunction,
        arguments: Collection[str],
    ) -> None:
        self._reader = reader
        self._file = file
        self._kernel = kernel
        self._parameters = {parameter.name: parameter for parameter in function.parameters}
        self._arguments = set(arguments)
        self._line = 1
        self._errors = 0
        self._columns: dict[str, tuple[str, ...]] = {}

    def error(self, message: str, help: str = "") -> None:
        """Notes a mistake in the line that is being read."""
        self._errors += 1
        if self._errors <= _MOST_ERRORS:
            text = f'kernel "{self._kernel}": {message}'
            self._reader.errors.append(ManifestError(text, Loc(self._file, self._line), help))

    def _note(self, path: KeyPath, message: str, help: str = "") -> None:
        where = "".join(f"{shown_key(str(part))}: " for part in path)
        self.error(f"{where}{message}", help)

    def read(self, data: bytes) -> Listed:
        """What the lines say."""
        lines = data.splitlines()
        if not self._header(self._json(lines[0] if lines else b"")):
            return Listed()
        rows = _Rows({name: {} for name in self._columns["axes"]})
        for self._line, line in enumerate(lines[1:], 2):
            if line.strip():
                self._row(self._json(line), rows)
        if not rows.configs and not self._errors:
            self.error("the list has no variants", "kbuild import writes them")
        matrix = tuple(self._axis(name, found) for name, found in rows.axes.items())
        hints = tuple(Specialization(hints, name) for hints, name in rows.hints.items())
        if self._errors:
            return Listed()
        header = tuple(self._columns.values())
        return Listed(matrix, hints, tuple(rows.configs), tuple(rows.points), header)

    def _axis(self, name: str, found: Mapping[tuple[type, Value], None]) -> Axis:
        values = tuple(value for _, value in found)
        parameter = self._parameters.get(name)
        default = values[0] if len(values) == 1 else parameter.default if parameter else None
        is_built = default is not None and (type(default), default) in found
        return Axis(name, values, name in self._parameters, default if is_built else None)

    def _json(self, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None

    def _header(self, made: Any) -> bool:
        """Reads the names of columns; whether they are right."""
        if not isinstance(made, dict) or made.get("kbuild") != "variants":
            self.error("not a list of variants: its first line is not that of kbuild import")
            return False
        if made.get("schema") != SCHEMA:
            self.error(
                f"a list of schema {described(made.get('schema'))}, and this kbuild reads schema {SCHEMA}"
            )
            return False
        for kind in ("axes", "hints", "config"):
            names = made.get(kind, [])
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                self.error(f"{kind}: expected a list of names")
                return False
            self._columns[kind] = tuple(names)
        every = [name for names in self._columns.values() for name in names]
        for name in dict.fromkeys(every):
            if not Name().takes(name) and by_name(name, "variant") is None:
                self.error(f"{described(name)} is not a name")
            elif every.count(name) > 1:
                self.error(f"{name} is given twice")
        for name in self._columns["hints"]:
            if name not in self._arguments:
                self.error(f"{name} is not a run-time argument", suggestion(name, self._arguments))
        for name in self._columns["config"]:
            if by_name(name, "variant") is None and name not in self._parameters:
                self.error(f"the kernel has no parameter {name}", suggestion(name, self._parameters))
        for one in self._parameters.values():
            if one.is_constexpr and not one.has_default and one.name not in every:
                self.error(f'constexpr "{one.name}" has no value', "name it in axes or config")
        return not self._errors

    def _row(self, made: Any, rows: _Rows) -> None:
        lengths = [len(self._columns[kind]) for kind in ("axes", "hints", "config")]
        is_right = (
            isinstance(made, list) and 3 <= len(made) <= 4 and all(isinstance(part, list) for part in made)
        )
        if not is_right or [len(part) for part in made[:3]] != lengths:
            shown = ", ".join(f"{length} of {kind}" for kind, length in zip(self._columns, lengths))
            self.error(f"not a variant: expected a list of lists with {shown}, and perhaps one of facts")
            return
        before = self._errors
        point = self._point(made[0], rows)
        hints = self._hints(made[1])
        constexprs, options = self._config(made[2])
        guards = self._facts(made[3] if len(made) == 4 else [])
        if self._errors > before:
            return
        # Named by what they are, for a table of `kbuild tune` to mean the same when rows have been added.
        name = rows.hints.setdefault(hints, f"hints_{hashlib.sha256(repr(hints).encode()).hexdigest()[:8]}")
        known = rows.settled.setdefault((point, name), [])
        earlier = next((line for facts, line in known if facts <= frozenset(guards)), None)
        if earlier is not None:
            self.error(f"is never used: line {earlier} applies wherever it does", "delete one of them")
            return
        known.append((frozenset(guards), self._line))
        rows.points[point] = None
        where = PointCondition((*((axis, (value,)) for axis, value in point), ("specialize", (name,))))
        rows.configs.append(Config(where, guards, constexprs, CompileOptions(**options)))

    def _point(self, values: Sequence[Any], rows: _Rows) -> Point:
        """The values of the axes, which are of one type in all rows."""
        found: list[tuple[str, Value]] = []
        for name, value in zip(self._columns["axes"], values):
            legal = VALUE.read(value, (name,), self._note)
            if legal is None:
                continue
            known = rows.axes[name]
            first = next(iter(known), None)
            if first is not None and first[0] is not type(legal):
                self.error(
                    f"{name}: {described(value)} is of another type than {described(first[1])} before it"
                )
            elif name not in self._parameters and legal not in DTYPES:
                self.error(f"{name}: unknown type {described(value)}", suggestion(value, DTYPES))
            known[type(legal), legal] = None
            found.append((name, legal))
        return tuple(found)

    def _hints(self, values: Sequence[Any]) -> tuple[tuple[str, str], ...]:
        found = []
        for name, value in zip(self._columns["hints"], values):
            if value not in LIST_HINTS:
                self.error(
                    f"{name}: {described(value)} is not a hint",
                    f"write {', '.join(map(described, LIST_HINTS))}",
                )
            elif value:
                found.append((name, value))
        return tuple(found)

    def _config(self, values: Sequence[Any]) -> tuple[tuple[tuple[str, Value], ...], dict[str, Any]]:
        """Meta-parameters, of which null is None, and options."""
        constexprs: list[tuple[str, Value]] = []
        options: dict[str, Any] = {}
        for name, value in zip(self._columns["config"], values):
            option = by_name(name, "variant")
            if option is not None and value is None:
                continue  # Its default.
            if option is not None:
                legal = Setting(option=option).read(value, (name,), self._note)
                if found := obstacle(self._reader, option, legal or option.default):
                    message, takes = found
                    self.error(f"{name}: {message}", f"{takes}: leave others out of archs")
                options |= {option.name: legal} if legal is not None else {}
                if name in self._parameters and legal is not None:
                    constexprs.append((name, legal))
            elif value is None:
                constexprs.append((name, None))
            elif (legal := VALUE.read(value, (name,), self._note)) is not None:
                constexprs.append((name, legal))
        return tuple(constexprs), options

    def _facts(self, texts: Sequence[Any]) -> tuple[Guard, ...]:
        found: list[Guard] = []
        for text in texts:
            try:
                guard = parse_guard(str(text).replace(" ", ""))
            except ValueError as error:
                self.error(str(error), 'write it as "n <= 4096"')
                continue
            for name in guard.arguments:
                if name not in self._arguments:
                    self.error(f"{name} is not a run-time argument", suggestion(name, self._arguments))
            found.append(guard)
        return tuple(found)
