"""One `[[kernel]]` of a manifest, checked against the function it names."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kbuild.aot.manifest import expressions, schema
from kbuild.aot.manifest.configs.decorated import DecoratedConfigs
from kbuild.aot.manifest.configs.listed import load_listed
from kbuild.aot.manifest.configs.load_configs import LoadedConfigs, check_reach, load_configs
from kbuild.aot.manifest.descriptors import expanded, parts
from kbuild.aot.manifest.functions.cuda import check_types
from kbuild.aot.manifest.functions.find import check_digest, find_function, presumed_function
from kbuild.aot.manifest.functions.kernel_function import KernelFunction, KernelParameter, with_elements
from kbuild.aot.manifest.kinds import Name, layout_text
from kbuild.aot.manifest.launches.load_recorded import load_recorded
from kbuild.aot.manifest.launches.load_reference import check_reference
from kbuild.aot.manifest.launches.load_shape import check_launch_shape
from kbuild.aot.manifest.launches.load_tune import load_tune
from kbuild.aot.manifest.launches.load_verify import check_expression, check_expressions, load_verify
from kbuild.aot.manifest.load_when import read_exclude
from kbuild.aot.manifest.model import (
    DTYPES,
    HINTS,
    Argument,
    Axis,
    Kernel,
    Specialization,
    Tune,
    Value,
    Verify,
    is_same,
)
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import (
    ManifestReader,
    described,
    placed,
    spread,
    suggestion,
)
from kbuild.aot.manifest.table import checked, record
from kbuild.options import CUDA

MAX_POINTS = 10_000
"""Points of one kernel's matrix, architectures and specialisations included."""

_TYPE = re.compile(schema.TYPE)
_DESCRIPTOR = re.compile(schema.DESCRIPTOR)


def load_kernel(reader: ManifestReader, path: KeyPath, table: Mapping[str, Any]) -> Kernel | None:
    """The kernel of one table; None, with the mistakes noted in the reader, if it cannot be made out."""
    before = len(reader.errors)
    values = checked(reader, path, table, schema.KERNEL)
    name, declared = find_function(reader, path, table, values)
    presumed = declared or presumed_function(table)
    types, function = with_elements(reader, (*path, "args"), values.get("args", {}), presumed)
    parameters = {parameter.name: parameter for parameter in function.parameters}
    listed = load_listed(reader, path, table, values, function, spread(types)) if declared else None
    if "variants" in table and not (listed and listed.points):
        return None  # All that the kernel has by the list would be missing.
    matrix = listed.matrix if listed else _matrix(reader, path, values.get("matrix", {}), parameters)
    args = _arguments(reader, path, types, matrix, function, listed.columns if listed else ())
    if declared:
        _check_source(reader, path, values, declared, name, args, matrix)
    taken = {*parameters, *(axis.name for axis in matrix)}
    grid_args = _grid_arguments(reader, (*path, "grid_args"), values.get("grid_args", {}), taken)
    if listed:
        specializations = listed.specializations
        loaded = LoadedConfigs(listed.configs, [], (), DecoratedConfigs())
    else:
        specializations = _specializations(reader, values.get("specialize", ()), args, matrix)
        loaded = load_configs(reader, path, values, args, grid_args, matrix, specializations, function, name)
    _check_size(reader, path, args, matrix, len(specializations), len(listed.configs) if listed else 0)
    excludes = tuple(read_exclude(reader, key, entry, matrix) for key, entry in values.get("exclude", ()))
    verify, tune = _runs(reader, path, values, args, grid_args, matrix, specializations, loaded)
    was_right = len(reader.errors) == before
    given = {argument.name for argument in args} | {axis.name for axis in matrix}
    found = record(
        Kernel,
        schema.KERNEL,
        values,
        function=name,
        args=args,
        matrix=matrix,
        specializations=specializations,
        grid_args=grid_args,
        configs=loaded.configs,
        alternatives=loaded.alternatives,
        notes=loaded.decorated.notes,
        excludes=excludes,
        listed=listed.points if listed else (),
        columns=listed.header if listed else (),
        recorded=load_recorded(reader, path, values),
        language=function.language,
        block=tuple(map(str, values.get("block", ()))),
        shared=str(values.get("shared", 0)),
        defaults=tuple(
            (p.name, p.default) for p in function.parameters if p.is_literal and p.name not in given
        ),
        seen=_seen(reader, (*path, "seen"), values.get("seen", {}), parameters),
        parameters=_served_parameters(declared) if "serves" in values else (),
        doc=values.get("doc") or function.doc,
        verify=verify,
        tune=tune,
    )
    _check_together(reader, path, table, found, taken, was_right)
    if len(reader.errors) == before and loaded.places:
        check_reach(reader, found, loaded.places)
    return found if len(reader.errors) == before else None


