"""The configurations of a kernel: `[[kernel.config]]` with `[kernel.defaults]`, checked."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from kbuild.aot.manifest import schema
from kbuild.aot.manifest.configs.write_out import ExpressionScope, computed, repeated
from kbuild.aot.manifest.expand import points
from kbuild.aot.manifest.load_when import read_when
from kbuild.aot.manifest.model import Argument, Axis, Config, Guard, Kernel, Specialization, Value
from kbuild.aot.manifest.parameters import KernelFunction
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, with_defaults
from kbuild.aot.manifest.table import checked, record
from kbuild.options import CompileOptions, by_name
from kbuild.targets import ARCHS


def load_configs(
    reader: ManifestReader,
    path: KeyPath,
    values: Mapping[str, Any],
    args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: tuple[Specialization, ...],
    function: KernelFunction,
) -> tuple[tuple[Config, ...], list[KeyPath]]:
    """The configurations, and where each is written: one place may stand for several."""
    names = {"<constexpr>": [parameter.name for parameter in function.parameters]}
    taken = {argument.name for argument in args} | {axis.name for axis in matrix}
    needed = [
        p.name for p in function.parameters if p.is_constexpr and not p.has_default and p.name not in taken
    ]
    entries = values.get("config") or [(path, {})]
    shared_path, shared = (*path, "defaults"), values.get("defaults", {})
    parameters = {parameter.name: parameter for parameter in function.parameters}
    scope = ExpressionScope(reader, path, args, matrix, parameters)
    found: list[Config] = []
    places: list[KeyPath] = []
    for key, entry, common in computed(scope, repeated(entries, args), shared):
        shared_values = checked(reader, shared_path, common, schema.DEFAULTS, names)
        shared_options, shared_constexprs = _divided(
            reader, shared_path, shared_values, taken & shared.keys()
        )
        places.append(key)
        own = checked(reader, key, entry, schema.CONFIG, names)
        place = (*key, "when")
        where, facts = read_when(reader, place, own.pop("when", {}), matrix, args, specializations)
        own_options, own_constexprs = _divided(reader, key, own, taken & entry.keys())
        chosen = CompileOptions(**{**shared_options, **own_options})
        constexprs = with_defaults(own_constexprs, shared_constexprs)
        for name, value in chosen.values("variant").items():
            if value is not None and name not in taken and name in names["<constexpr>"]:
                constexprs[name] = value
        for name in needed:
            if name not in constexprs and name not in entry and name not in shared:
                reader.error(
                    key, f'constexpr "{name}" has no value', "give it in config, or its values in matrix"
                )
        found.append(
            record(
                Config,
                schema.CONFIG,
                own,
                when=where,
                guards=facts,
                constexprs=tuple(constexprs.items()),
                options=chosen,
            )
        )
    return tuple(found), places


def _divided(
    reader: ManifestReader, path: KeyPath, values: Mapping[str, Any], taken: Collection[str]
) -> tuple[dict[str, Any], dict[str, Value]]:
    """The options that a configuration gives, by their own names, and its meta-parameters; `taken` are keys that
    are neither."""
    for name in taken:
        if by_name(name, "variant") is None:
            reader.error((*path, name), "is given in args or matrix already")
    chosen: dict[str, Any] = {}
    constexprs: dict[str, Value] = {}
    for name, value in values.items():
        option = by_name(name, "variant")
        if option is None:
            constexprs[name] = value
        elif name != option.name and option.name in values:
            reader.error((*path, name), f"is another name of {option.name}, which is given as well")
        else:
            chosen[option.name] = value
    return chosen, constexprs


def check_reach(reader: ManifestReader, kernel: Kernel, places: list[KeyPath]) -> None:
    """A configuration is dead if wherever it applies one before it applies without asking for run-time facts.

    Those written out for the values of an axis are one, those for a list of facts are not.
    """
    lines = [(place, config.guards) for place, config in zip(places, kernel.configs)]
    applied: dict[tuple[KeyPath, tuple[Guard, ...]], bool] = {}
    blocker: dict[tuple[KeyPath, tuple[Guard, ...]], KeyPath] = {}
    for arch in ARCHS:  # All that there are, so that a package for fewer need not drop configurations.
        for point, specialization in itertools.product(points(kernel), kernel.specializations):
            facts = dict(point) | {"arch": arch, "specialize": specialization.name}
            settled = None
            for index, config in enumerate(kernel.configs):
                if not config.when.holds(facts):
                    continue
                line = lines[index]
                applied[line] = applied.get(line, False) or settled is None
                if settled is not None:
                    blocker[line] = settled
                elif not config.guards:
                    settled = places[index]
    for line, is_reached in applied.items():
        if not is_reached:
            message = f"is never used: config[{blocker[line][-1]}] applies wherever it does"
            reader.error(line[0], message, "give it a `when`")
