"""One `[[kernel]]` of a manifest, checked against the function it names."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from kbuild.aot.manifest import expressions, schema
from kbuild.aot.manifest.descriptors import expanded, parts
from kbuild.aot.manifest.expand import points
from kbuild.aot.manifest.load_tune import load_tune
from kbuild.aot.manifest.load_verify import check_expression, check_expressions, load_verify
from kbuild.aot.manifest.load_when import condition, guards
from kbuild.aot.manifest.model import (
    ARCHS,
    DTYPES,
    HINTS,
    Argument,
    Axis,
    Config,
    Kernel,
    Specialization,
    Value,
    is_same,
)
from kbuild.aot.manifest.parameters import Function, Parameter, functions
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import (
    Reader,
    described,
    is_value,
    names_of,
    one_line,
    suggestion,
    with_defaults,
)
from kbuild.errors import ManifestError
from kbuild.options import CompileOptions, options

MOST_POINTS = 10_000
"""Points of one kernel's matrix, architectures and specialisations included."""

_TYPE = re.compile(schema.TYPE)
_DESCRIPTOR = re.compile(schema.DESCRIPTOR)


def load_kernel(reader: Reader, path: KeyPath, table: Mapping[str, Any]) -> Kernel | None:
    """The kernel of one table; None, with the mistakes noted in the reader, if it cannot be made out."""
    before = len(reader.errors)
    reader.keys(path, table, schema.KERNEL.names, schema.KERNEL.required)
    if "name" in table:
        reader.name((*path, "name"), table["name"])
    source, function_name, declared = _function(reader, path, table)
    function = declared or _presumed(table)
    parameters = {parameter.name: parameter for parameter in function.parameters}
    matrix = _matrix(reader, (*path, "matrix"), reader.get((*path, "matrix"), table, dict, {}), parameters)
    args = _arguments(reader, path, table, matrix, function)
    grid_args = _grid_arguments(
        reader, (*path, "grid_args"), table, {*parameters, *(axis.name for axis in matrix)}
    )
    specializations = _specializations(reader, path, table, args, matrix)
    _check_size(reader, path, args, matrix, len(specializations))
    excludes = tuple(
        condition(reader, key, entry, matrix) for key, entry in reader.tables((*path, "exclude"), table)
    )
    configs = _configs(reader, path, table, args, matrix, specializations, function)
    verify = load_verify(reader, path, table, args, grid_args)
    unverified = _unverified(reader, (*path, "unverified"), table)
    tune = load_tune(reader, path, table, args, grid_args, matrix, specializations, configs, verify)
    was_right = len(reader.errors) == before
    given = {argument.name for argument in args} | {axis.name for axis in matrix}
    found = Kernel(
        name=str(table.get("name", "")),
        source=source,
        function=function_name,
        grid=tuple(reader.get((*path, "grid"), table, list, [])),
        args=args,
        matrix=matrix,
        specializations=specializations,
        grid_args=grid_args,
        configs=configs,
        excludes=excludes,
        defaults=tuple(
            (p.name, p.default) for p in function.parameters if p.is_literal and p.name not in given
        ),
        doc=reader.get((*path, "doc"), table, str, "") or function.doc,
        op=tuple(sorted(reader.get((*path, "op"), table, dict, {}).items())),
        verify=verify,
        unverified=unverified,
        tune=tune,
    )
    # Where something is wrong already, an expression may name whatever the kernel has: the mistake is not
    # there.
    constants = _constants(found) if was_right else {*parameters, *(axis.name for axis in matrix)}
    integers = sorted(_integers(found) | constants)
    check_expressions(reader, path, verify, integers, {argument.name for argument in args + grid_args})
    for name, text in (
        tune.sizes if tune and isinstance(table["tune"], Mapping) and "sizes" in table["tune"] else ()
    ):
        check_expression(reader, (*path, "tune", "sizes", name), text, integers)
    _check_grid(reader, (*path, "grid"), found, integers)
    _check_descriptors(reader, (*path, "args"), found, constants)
    if len(reader.errors) == before:
        _check_reach(reader, path, found)
    return found if len(reader.errors) == before else None


