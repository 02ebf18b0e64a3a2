"""From built variants to the table of a package: every function, its facts, and the rows that dispatch
chooses from.

`make_table` is pure; rendering.py writes the package's sources around the table.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kbuild.aot.artifact.rendering import PackageTable
from kbuild.aot.artifact.selection import (
    DEVICE_FACTS,
    HINT_1,
    HINT_4,
    HINT_8,
    HINT_16,
    TYPES,
    CodeTarget,
    ConstexprOption,
    KernelTable,
    LaunchParameter,
    VariantEntry,
)
from kbuild.aot.artifact.served import served_functions
from kbuild.aot.manifest import expressions
from kbuild.aot.manifest.descriptors import DescriptorExtent, expanded
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import HINT_WEIGHTS, Kernel, Manifest, Value, is_same
from kbuild.aot.op.tables import make_operators
from kbuild.compiler.backend.ptxas_wheels import OLDEST_DRIVER
from kbuild.errors import ManifestError
from kbuild.targets import devices_of
from kbuild.tensor_map import TensorMapType

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FLOATS = ("fp16", "bf16", "fp32", "fp64")
_SHARED_WITHOUT_OPTIN = 48 * 1024
_MAX_BITS = 60
"""Values of an option, targets of a package, or levels of shared memory: one bit each of a 64-bit fact."""
_RESERVED_ARGUMENTS = ("stream", "grid", "arch")
_RESERVED_FUNCTIONS = (
    "dispatch",
    "explain",
    "preload",
    "is_loaded",
    "launch",
    "operators",
    "os",
    "threading",
    "Path",
    "annotations",
    "BUILD_ID",
    "KERNELS",
    "ARCHIVES",
    "MIN_DRIVER",
    "LaunchError",
    "NoVariantError",
    "ArchiveError",
    "DriverError",
)
_RESERVED_WHERE_SERVING = ("install", "triton", "uninstall")
"""Those that a package needs where it serves a library."""


@dataclass(frozen=True)
class Code:
    """A variant's code in an archive: its cubin, or its PTX."""

    variant: Variant
    facts: Mapping[str, Any]
    is_ptx: bool

    @cached_property
    def args(self) -> tuple[tuple[str, str], ...]:
        """Run-time arguments with their types and hints; of a tensor descriptor its base."""
        return tuple(
            (name, type_) for name, type_, extent in expanded(self.variant.signature) if extent is None
        )

    @cached_property
    def extents(self) -> tuple[tuple[str, str, DescriptorExtent], ...]:
        """What the launcher also reads from tensors: name, type, and which extent it is."""
        return tuple(
            (name, type_, extent)
            for name, type_, extent in expanded(self.variant.signature)
            if extent is not None
        )

    def passed(self, grid_args: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
        """Names and types of the launcher's parameters: arguments, those that the grid alone needs, extents."""
        return [*self.args, *grid_args, *((name, type_) for name, type_, _ in self.extents)]

    @cached_property
    def target(self) -> CodeTarget:
        """The devices that it runs on."""
        arch = self.facts["arch"]
        devices = devices_of(arch, self.is_ptx)
        return CodeTarget(arch + "+ptx" * self.is_ptx, devices.first, devices.last)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The guards of the variant as expressions."""
        return tuple(guard.expression for guard in self.variant.guards)


def make_table(
    manifest: Manifest, rows: Iterable[tuple[Variant, Mapping[str, Any]]], driver: int = OLDEST_DRIVER
) -> PackageTable:
    """The table of a manifest's package.

    `rows` are the variants in the order of dispatch with the facts of their cubins: `arch`, `entry`, `params`
    (pairs of name and type that the cubin takes), `shared`, `static_shared`, `num_warps`, `block`, `registers`,
    `sha256`, and where the cubin is: `archive`, `archive_sha256` (of its index), `key`, `place` (an
    `archive.Place`), and `ptx_key` and `ptx_place` if its PTX is there too, of which `portable` has the
    facts where it was compiled by itself; `driver` is the branch of drivers from which on they run.
    ManifestError where an expression or a name cannot be said in C and Python.
    """
    codes: dict[str, list[Code]] = {}
    archives: dict[str, str] = {}
    for variant, facts in rows:
        archives[facts["archive"]] = facts["archive_sha256"]
        forms = [Code(variant, facts, False)] + [_ptx_of(variant, facts)] * ("ptx_key" in facts)
        codes.setdefault(variant.kernel, []).extend(
            code for code in forms if not code.is_ptx or code.target.first < code.target.last
        )
    for part in manifest.package.name.split("."):
        _check_identifier(part, "package.name")
    targets = tuple(sorted({code.target for own in codes.values() for code in own}, key=_target_order))
    if len(targets) > _MAX_BITS:
        raise ManifestError(f"package.archs: {len(targets)} targets; {_MAX_BITS} are allowed")
    kernels: list[KernelTable] = []
    first_row = 0
    for kernel in manifest.kernels:
        if own := codes.get(kernel.name):
            kernels.append(replace(_make_kernel(kernel, own, targets), first_row=first_row))
            first_row += len(own)
    package = manifest.package
    constants: dict[str, dict[str, set[int]]] = {}
    for name, own in codes.items():
        for code in own:
            for constant, value in _constants(code.variant).items():
                constants.setdefault(name, {}).setdefault(constant, set()).add(value)
    return PackageTable(
        package.name,
        package.version,
        package.summary,
        targets,
        tuple(kernels),
        tuple(sorted(archives.items())),
        driver,
        make_operators(manifest, kernels, constants),
        served_functions(
            manifest.kernels,
            {name: [code.variant for code in _sorted_codes(own)] for name, own in codes.items()},
        ),
    )


def _make_kernel(kernel: Kernel, codes: list[Code], targets: tuple[CodeTarget, ...]) -> KernelTable:
    where = f'kernel "{kernel.name}"'
    reserved = (*_RESERVED_FUNCTIONS, *(_RESERVED_WHERE_SERVING if kernel.serves else ()))
    _check_identifier(kernel.name, f"{where}: name", reserved)
    grid_args = tuple((argument.name, argument.type) for argument in kernel.grid_args)
    parameters = _parameters(codes, grid_args, where)
    grid, constants = _grid(kernel.grid, codes, [p.name for p in parameters if _is_countable(p)], where)
    table = KernelTable(
        name=kernel.name,
        doc=kernel.doc,
        parameters=parameters,
        options=_options(codes, parameters, {axis.name: axis.default for axis in kernel.matrix}, where),
        conditions=tuple(
            dict.fromkeys(text for code in codes for text in _conditions(code, parameters, where))
        ),
        costs=tuple(dict.fromkeys(filter(None, (_cost(code, parameters, where) for code in codes)))),
        levels=_levels([_all_shared(code.facts) for code in codes]),
        grid=tuple(axis.text for axis in grid),
        constants=constants,
        rows=(),
        first_row=0,
    )
    ordered = _sorted_codes(codes)
    rows = tuple(
        replace(_make_row(table, targets, code, grid_args), rival=rival)
        for code, rival in zip(ordered, _rivals(ordered))
    )
    masks = [_union(row.required[DEVICE_FACTS + i] for row in rows) for i in range(len(parameters))]
    return replace(
        table, rows=rows, parameters=tuple(replace(p, mask=mask) for p, mask in zip(parameters, masks))
    )


def _ptx_of(variant: Variant, facts: Mapping[str, Any]) -> Code:
    """The PTX of a variant, which may have been compiled by itself."""
    if "portable" not in facts:
        return Code(variant, facts, True)
    return Code(variant.portable(), {**facts, **facts["portable"]}, True)


def _sorted_codes(codes: list[Code]) -> list[Code]:
    """The best code for the device first; for each point of the matrix the most specialised, then
    configurations as written.

    A configuration may be for weak specialisations only: even if it comes first, it must not take the calls
    that a stronger one fits. Whether a variant was compiled as sm_90 or sm_90a does not decide which one a
    call takes.
    """
    points: dict[object, int] = {}

    def order(item: tuple[int, Code]) -> tuple[bool, int, int, int, int]:
        index, code = item
        hints = sum(HINT_WEIGHTS.get(type_.partition(":")[2], 0) for _, type_ in code.args)
        target = code.target
        return code.is_ptx, -target.first, points.setdefault(code.variant.matrix, index), -hints, index

    return [code for _, code in sorted(enumerate(codes), key=order)]


def _parameters(
    codes: list[Code], grid_args: tuple[tuple[str, str], ...], where: str
) -> tuple[LaunchParameter, ...]:
    """The run-time arguments, which all variants of a kernel have in common; masks follow from the rows."""
    rows = [code.passed(grid_args) for code in codes]
    names = [name for name, _ in rows[0]]
    if any([name for name, _ in row] != names for row in rows):
        raise ManifestError(f"{where}: its variants have different arguments")
    columns = [tuple(row[index][1] for row in rows) for index in range(len(names))]
    extents = {name: (names.index(extent.tensor), *extent[1:]) for name, _, extent in codes[0].extents}
    # A call that gives its grid leaves out what the grid alone needs; not so what chooses among the rows.
    asked = {name for code in codes for guard in code.variant.guards for name in guard.arguments}
    for text in dict.fromkeys(code.variant.cost for code in codes if code.variant.cost):
        asked |= {*expressions.parse(text, [*names, expressions.NUM_SMS], f"{where}: cost").names}
    grid_only = {name for name, _ in grid_args} - asked
    parameters = []
    for name, column in zip(names, columns):
        _check_identifier(name, f"{where}: args.{name}", _RESERVED_ARGUMENTS)
        found = [_split_type(text, f"{where}: args.{name}") for text in column]
        kinds = sorted({kind for kind, _, _ in found})
        if len(kinds) > 1:
            raise ManifestError(
                f"{where}: args.{name}: is a {kinds[0]} in one variant and a {kinds[1]} in another"
            )
        types = tuple(dict.fromkeys(type_ for _, type_, _ in found))
        parameters.append(LaunchParameter(name, kinds[0], types, 0, name in grid_only, extents.get(name)))
    return tuple(parameters)


def _split_type(text: str, where: str) -> tuple[str, str, int]:
    """Kind, type and hint bits of a type such as `*fp16:16`."""
    type_, _, hint = text.partition(":")
    name = type_.removeprefix("*")
    kind = "pointer" if type_.startswith("*") else "float" if name in _FLOATS else "integer"
    if name not in TYPES or (kind == "integer" and name[0] not in "iu") or hint not in HINT_WEIGHTS:
        advice = f"types are {', '.join(TYPES)}, pointers *type, hints :16 :8 :1"
        raise ManifestError(f'{where}: unknown type "{text}"', help=advice)
    return (
        kind,
        name,
        {"": 0, "4": HINT_4, "8": HINT_8, "16": HINT_16, "1": HINT_1}[hint] if kind != "float" else 0,
    )


def _options(
    codes: list[Code], parameters: tuple[LaunchParameter, ...], defaults: Mapping[str, Value], where: str
) -> tuple[ConstexprOption, ...]:
    """The axes of the matrix, as keywords; those with a default, or of types which the arguments imply, may
    be left out."""
    options = []
    for name in dict.fromkeys(name for code in codes for name, _ in code.variant.matrix):
        _check_identifier(name, f"{where}: matrix.{name}", _RESERVED_ARGUMENTS)
        if any(parameter.name == name for parameter in parameters):
            raise ManifestError(f"{where}: matrix.{name}: is the name of an argument too")
        given = [dict(code.variant.matrix)[name] for code in codes]
        values = tuple(
            value for _, value in dict.fromkeys((type(value), value) for value in given) if value is not None
        )
        if len(values) > _MAX_BITS:
            raise ManifestError(f"{where}: matrix.{name}: has {len(values)} values; {_MAX_BITS} are allowed")
        default = next(
            (index for index, value in enumerate(values) if is_same(value, defaults.get(name))), -1
        )
        options.append(ConstexprOption(name, values, default < 0 and not _is_implied(name, codes), default))
    return tuple(options)


def _is_implied(name: str, codes: list[Code]) -> bool:
    """Whether an axis holds names of types, and the types of the arguments decide it."""
    implied: dict[tuple[str, ...], Any] = {}
    for code in codes:
        value = dict(code.variant.matrix)[name]
        types = tuple(type_.partition(":")[0] for _, type_ in code.args)
        if not isinstance(value, str) or value not in TYPES or implied.setdefault(types, value) != value:
            return False
    return True


def _constants(variant: Variant) -> dict[str, int]:
    """The compile-time integers of a variant, truth values among them."""
    values = {**variant.values, "num_warps": variant.options.num_warps}
    return {name: int(value) for name, value in values.items() if isinstance(value, int)}


def _grid(
    texts: Sequence[str], codes: list[Code], integers: list[str], where: str
) -> tuple[tuple[expressions.Expression, ...], tuple[str, ...]]:
    """The checked grid, and the constants that it names."""
    if len(texts) > 3:
        raise ManifestError(f"{where}: grid: has {len(texts)} axes; three are allowed")
    known = set.intersection(*(set(_constants(code.variant)) for code in codes))
    names = [*integers, *sorted(known), expressions.NUM_SMS]
    grid = tuple(
        expressions.parse(text, names, f"{where}: grid[{index}]") for index, text in enumerate(texts)
    )
    used = {name for axis in grid for name in axis.names}
    return grid, tuple(sorted((used - set(integers)) & known))


def _conditions(code: Code, parameters: tuple[LaunchParameter, ...], where: str) -> tuple[str, ...]:
    """The variant's conditions in their normal form; they name what every call has, and its device."""
    names = [parameter.name for parameter in parameters if _is_countable(parameter)]
    names.append(expressions.NUM_SMS)
    return tuple(expressions.parse(text, names, f"{where}: when").text for text in code.conditions)


def _cost(code: Code, parameters: tuple[LaunchParameter, ...], where: str) -> str:
    """The variant's cost in its normal form; empty where it has none."""
    names = [*(parameter.name for parameter in parameters if _is_countable(parameter)), expressions.NUM_SMS]
    return expressions.parse(code.variant.cost, names, f"{where}: cost").text if code.variant.cost else ""


def _rivals(codes: Sequence[Code]) -> list[int]:
    """For each code in the order of its table the next one that it is compared with by cost, or -1: of the same
    architecture, matrix and hints, and with a cost as well."""
    found = [-1] * len(codes)
    last: dict[object, int] = {}
    for index, code in enumerate(codes):
        if code.variant.cost:
            point = code.is_ptx, code.target.first, code.variant.matrix, code.variant.signature
            if point in last:
                found[last[point]] = index
            last[point] = index
    return found


def _is_countable(parameter: LaunchParameter) -> bool:
    """Whether expressions may name it: an integer of at most 64 bits."""
    return parameter.kind == "integer" and "u64" not in parameter.types


def _all_shared(facts: Mapping[str, Any]) -> int:
    """Bytes of shared memory of a block, static and dynamic."""
    return facts["shared"] + facts["static_shared"]


def _levels(amounts: list[int]) -> tuple[int, ...]:
    """The amounts of shared memory that have to be asked for, merged upwards where there are more than bits."""
    levels = sorted({amount for amount in amounts if amount > _SHARED_WITHOUT_OPTIN})
    step = -(-len(levels) // _MAX_BITS) or 1
    return tuple(levels[min(i + step, len(levels)) - 1] for i in range(0, len(levels), step))


def _target_order(target: CodeTarget) -> tuple[int, str]:
    return target.first, target.name


def _make_row(
    table: KernelTable, targets: tuple[CodeTarget, ...], code: Code, grid_args: tuple[tuple[str, str], ...]
) -> VariantEntry:
    """One row; the bits that it requires of every fact."""
    variant, facts = code.variant, code.facts
    if facts["num_warps"] != variant.options.num_warps:
        raise ValueError(
            f"{variant.name}: compiled for {facts['num_warps']} warps, not {variant.options.num_warps}"
        )
    target = targets.index(code.target)
    constants = _constants(variant)
    cost = _cost(code, table.parameters, table.name)
    return VariantEntry(
        name=_row_name(code),
        archive=facts["archive"],
        key=facts["ptx_key" if code.is_ptx else "key"],
        sha256="" if code.is_ptx else facts["sha256"],
        target=target,
        entry=facts["entry"],
        shared=facts["shared"],
        opts_in=facts["shared"] > 0 and _all_shared(facts) > _SHARED_WITHOUT_OPTIN,
        block=tuple(facts["block"]),
        registers=facts["registers"],
        required=(
            1 << target,
            _required_level(table, _all_shared(facts)),
            *_required_of_call(table, code, grid_args),
        ),
        passed=_passed(code, grid_args),
        constants=tuple(constants[name] for name in table.constants),
        cost=table.costs.index(cost) if cost else -1,
        cluster_size=variant.options.cluster_size,
        launch_pdl=variant.options.launch_pdl,
        spills=(facts.get("spill_stores") or 0) // 4,
        place=tuple(facts.get("ptx_place" if code.is_ptx else "place", (0, 0, 0, 0))),
    )


def _required_level(table: KernelTable, shared: int) -> int:
    """The bit of the least level of shared memory that is enough; none where every device has enough."""
    if shared <= _SHARED_WITHOUT_OPTIN:
        return 0
    return 1 << next(i for i, level in enumerate(table.levels) if level >= shared)


def _required_of_call(
    table: KernelTable, code: Code, grid_args: tuple[tuple[str, str], ...]
) -> Iterator[int]:
    """The bits required of parameters, options and conditions."""
    for name, text in code.passed(grid_args):
        _, type_, hints = _split_type(text, name)
        yield TYPES[type_] | hints
    matrix = dict(code.variant.matrix)
    for option in table.options:
        value = matrix[option.name]
        yield sum(
            1 << i for i, other in enumerate(option.values) if type(other) is type(value) and other == value
        )
    own = _conditions(code, table.parameters, table.name)
    for condition in table.conditions:
        yield int(condition in own)


def _row_name(code: Code) -> str:
    """What distinguishes the row from others, for people."""
    variant = code.variant
    values = [f"{name}={value}" for name, value in variant.values.items() if value is not None]
    hinted = {
        hint: [name for name, text in code.args if text.endswith(f":{hint}")]
        for hint in ("16", "8", "4", "1")
    }
    hints = [f"{','.join(names)}:{hint}" for hint, names in hinted.items() if names]
    conditions = [f"if {condition}" for condition in code.conditions]
    return " ".join([code.target.name, *values, *variant.options.words, *hints, *conditions])


def _passed(code: Code, grid_args: tuple[tuple[str, str], ...]) -> tuple[tuple[int, str], ...]:
    """The parameters that the cubin's facts list; one that is not an argument of the kernel gets a null
    pointer."""
    places = {name: index for index, (name, _) in enumerate(code.passed(grid_args))}
    return tuple((places.get(name, -1), _passed_type(type_, places)) for name, type_ in code.facts["params"])


def _passed_type(type_: str, places: Mapping[str, int]) -> str:
    """A type without its hint; in that of a tensor map, the arguments by number."""
    map_ = TensorMapType.parse(type_)
    return str(map_.renamed(lambda word: f"#{places[word]}")) if map_ else type_.partition(":")[0]


def _check_identifier(name: str, where: str, reserved: tuple[str, ...] = ()) -> None:
    if not IDENTIFIER.fullmatch(name) or keyword.iskeyword(name) or name.startswith("__"):
        raise ManifestError(f'{where}: "{name[:140]}" is not a name that Python and C allow')
    if name in reserved:
        raise ManifestError(
            f'{where}: "{name}" is a name that the package needs itself', help="choose another name"
        )


def _union(words: Iterable[int]) -> int:
    union = 0
    for word in words:
        union |= word
    return union