def _seen(
    reader: ManifestReader, path: KeyPath, table: Mapping[str, Any], parameters: Collection[str]
) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    """The keys for which a tuner chose, by the names of its parameters."""
    first = next(iter(table), "")
    for name, values in table.items():
        if name not in parameters:
            reader.error((*path, name), "the kernel has no such parameter", suggestion(name, parameters))
        elif len(values) != len(table[first]):
            text = f"has {len(values)} values, and {first} has {len(table[first])}"
            reader.error((*path, name), text, "each key has one of every name")
    return tuple((name, tuple(values)) for name, values in table.items())


def _served_parameters(declared: KernelFunction | None) -> tuple[tuple[str, bool, bool, Value], ...]:
    """The parameters that calls of a library's own function bind."""
    return tuple(
        (one.name, one.is_constexpr, one.is_literal, one.default)
        for one in (declared.parameters if declared else ())
    )


def _check_source(
    reader: ManifestReader,
    path: KeyPath,
    values: Mapping[str, Any],
    declared: KernelFunction,
    name: str,
    args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
) -> None:
    """Notes types that are not those of the source, and a source that is not the one that was captured."""
    if declared.language == CUDA:
        check_types(reader, path, values["source"], declared, args, matrix)
    elif "digest" in values:
        check_digest(reader, path, values, name)
    if "serves" in values and "digest" not in values:
        reader.error((*path, "serves"), "needs the key digest", "kbuild import writes both")


def _runs(
    reader: ManifestReader,
    path: KeyPath,
    values: Mapping[str, Any],
    args: tuple[Argument, ...],
    grid_args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: tuple[Specialization, ...],
    loaded: LoadedConfigs,
) -> tuple[Verify | None, Tune | None]:
    """The tables `verify` and `tune`: launches that show whether the variants are right, and how fast they are."""
    verify = tune = None
    if "verify" in values:
        verify = load_verify(reader, (*path, "verify"), values["verify"], args, grid_args)
        if "unverified" in values:
            reader.error(
                (*path, "unverified"), "the kernel has a table [kernel.verify], too", "leave out one of them"
            )
    if "tune" in values:
        place = (*path, "tune")
        tune = load_tune(
            reader,
            place,
            values["tune"],
            args,
            grid_args,
            matrix,
            specializations,
            loaded,
            verify,
            "launches" in values,
        )
    return verify, tune


def _check_together(
    reader: ManifestReader,
    path: KeyPath,
    table: Mapping[str, Any],
    kernel: Kernel,
    taken: set[str],
    was_right: bool,
) -> None:
    """Notes what does not hold between keys.  Where something is wrong already, an expression may name whatever the
    kernel has, which is `taken`: the mistake is not there."""
    constants = _constants(kernel) if was_right else taken
    _check_expressions(reader, path, table, kernel, constants)
    _check_descriptors(reader, (*path, "args"), kernel, constants)
    check_launch_shape(reader, path, table, kernel, constants, was_right)
    check_reference(reader, path, table, kernel, constants)


def _matrix(
    reader: ManifestReader, path: KeyPath, table: Mapping[str, Any], parameters: Mapping[str, KernelParameter]
) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    path = (*path, "matrix")
    for name, values in checked(reader, path, table, schema.MATRIX).items():
        default = parameters[name].default if name in parameters else None
        if len(values) == 1:  # A call can mean no other.
            default = values[0]
        is_built = any(is_same(value, default) for value in values)
        axes.append(Axis(name, values, name in parameters, default if is_built else None))
    return tuple(axes)