def _presumed(table: Mapping[str, Any]) -> Function:
    """A function with the parameters that the tables name, so that one which cannot be found hides no other
    mistake."""
    configs = table.get("config")
    tables = [
        table.get("args"),
        table.get("matrix"),
        table.get("defaults"),
        *(configs if isinstance(configs, list) else ()),
    ]
    run_time, *compile_time = ([*entry] if isinstance(entry, Mapping) else [] for entry in tables)
    run_time = [name for key in run_time for name in names_of(key)]
    names = dict.fromkeys(run_time, False) | {
        name: True for entry in compile_time for name in entry if name not in run_time
    }
    return Function(
        tuple(Parameter(name, is_constexpr, has_default=True) for name, is_constexpr in names.items()), ""
    )


def _function(reader: Reader, path: KeyPath, table: Mapping[str, Any]) -> tuple[str, str, Function | None]:
    """The source file, the function's name and what its syntax tree says."""
    key = (*path, "source")
    source = reader.get(key, table, str, "")
    if not isinstance(table.get("source"), str):
        return "", "", None
    parts = source.split("/")
    if source.startswith("/") or ".." in parts or "\\" in source or not source.isprintable():
        reader.error(
            key,
            f"{described(source)} is not a path within the project",
            "write it relative to the manifest, with /",
        )
        return source, "", None
    file = reader.root / source
    if not source.endswith(".py") or not file.is_file():
        reader.error(key, f"no Python file {described(source)}")
        return source, "", None
    if not file.resolve().is_relative_to(reader.root):
        reader.error(key, f"{described(source)} leads out of the project")
        return source, "", None
    try:
        known = functions(file)
    except SyntaxError as error:
        reader.error(key, f"{source}:{error.lineno or 1}: {error.msg}")
        return source, "", None
    except OSError as error:
        reader.error(key, f"{source}: {error.strerror}")
        return source, "", None
    name = reader.get((*path, "function"), table, str, f"{file.stem}_kernel")
    if name not in known:
        place = (*path, "function") if "function" in table else key
        close = suggestion(name, known)
        advice = close if "function" in table or not known else f"{close}; the key `function` names it"
        reader.error(place, f"{source} has no function {described(name)}", advice)
        return source, name, None
    return source, name, known[name]


def _unverified(reader: Reader, path: KeyPath, table: Mapping[str, Any]) -> str:
    """The reason for leaving the kernel out of verification, if there is one."""
    reason = reader.get(path, table, str, "")
    if "unverified" in table and (not reason.strip() or not reason.isprintable()):
        reader.error(path, "expected the reason, in one line of printable text")
    elif reason and "verify" in table:
        reader.error(path, "the kernel has a table [kernel.verify], too", "leave out one of them")
    return reason


def _matrix(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], parameters: Mapping[str, Parameter]
) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for name, values in table.items():
        key = (*path, name)
        if not reader.name(key, name):
            continue
        if not isinstance(values, list) or not values:
            reader.error(
                key,
                f"expected a list of values, found {'an empty list' if values == [] else described(values)}",
            )
            continue
        for index, value in enumerate(values):
            if not is_value(value):
                reader.error((*key, index), _value_message(value))
            elif type(value) is not type(values[0]):
                reader.error(
                    (*key, index),
                    f"{one_line(value)} is of another type than {described(values[0])} before it",
                )
            elif value in values[:index]:
                reader.error((*key, index), f"{one_line(value)} is named twice")
        default = parameters[name].default if name in parameters else None
        is_built = any(is_same(value, default) for value in values)
        axes.append(Axis(name, tuple(values), name in parameters, default if is_built else None))
    return tuple(axes)


def _value_message(value: object) -> str:
    if type(value) is int:
        return f"expected a number of 64 bits, found {described(value)}"
    return f"expected a flag, a finite number or a plain word, found {described(value)}"


