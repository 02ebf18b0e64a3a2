"""From built variants to the table of a package: every function, its facts, and the rows that dispatch chooses from.

`make_table` is pure.  `render` writes the package's sources around the table; `render.py` knows how they look.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kbuild.aot import expressions, rendering
from kbuild.aot.dispatch import (
    DEVICE_FACTS,
    FACT_SHARED,
    FACT_TARGET,
    HINT_1,
    HINT_16,
    TYPES,
    KernelTable,
    Option,
    Parameter,
    Row,
    Target,
)  # fmt: skip
from kbuild.errors import ManifestError

MatrixValue = bool | int | float | str
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FLOATS = ("fp16", "bf16", "fp32", "fp64")
_SHARED_WITHOUT_OPTIN = 48 * 1024
_MOST_BITS = 60
"""Values of an option, targets of a package, or levels of shared memory: one bit each of a 64-bit fact."""
_RESERVED_ARGUMENTS = ("stream", "grid", "arch")
_RESERVED_FUNCTIONS = (
    "dispatch", "explain", "preload", "is_loaded", "os", "threading", "Path", "annotations", "BUILD_ID", "KERNELS", "ARCHIVES",
    "LaunchError", "NoVariantError", "ArchiveError", "DriverError",
)  # fmt: skip


class VariantLike(Protocol):
    """What a table needs to know of a variant."""

    @property
    def kernel(self) -> str:
        """Name of the kernel in the manifest."""
        ...

    @property
    def arch(self) -> str:
        """Name of the archive that holds the cubin, such as `sm_90`."""
        ...

    @property
    def args(self) -> Sequence[tuple[str, str]]:
        """Run-time arguments in order: name, and type with hint (`*fp16:16`, `i32:1`)."""
        ...

    @property
    def matrix(self) -> Mapping[str, MatrixValue]:
        """Values of the matrix."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """Meta-parameters and other constexprs."""
        ...

    @property
    def conditions(self) -> Sequence[str]:
        """Run-time conditions, such as `n_cols <= 1024`."""
        ...

    @property
    def num_warps(self) -> int:
        """Warps per program."""
        ...

    @property
    def key(self) -> str:
        """Name of the cubin in the archive's index."""
        ...


class FactsLike(Protocol):
    """What a table needs to know of a compiled cubin.

    `params`, if not empty, names what the cubin takes, in order: arguments, or names of our own for which a null pointer is
    passed.  `kind` ("ptx" for PTX text, else "cubin") and `sha256` (of the raw bytes) are optional.
    """

    @property
    def entry(self) -> str:
        """Symbol of the kernel."""
        ...

    @property
    def shared(self) -> int:
        """Dynamic shared memory, bytes."""
        ...

    @property
    def num_warps(self) -> int:
        """Warps per program, as compiled."""
        ...

    @property
    def registers(self) -> int:
        """Registers per thread."""
        ...

    @property
    def arch(self) -> str:
        """What it was compiled for: `sm_90` or `sm_90a`."""
        ...