def _arguments(
    reader: ManifestReader,
    path: KeyPath,
    table: Mapping[str, Any],
    matrix: tuple[Axis, ...],
    function: KernelFunction,
    constants: Collection[str] = (),
) -> tuple[Argument, ...]:
    """The run-time arguments in the kernel's order, and the axes, checked against the kernel's parameters; `constants` are
    parameters whose values a list gives."""
    path = (*path, "args")
    parameters = {parameter.name: parameter for parameter in function.parameters}
    axes = {axis.name: axis for axis in matrix}
    found: dict[str, Argument] = {}
    referenced: set[str] = set()
    given = spread(table)
    types = checked(reader, path, table, schema.ARGS)
    for name, text in given.items():
        key = (*path, name)
        if not Name().takes(name):
            continue
        if name not in parameters:
            reader.error(key, "the kernel has no such parameter", suggestion(name, parameters))
        elif parameters[name].is_constexpr:
            reader.error(key, "the parameter is a constexpr", "give its values in matrix or config")
        elif name in axes or name in constants:
            reader.error(
                key,
                "is an axis of the matrix too" if name in axes else "is given by the list of variants too",
            )
        if ":swizzle" in str(text) and function.language != CUDA:
            reader.error(key, "says a swizzle, which the compiler chooses for kernels in Triton's language")
        if name in types:
            found[name] = _argument(reader, key, name, types[name], axes, referenced)
        else:
            found[name] = Argument(name, _presumed_type(text))
    for axis in matrix:
        if axis.name not in parameters and axis.name not in referenced:
            reader.error(
                (*path[:-1], "matrix", axis.name),
                "is neither a parameter of the kernel nor used in an argument's type",
                suggestion(axis.name, [p.name for p in function.parameters if p.is_constexpr]),
            )
    for parameter in function.parameters:
        missing = not parameter.has_default and not parameter.is_constexpr
        if missing and parameter.name not in {*given, *axes, *constants}:
            reader.error(path, f'missing argument "{parameter.name}"')
    order = list(parameters)
    return tuple(
        sorted(
            found.values(), key=lambda argument: order.index(argument.name) if argument.name in order else 0
        )
    )


def _presumed_type(text: object) -> str:
    """A pointer or an integer in place of a wrong type, so that other keys naming the argument are not
    reported as well."""
    return "*i8" if str(text).startswith("*") else "i32"


def _argument(
    reader: ManifestReader, key: KeyPath, name: str, text: str, axes: Mapping[str, Axis], referenced: set[str]
) -> Argument:
    """The argument of a type."""
    match = _TYPE.fullmatch(text)
    if match is None:  # The compile-time values that its block names are known when a variant is made.
        match = _DESCRIPTOR.fullmatch(text)
        assert match is not None, "the row takes nothing else"
        _element_types(reader, key, match[1], match[2], axes, referenced)
        layout = layout_text(match[3], key, reader.error) if match[3] else None
        if layout and not layout.startswith("gl.NVMMASharedLayout("):
            help = 'write, for example, "tensordesc<fp16[64, 64],gl.NVMMASharedLayout(128, 16)>"'
            reader.error(key, f"{layout} is not the layout of a descriptor's blocks", help)
        return Argument(name, text)
    _, plain, axis_name, hints = match.groups()
    values = _element_types(reader, key, plain, axis_name, axes, referenced)
    marks = [mark for mark in hints.split(":") if mark]
    type_ = text.partition(":")[0]
    if values is None:
        type_ = _presumed_type(text)
    elif (
        marks
        and not type_.startswith("*")
        and any(str(value)[0] not in "iu" or value == "i1" for value in values)
    ):
        reader.error(key, "only pointers and integers can be divisible by 4, 8 or 16 or equal to one")
    if "1" in [mark.rstrip("?") for mark in marks] and type_.startswith("*"):
        reader.error(key, "a pointer cannot be equal to one")
    return Argument(name, type_, _hints(marks))


def _element_types(
    reader: ManifestReader,
    key: KeyPath,
    plain: str,
    axis_name: str,
    axes: Mapping[str, Axis],
    referenced: set[str],
) -> tuple[Value, ...] | None:
    """The types that a type or an axis stands for; None where one is unknown."""
    if axis_name and axis_name not in axes:
        reader.error(key, f'no axis "{axis_name}" in the matrix', suggestion(axis_name, axes))
        return None
    if axis_name:
        referenced.add(axis_name)
    values = axes[axis_name].values if axis_name else (plain,)
    wrong = [value for value in values if value not in DTYPES]
    path = (*key[:-2], "matrix", axis_name) if axis_name else key
    given = reader.at(path) if axis_name and path in reader.lines else wrong if axis_name else plain
    for place, value in placed(given, wrong):
        reader.error((*path, *place), f"unknown type {described(value)}", suggestion(value, DTYPES))
    return None if wrong else values


def _hints(marks: list[str]) -> tuple[str, ...]:
    """Specialisations, strongest first; the general one is built if every mark may be absent."""
    named = {mark.rstrip("?") for mark in marks}
    general = () if any(not mark.endswith("?") for mark in marks) else ("",)
    return tuple(hint for hint in reversed(HINTS) if hint in named) + general


def _grid_arguments(
    reader: ManifestReader, path: KeyPath, table: Mapping[str, Any], taken: set[str]
) -> tuple[Argument, ...]:
    """Arguments of the launch that the kernel itself does not take."""
    found = checked(reader, path, table, schema.GRID_ARGS)
    for name in spread(table):
        if name in taken:
            reader.error(
                (*path, name),
                "is a parameter of the kernel or an axis already",
                "the grid may name those as they are",
            )
    return tuple(Argument(name, type_) for name, type_ in found.items() if name not in taken)