def _arguments(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], matrix: tuple[Axis, ...], function: Function
) -> tuple[Argument, ...]:
    """The run-time arguments in the kernel's order, and the axes, checked against the kernel's parameters."""
    path = (*path, "args")
    parameters = {parameter.name: parameter for parameter in function.parameters}
    axes = {axis.name: axis for axis in matrix}
    found: dict[str, Argument] = {}
    referenced: set[str] = set()
    given = reader.spread(path, reader.get(path, table, dict, {}))
    for name, text in given.items():
        key = (*path, name)
        if not reader.name(key, name):
            continue
        if name not in parameters:
            reader.error(key, "the kernel has no such parameter", suggestion(name, parameters))
        elif parameters[name].is_constexpr:
            reader.error(key, "the parameter is a constexpr", "give its values in matrix or config")
        elif name in axes:
            reader.error(key, "is an axis of the matrix too")
        found[name] = _argument(reader, key, name, text, axes, referenced)
    for axis in matrix:
        if axis.name not in parameters and axis.name not in referenced:
            reader.error(
                (*path[:-1], "matrix", axis.name),
                "is neither a parameter of the kernel nor used in an argument's type",
                suggestion(axis.name, [p.name for p in function.parameters if p.is_constexpr]),
            )
    for parameter in function.parameters:
        missing = not parameter.has_default and not parameter.is_constexpr
        if missing and parameter.name not in given and parameter.name not in axes:
            reader.error(path, f'missing argument "{parameter.name}"')
    order = list(parameters)
    return tuple(
        sorted(
            found.values(), key=lambda argument: order.index(argument.name) if argument.name in order else 0
        )
    )


def _argument(
    reader: Reader, key: KeyPath, name: str, text: object, axes: Mapping[str, Axis], referenced: set[str]
) -> Argument:
    """The argument of a type; of one that is wrong a pointer or an integer, so that what else names it is no
    mistake as well."""
    match = _TYPE.fullmatch(text) if isinstance(text, str) else None
    if match is None and isinstance(text, str) and (match := _DESCRIPTOR.fullmatch(text)):
        _element_types(reader, key, match[1], match[2], axes, referenced)
        return Argument(
            name, text
        )  # The compile-time values that its block names are known when a variant is made.
    if match is None or not isinstance(text, str):
        written = '"*fp16:16", "i32:16?", "*{dtype}", "fp32" or "tensordesc<fp16[64, 64]>"'
        reader.error(key, f"{described(text)} is not a type", f"write it as {written}")
        return Argument(name, "*i8" if str(text).startswith("*") else "i32")
    _, plain, axis_name, hints = match.groups()
    values = _element_types(reader, key, plain, axis_name, axes, referenced)
    marks = [mark for mark in hints.split(":") if mark]
    type_ = text.partition(":")[0]
    if values is None:
        type_ = "*i8" if type_.startswith("*") else "i32"
    elif (
        marks
        and not type_.startswith("*")
        and any(str(value)[0] not in "iu" or value == "i1" for value in values)
    ):
        reader.error(key, "only pointers and integers can be divisible by 8 or 16 or equal to one")
    if "1" in [mark.rstrip("?") for mark in marks] and type_.startswith("*"):
        reader.error(key, "a pointer cannot be equal to one")
    return Argument(name, type_, _hints(marks))


def _element_types(
    reader: Reader, key: KeyPath, plain: str, axis_name: str, axes: Mapping[str, Axis], referenced: set[str]
) -> tuple[Value, ...] | None:
    """The types that a type or an axis stands for; None where one is unknown."""
    if axis_name and axis_name not in axes:
        reader.error(key, f'no axis "{axis_name}" in the matrix', suggestion(axis_name, axes))
        return None
    if axis_name:
        referenced.add(axis_name)
    values = axes[axis_name].values if axis_name else (plain,)
    wrong = [index for index, value in enumerate(values) if value not in DTYPES]
    for index in (index for index in wrong if is_value(values[index])):  # The matrix has told of others.
        place = (*key[:-2], "matrix", axis_name, index) if axis_name else key
        reader.error(place, f"unknown type {described(values[index])}", suggestion(values[index], DTYPES))
    return None if wrong else values


def _hints(marks: list[str]) -> tuple[str, ...]:
    """Specialisations, strongest first; the general one is built if every mark may be absent."""
    named = {mark.rstrip("?") for mark in marks}
    general = () if any(not mark.endswith("?") for mark in marks) else ("",)
    return tuple(hint for hint in reversed(HINTS) if hint in named) + general