@dataclass(frozen=True)
class Table:
    """All that the sources of a package are made from."""

    package: str
    version: str
    summary: str
    targets: tuple[Target, ...]
    kernels: tuple[KernelTable, ...]
    archives: tuple[tuple[str, str], ...]
    """Names of the archives, with the sha256 of their indices or an empty text."""

    @property
    def build_id(self) -> str:
        """Digest of the table: the launcher and the Python half of a package carry the same one."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def make_table(manifest: Any, rows: Iterable[tuple[Any, Any]], archives: Mapping[str, str] | None = None) -> Table:
    """The table of a manifest's package.

    `manifest` has `.package.name`, `.package.version` and `.kernels` with `.name` and `.grid` (texts); `rows` are pairs of
    VariantLike and FactsLike in the manifest's order; `archives` gives the sha256 of each archive's index by its name, and
    may be left out where the facts carry the digests of the cubins.  ManifestError for expressions that are wrong.
    """
    pairs = list(rows)
    _check_identifier(manifest.package.name, "package.name")
    targets = tuple(sorted({_target(facts) for _, facts in pairs}, key=_target_order))
    names = sorted({variant.arch for variant, _ in pairs})
    kernels: list[KernelTable] = []
    first_row = 0
    for kernel in manifest.kernels:
        own = [(variant, facts) for variant, facts in pairs if variant.kernel == kernel.name]
        if own:
            kernels.append(replace(_make_kernel(kernel, own, targets), first_row=first_row))
            first_row += len(own)
    digests = archives or {}
    return Table(
        package=manifest.package.name,
        version=manifest.package.version,
        summary=getattr(manifest.package, "summary", ""),
        targets=targets,
        kernels=tuple(kernels),
        archives=tuple((name, digests.get(name, "")) for name in names),
    )


def render(table: Table, package_dir: Path, templates: Path) -> list[Path]:
    """Write the sources of the package; files that are as they should be stay untouched.  Gives all their paths."""
    return rendering.render(table, package_dir, templates)


def _make_kernel(kernel: Any, pairs: list[tuple[Any, Any]], targets: tuple[Target, ...]) -> KernelTable:
    where = f'kernel "{kernel.name}"'
    _check_identifier(kernel.name, f"{where}: name", _RESERVED_FUNCTIONS)
    parameters = _parameters([variant for variant, _ in pairs], where)
    options = _options([variant for variant, _ in pairs], parameters, where)
    integers = [p.name for p in parameters if p.kind == "integer" and "u64" not in p.types]
    grid, constants = _grid(kernel.grid, [variant for variant, _ in pairs], integers, where)
    conditions = {variant.key: _conditions(variant, integers, where) for variant, _ in pairs}
    table = KernelTable(
        name=kernel.name,
        doc=getattr(kernel, "doc", ""),
        parameters=parameters,
        options=options,
        conditions=tuple(dict.fromkeys(text for variant, _ in pairs for text in conditions[variant.key])),
        levels=_levels([facts.shared for _, facts in pairs]),
        grid=tuple(axis.text for axis in grid),
        constants=constants,
        rows=(),
        first_row=0,
    )
    rows = [_make_row(table, targets, variant, facts, conditions[variant.key]) for variant, facts in _sorted_pairs(pairs)]
    masks = [_union(row.required[DEVICE_FACTS + i] for row in rows) for i in range(len(parameters))]
    return replace(table, rows=tuple(rows), parameters=tuple(replace(p, mask=mask) for p, mask in zip(parameters, masks)))


def _sorted_pairs(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The best code for the device first; configurations as written; within one, the most specialised first."""
    groups: dict[str, int] = {}

    def order(item: tuple[int, tuple[Any, Any]]) -> tuple:
        index, (variant, facts) = item
        target = _target(facts)
        types = [(name, type_.partition(":")[0]) for name, type_ in variant.args]
        values = [sorted(map(repr, mapping.items())) for mapping in (variant.matrix, variant.config)]
        text = repr((target, types, values, list(variant.conditions)))
        hints = sum({"16": 1, "1": 2}.get(type_.partition(":")[2], 0) for _, type_ in variant.args)
        return (target.ptx, -target.capability, not target.exact, groups.setdefault(text, index), -hints, index)

    return [pair for _, pair in sorted(enumerate(pairs), key=order)]


def _parameters(variants: list[Any], where: str) -> tuple[Parameter, ...]:
    """The run-time arguments, which all variants of a kernel have in common; masks follow from the rows."""
    names = [name for name, _ in variants[0].args]
    parameters = []
    for index, name in enumerate(names):
        _check_identifier(name, f"{where}: args.{name}", _RESERVED_ARGUMENTS)
        types: dict[str, None] = {}
        for variant in variants:
            if [other for other, _ in variant.args] != names:
                raise ManifestError(f"{where}: its variants have different arguments")
            types[_split_type(variant.args[index][1], f"{where}: args.{name}")[1]] = None
        kinds = {_split_type(variant.args[index][1], where)[0] for variant in variants}
        if len(kinds) > 1:
            raise ManifestError(f"{where}: args.{name}: is a {' in one variant and a '.join(sorted(kinds))} in another")
        parameters.append(Parameter(name, kinds.pop(), tuple(types), 0))
    return tuple(parameters)