def _specializations(
    reader: ManifestReader,
    entries: Sequence[tuple[KeyPath, Mapping[str, Any]]],
    args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
) -> tuple[Specialization, ...]:
    """The sets of hints of `[[kernel.specialize]]`, such as `{ name = "aligned", K = 16, stride_bn = 1 }`."""
    arguments = {argument.name: argument for argument in args}
    axes = {axis.name: axis.values for axis in matrix}
    found: list[Specialization] = []
    for key, entry in entries:
        values = checked(reader, key, entry, schema.SPECIALIZE, {"<argument>": arguments})
        # A key may name several arguments that do not follow each other.
        hints = [(name, values[name]) for name in arguments if name in values]
        for name, value in hints:
            type_ = arguments[name].type
            types = [str(item) for item in axes.get(type_[1:-1], ())] if type_.startswith("{") else [type_]
            can_hold = all(item[:1] in "*iu" and item != "i1" for item in types)
            if not can_hold or (value == 1 and type_[0] == "*"):
                reader.error(
                    (*key, name), f"{described(value)} is not a specialisation of {type_}", schema.HINT_ADVICE
                )
        called = "" if "name" in arguments else values.get("name", "")
        found.append(Specialization(tuple((name, str(value)) for name, value in hints), called))
    return tuple(found) or (Specialization(),)


def _check_size(
    reader: ManifestReader,
    path: KeyPath,
    args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: int,
    rows: int = 0,
) -> None:
    """Notes too many variants: `rows` are those of a list, in the place of all that multiply."""
    archs = (
        reader.table.get("package", {}).get("archs", ())
        if isinstance(reader.table.get("package"), Mapping)
        else ()
    )
    factors = [rows] if rows else [specializations, *(len(axis.values) for axis in matrix)]
    factors += [len(argument.hints) for argument in args]
    count = math.prod([len(archs) if isinstance(archs, list) else 1, *factors])
    if count > MAX_POINTS:
        reader.error(
            (*path, "variants" if rows else "matrix"),
            f"{count:,} variants, at most {MAX_POINTS:,} are built",
            "delete rows that nobody calls" if rows else "shorten an axis or drop a `?`",
        )


def _integers(kernel: Kernel) -> set[str]:
    """The run-time integers that the kernel's expressions may name."""
    names = {argument.name for argument in kernel.args + kernel.grid_args if argument.type[:1] in "iu"}
    return names | {
        name
        for name, _, extent in expanded((argument.name, argument.type) for argument in kernel.args)
        if extent
    }


def _constants(kernel: Kernel) -> set[str]:
    """The compile-time integers of every variant."""
    names = {axis.name for axis in kernel.matrix if isinstance(axis.values[0], int)}
    names |= {name for name, value in kernel.defaults if isinstance(value, int)}
    by_config = [
        {name for name, value in config.constexprs if isinstance(value, int)} for config in kernel.configs
    ]
    return names | (set.intersection(*by_config) if by_config else set())


def _check_descriptors(reader: ManifestReader, path: KeyPath, kernel: Kernel, known: set[str]) -> None:
    """The sizes of blocks are numbers, or known for every variant; names of extents are not used otherwise."""
    names = [argument.name for argument in kernel.args + kernel.grid_args]
    for argument in kernel.args:
        _, sizes = parts(argument.type) or ("", ())
        for size in sizes:
            if not size.isdigit() and size not in known:
                message = f"{size} is not a compile-time integer of every variant"
                reader.error((*path, argument.name), message, suggestion(size, known))
        for name, _, extent in expanded([(argument.name, argument.type)]):
            if extent and name in names:
                reader.error((*path, name), f"a size or stride of {argument.name} has this name")


def _check_expressions(
    reader: ManifestReader, path: KeyPath, table: Mapping[str, Any], kernel: Kernel, constants: set[str]
) -> None:
    """Notes texts that are not expressions over the kernel's integers."""
    integers = sorted(_integers(kernel) | constants)
    for place, text in placed(table.get("grid"), kernel.grid):
        check_expression(reader, (*path, "grid", *place), text, [*integers, expressions.NUM_SMS])
    if kernel.verify:
        scalars = {argument.name for argument in kernel.args + kernel.grid_args}
        check_expressions(reader, (*path, "verify"), kernel.verify, integers, scalars)
    if kernel.tune and "sizes" in table["tune"]:
        for name, text in kernel.tune.sizes:
            check_expression(reader, (*path, "tune", "sizes", name), text, integers)