def _grid_arguments(
    reader: Reader, path: KeyPath, table: Mapping[str, Any], taken: set[str]
) -> tuple[Argument, ...]:
    """Arguments of the launch that the kernel itself does not take."""
    found: list[Argument] = []
    for name, text in reader.spread(path, reader.get(path, table, dict, {})).items():
        key = (*path, name)
        if name in taken:
            reader.error(
                key, "is a parameter of the kernel or an axis already", "the grid may name those as they are"
            )
        elif reader.name(key, name) and text not in ("i32", "i64"):
            reader.error(key, f'expected "i32" or "i64", found {described(text)}')
        else:
            found.append(Argument(name, str(text)))
    return tuple(found)


def _specializations(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
) -> tuple[Specialization, ...]:
    """The sets of hints of `[[kernel.specialize]]`, such as `{ name = "aligned", K = 16, stride_bn = 1 }`."""
    arguments = {argument.name: argument for argument in args}
    axes = {axis.name: axis.values for axis in matrix}
    order = list(arguments)
    found: list[Specialization] = []
    for key, entry in reader.tables((*path, "specialize"), table):
        hints: list[tuple[str, str]] = []
        entry = reader.spread(key, entry)
        called = "" if "name" in arguments else reader.get((*key, "name"), entry, str, "")
        for name, value in entry.items():
            if name == "name" and name not in arguments:
                continue
            if name not in arguments:
                reader.error((*key, name), "is no run-time argument", suggestion(name, arguments))
                continue
            type_ = arguments[name].type
            types = [str(item) for item in axes.get(type_[1:-1], ())] if type_.startswith("{") else [type_]
            can_hold = all(item[:1] in "*iu" and item != "i1" for item in types)
            if (
                type(value) is not int
                or str(value) not in HINTS
                or not can_hold
                or (value == 1 and type_[0] == "*")
            ):
                reader.error(
                    (*key, name),
                    f"{described(value)} is no specialisation of {type_}",
                    "16, 8: divisible by it; 1: equal to it",
                )
            hints.append((name, str(value)))
        hints.sort(
            key=lambda hint: order.index(hint[0])
        )  # A key may name several that do not follow each other.
        found.append(Specialization(tuple(hints), called))
    return tuple(found) or (Specialization(),)


def _check_size(
    reader: Reader, path: KeyPath, args: tuple[Argument, ...], matrix: tuple[Axis, ...], specializations: int
) -> None:
    archs = (
        reader.table.get("package", {}).get("archs", ())
        if isinstance(reader.table.get("package"), Mapping)
        else ()
    )
    count = math.prod(
        [len(archs) if isinstance(archs, list) else 1, specializations]
        + [len(axis.values) for axis in matrix]
        + [len(argument.hints) for argument in args]
    )
    if count > MOST_POINTS:
        reader.error(
            (*path, "matrix"),
            f"{count:,} variants, at most {MOST_POINTS:,} are built",
            "shorten an axis or drop a `?`",
        )


def _configs(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: tuple[Specialization, ...],
    function: Function,
) -> tuple[Config, ...]:
    parameters = {parameter.name: parameter for parameter in function.parameters}
    taken = {argument.name for argument in args} | {axis.name for axis in matrix}
    needed = [
        p.name for p in function.parameters if p.is_constexpr and not p.has_default and p.name not in taken
    ]
    entries = reader.tables((*path, "config"), table) or [(path, {})]
    shared_path = (*path, "defaults")
    shared = reader.get(shared_path, table, dict, {})
    if "when" in shared:
        reader.error((*shared_path, "when"), "defaults are for all configurations", "give `when` in config")
    shared_options = _options(reader, shared_path, shared)
    shared_values = _meta_parameters(reader, shared_path, shared, parameters, taken)
    found: list[Config] = []
    for key, entry in entries:
        when = reader.get((*key, "when"), entry, dict, {})
        where = condition(reader, (*key, "when"), when, matrix, args, specializations)
        facts = guards(reader, (*key, "when"), when, args)
        chosen = CompileOptions(**{**shared_options, **_options(reader, key, entry)})
        values = with_defaults(_meta_parameters(reader, key, entry, parameters, taken), shared_values)
        given = {
            name: value
            for name, value in chosen.values("variant").items()
            if value is not None and name not in taken
        }
        values |= {name: value for name, value in given.items() if name in parameters}
        for name in needed:
            if name not in values and name not in entry and name not in shared:
                reader.error(
                    key, f'constexpr "{name}" has no value', "give it in config, or its values in matrix"
                )
        found.append(Config(where, facts, tuple(values.items()), chosen))
    return tuple(found)