def _split_type(text: str, where: str) -> tuple[str, str, int]:
    """Kind, type and hint bits of a type such as `*fp16:16`."""
    type_, _, hint = text.partition(":")
    name = type_.removeprefix("*")
    kind = "pointer" if type_.startswith("*") else "float" if name in _FLOATS else "integer"
    if name not in TYPES or (kind == "integer" and name[0] not in "iu") or hint not in ("", "16", "1"):
        raise ManifestError(f'{where}: unknown type "{text}"', hint=f"types are {', '.join(TYPES)}, pointers *type, hints :16 :1")
    return kind, name, {"": 0, "16": HINT_16, "1": HINT_1}[hint]


def _options(variants: list[Any], parameters: tuple[Parameter, ...], where: str) -> tuple[Option, ...]:
    """The matrix keys, as keywords; those that name types which the arguments imply may be left out."""
    options = []
    for name in dict.fromkeys(name for variant in variants for name in variant.matrix):
        _check_identifier(name, f"{where}: matrix.{name}", _RESERVED_ARGUMENTS)
        if any(parameter.name == name for parameter in parameters):
            raise ManifestError(f"{where}: matrix.{name}: is the name of an argument too")
        values = tuple(dict.fromkeys((type(v.matrix[name]), v.matrix[name]) for v in variants if name in v.matrix))
        if len(values) > _MOST_BITS:
            raise ManifestError(f"{where}: matrix.{name}: has {len(values)} values; {_MOST_BITS} are allowed")
        options.append(Option(name, tuple(value for _, value in values), not _is_implied(name, variants)))
    return tuple(options)


def _is_implied(name: str, variants: list[Any]) -> bool:
    """Whether a matrix key holds names of types, and the types of the arguments decide it."""
    implied: dict[tuple[str, ...], Any] = {}
    for variant in variants:
        value = variant.matrix.get(name)
        types = tuple(type_.partition(":")[0] for _, type_ in variant.args)
        if not isinstance(value, str) or value not in TYPES or implied.setdefault(types, value) != value:
            return False
    return True


def _constants(variant: Any) -> dict[str, int]:
    """The compile-time integers of a variant, truth values among them."""
    values = {**variant.matrix, **variant.config, "num_warps": variant.num_warps}
    return {name: int(value) for name, value in values.items() if isinstance(value, int)}


def _grid(
    texts: Sequence[str], variants: list[Any], integers: list[str], where: str
) -> tuple[tuple[expressions.Expression, ...], tuple[str, ...]]:
    """The checked grid, and the constants that it names."""
    if len(texts) > 3:
        raise ManifestError(f"{where}: grid: has {len(texts)} axes; three are allowed")
    known = set.intersection(*(set(_constants(variant)) for variant in variants))
    names = [*integers, *sorted(known)]
    grid = tuple(expressions.parse(text, names, f"{where}: grid[{index}]") for index, text in enumerate(texts))
    used = {name for axis in grid for name in axis.names}
    return grid, tuple(sorted(used - set(integers)))


def _conditions(variant: Any, integers: list[str], where: str) -> tuple[str, ...]:
    constants = {name: value for name, value in _constants(variant).items() if name not in integers}
    parsed = [expressions.parse(text, [*integers, *constants], f"{where}: when") for text in variant.conditions]
    return tuple(expressions.substitute(condition, constants).text for condition in parsed)