def _options(reader: Reader, path: KeyPath, table: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a configuration gives, by their own names; mistakes are noted, and left out."""
    legal: dict[str, Any] = {}
    for known in options("variant"):
        for name in known.names:
            value = reader.get((*path, name), table, known.kind, known.default)
            if not known.is_legal(value):
                reader.error((*path, name), f"expected {known.expected}, found {described(value)}")
            elif name in table:
                if known.name in legal:
                    reader.error((*path, name), f"is another name of {known.name}, which is given as well")
                legal[known.name] = value
    return legal


def _meta_parameters(
    reader: Reader,
    path: KeyPath,
    table: Mapping[str, Any],
    parameters: Mapping[str, Parameter],
    taken: set[str],
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, value in table.items():
        key = (*path, name)
        if name in schema.CONFIG.names:
            continue
        if name not in parameters:
            reader.error(
                key, "the kernel has no such parameter", suggestion(name, [*parameters, *schema.CONFIG.names])
            )
        elif name in taken:
            reader.error(key, "is given in args or matrix already")
        elif not is_value(value):
            reader.error(key, _value_message(value))
        else:
            values[name] = value
    return values


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


def _check_descriptors(reader: Reader, path: KeyPath, kernel: Kernel, known: set[str]) -> None:
    """The sizes of blocks are numbers, or known for every variant; names of extents are nobody else's."""
    names = [argument.name for argument in kernel.args + kernel.grid_args]
    for argument in kernel.args:
        _, sizes = parts(argument.type) or ("", ())
        for size in sizes:
            if not size.isdigit() and size not in known:
                message = f"{size} is no compile-time integer of every variant"
                reader.error((*path, argument.name), message, suggestion(size, known))
        for name, _, extent in expanded([(argument.name, argument.type)]):
            if extent and name in names:
                reader.error((*path, name), f"that is how a size or stride of {argument.name} is called")


def _check_grid(reader: Reader, path: KeyPath, kernel: Kernel, integers: list[str]) -> None:
    if not 1 <= len(kernel.grid) <= 3:
        reader.error(path, f"a grid has one to three expressions, not {len(kernel.grid)}")
    names = [*integers, expressions.NUM_SMS]
    for index, text in enumerate(kernel.grid):
        key = (*path, index)
        if not isinstance(text, str):
            reader.error(key, f"expected an expression in quotes, found {described(text)}")
            continue
        try:
            expressions.parse(text, names, "")
        except ManifestError as error:
            reader.error(key, ascii(error.message.removeprefix(": "))[1:-1], error.hint)


def _check_reach(reader: Reader, path: KeyPath, kernel: Kernel) -> None:
    """A configuration is dead if wherever it applies one before it applies without asking for run-time facts."""
    applied: dict[int, bool] = {}
    blocker: dict[int, int] = {}
    for arch in ARCHS:  # All that there are, so that a package for fewer need not drop configurations.
        for point, specialization in itertools.product(points(kernel), kernel.specializations):
            facts = dict(point) | {"arch": arch, "specialize": specialization.name}
            settled = None
            for index, config in enumerate(kernel.configs):
                if not config.when.holds(facts):
                    continue
                applied[index] = applied.get(index, False) or settled is None
                if settled is not None:
                    blocker[index] = settled
                elif not config.guards:
                    settled = index
    for index, is_reached in applied.items():
        if not is_reached:
            reader.error(
                (*path, "config", index),
                f"is never used: config[{blocker[index]}] applies wherever it does",
                "give it a `when`",
            )