def _levels(amounts: list[int]) -> tuple[int, ...]:
    """The amounts of shared memory that have to be asked for, merged upwards where there are more than bits."""
    levels = sorted({amount for amount in amounts if amount > _SHARED_WITHOUT_OPTIN})
    step = -(-len(levels) // _MOST_BITS) or 1
    return tuple(levels[min(i + step, len(levels)) - 1] for i in range(0, len(levels), step))


def _target(facts: Any) -> Target:
    match = re.fullmatch(r"sm_(\d+)([af]?)", facts.arch)
    if match is None:
        raise ValueError(f"unknown architecture {facts.arch!r}")
    ptx = getattr(facts, "kind", "cubin") == "ptx"
    return Target(facts.arch + "+ptx" * ptx, int(match[1]), match[2] == "a", ptx)


def _target_order(target: Target) -> tuple[int, bool, bool]:
    return target.capability, target.exact, target.ptx


def _make_row(table: KernelTable, targets: tuple[Target, ...], variant: Any, facts: Any, conditions: tuple[str, ...]) -> Row:
    """One row; the bits that it requires of every fact."""
    if facts.num_warps != variant.num_warps:
        raise ValueError(f"{variant.key}: compiled for {facts.num_warps} warps, not {variant.num_warps}")
    required = [0] * table.fact_count
    required[FACT_TARGET] = 1 << targets.index(_target(facts))
    if facts.shared > _SHARED_WITHOUT_OPTIN:
        required[FACT_SHARED] = 1 << next(i for i, level in enumerate(table.levels) if level >= facts.shared)
    place = DEVICE_FACTS
    for name, text in variant.args:
        kind, type_, hints = _split_type(text, name)
        required[place] = TYPES[type_] | (hints if kind != "float" else 0)
        place += 1
    for option in table.options:
        if option.name in variant.matrix:
            value = variant.matrix[option.name]
            required[place] = 1 << next(i for i, v in enumerate(option.values) if type(v) is type(value) and v == value)
        place += 1
    for condition in table.conditions:
        required[place] = int(condition in conditions)
        place += 1
    constants = _constants(variant)
    return Row(
        name=_row_name(variant, _target(facts)),
        archive=variant.arch,
        key=variant.key,
        sha256=getattr(facts, "sha256", ""),
        target=targets.index(_target(facts)),
        entry=facts.entry,
        shared=facts.shared,
        num_warps=facts.num_warps,
        registers=facts.registers,
        required=tuple(required),
        passed=_passed(variant, facts),
        constants=tuple(constants[name] for name in table.constants),
    )


def _row_name(variant: Any, target: Target) -> str:
    """What tells the row from others, for people."""
    values = [f"{name}={value}" for name, value in {**variant.matrix, **variant.config}.items()]
    hints = [f"{name}:{text.partition(':')[2]}" for name, text in variant.args if ":" in text]
    conditions = [f"if {condition}" for condition in variant.conditions]
    return " ".join([target.name, *values, f"num_warps={variant.num_warps}", *hints, *conditions])


def _passed(variant: Any, facts: Any) -> tuple[tuple[int, str], ...]:
    """What the cubin takes: every argument, or those that its facts name; unknown names get a null pointer."""
    places = {name: (index, text.partition(":")[0]) for index, (name, text) in enumerate(variant.args)}
    named = [item if isinstance(item, str) else item[0] for item in getattr(facts, "params", ())]
    if not named:
        return tuple(places.values())
    return tuple(places.get(name, (-1, "*i8")) for name in named)


def _check_identifier(name: str, where: str, reserved: tuple[str, ...] = ()) -> None:
    if not IDENTIFIER.fullmatch(name) or keyword.iskeyword(name) or name.startswith("__"):
        raise ManifestError(f'{where}: "{name[:140]}" is not a name that Python and C allow')
    if name in reserved:
        raise ManifestError(f'{where}: "{name}" is a name that the package needs itself', hint="choose another name")


def _union(words: Iterable[int]) -> int:
    union = 0
    for word in words:
        union |= word
    return union
