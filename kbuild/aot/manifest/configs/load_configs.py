"""The configurations of a kernel: `[[kernel.config]]` with `[kernel.defaults]`, checked."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.aot.manifest import expressions, schema
from kbuild.aot.manifest.configs.decorated import DecoratedConfigs, DecoratedKernel
from kbuild.aot.manifest.configs.features import obstacle
from kbuild.aot.manifest.configs.write_out import ExpressionScope, computed, for_axes, repeated
from kbuild.aot.manifest.descriptors import expanded
from kbuild.aot.manifest.expand import points
from kbuild.aot.manifest.functions.kernel_function import KernelFunction
from kbuild.aot.manifest.load_when import read_when
from kbuild.aot.manifest.model import Argument, Axis, Config, Guard, Kernel, Specialization, Value
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, with_defaults
from kbuild.aot.manifest.table import checked, record
from kbuild.errors import ManifestError
from kbuild.options import CUDA, CompileOptions, Option, by_name
from kbuild.targets import ARCHS


@dataclass(frozen=True)
class LoadedConfigs:
    """The configurations of a kernel."""

    configs: tuple[Config, ...]
    places: list[KeyPath]
    """Where each is written, one place for several that it stands for; empty where the manifest has none."""
    alternatives: tuple[tuple[Config, ...], ...]
    """Those of decorators that are not used."""
    decorated: DecoratedConfigs
    """What else decorators say."""


def load_configs(
    reader: ManifestReader,
    path: KeyPath,
    values: Mapping[str, Any],
    args: tuple[Argument, ...],
    grid_args: tuple[Argument, ...],
    matrix: tuple[Axis, ...],
    specializations: tuple[Specialization, ...],
    function: KernelFunction,
    name: str,
) -> LoadedConfigs:
    """The configurations of the manifest; where it gives none, those of the decorators of the function `name`."""
    decorated = DecoratedConfigs()
    defaults = values.get("defaults", {})
    if function.decorators:
        kernel = DecoratedKernel(
            reader, path, values["source"], name, function, args, matrix, defaults, "tune" in values
        )
        decorated = kernel.ignored() if values.get("config") else kernel.read()
    loader = _Loader(
        reader, path, args, grid_args, matrix, specializations, function, defaults, decorated.advice
    )
    if decorated.rows:
        first, *others = [
            tuple(config for _, config in loader.read([(path, entry) for entry in row]))
            for row in decorated.rows
        ]
        return LoadedConfigs(first, [], tuple(others), decorated)
    entries = values.get("config") or [(path, {})]
    if (*path, "config") in reader.writers:
        legal = {axis.name: axis.values for axis in matrix}
        entries = [*for_axes(entries, legal | {"specialize": [one.name for one in specializations]})]
    found = [*loader.read(entries)]
    return LoadedConfigs(tuple(config for _, config in found), [place for place, _ in found], (), decorated)


@dataclass(frozen=True)
class _Loader:
    """What configurations are checked against."""

    reader: ManifestReader
    path: KeyPath
    args: tuple[Argument, ...]
    grid_args: tuple[Argument, ...]
    """Those that only the grid needs; facts may be about them, too."""
    matrix: tuple[Axis, ...]
    specializations: tuple[Specialization, ...]
    function: KernelFunction
    defaults: Mapping[str, Any]
    advice: str
    """Why a constexpr parameter may have no value."""

    def read(self, entries: Iterable[tuple[KeyPath, Mapping[str, Any]]]) -> Iterator[tuple[KeyPath, Config]]:
        """The configurations, each with the place where it is written: one may stand for several."""
        names = {"<constexpr>": [parameter.name for parameter in self.function.parameters]}
        parameters = {parameter.name: parameter for parameter in self.function.parameters}
        constants = [parameter.name for parameter in self.function.parameters if parameter.is_constexpr]
        taken = {argument.name for argument in self.args} | {axis.name for axis in self.matrix}
        has_cost = "cost" not in constants  # Where it is, the key is that parameter.
        keys = taken - {"cost"} if has_cost else taken
        place = (*self.path, "defaults")
        defaults, config = (
            schema.options_of(table, self.function.language, constants)
            for table in (schema.DEFAULTS, schema.CONFIG)
        )
        scope = ExpressionScope(self.reader, self.path, self.args, self.matrix, parameters)
        named = self.args + self.grid_args
        for key, entry, common in computed(scope, repeated(entries, named), self.defaults):
            entry, common = self._own(key, entry, names), self._own(place, common, names)
            if has_cost and "cost" in common:  # Not that of the entry, which it may name.
                common = {**common, "cost": self.defaults["cost"]}
            shared_values = checked(self.reader, place, common, defaults, names)
            own = checked(self.reader, key, entry, config, names)
            costs: dict[KeyPath, str] = {}
            for path, table in ((key, own), (place, shared_values)):
                if has_cost and "cost" in table:
                    costs[(*path, "cost")] = str(table.pop("cost"))
            shared = self._divided(place, shared_values, keys & self.defaults.keys())
            when = own.pop("when", {})
            where, facts = read_when(
                self.reader, (*key, "when"), when, self.matrix, named, self.specializations
            )
            own_options, own_constexprs = self._divided(key, own, keys & entry.keys())
            chosen = CompileOptions(**{**shared[0], **own_options})
            constexprs = with_defaults(own_constexprs, shared[1])
            for name, value in chosen.values("variant", self.function.language).items():
                if value is not None and name not in taken and name in names["<constexpr>"]:
                    constexprs[name] = value
            self._check_needed(key, {*constexprs, *entry, *self.defaults, *taken})
            given = tuple(constexprs.items())
            made = {"when": where, "guards": facts, "constexprs": given, "options": chosen}
            made["cost"] = self._cost(costs, constexprs, chosen)
            yield key, record(Config, schema.CONFIG, own, **made)

    def _cost(
        self, texts: Mapping[KeyPath, str], constexprs: Mapping[str, Value], chosen: CompileOptions
    ) -> str:
        """The expression of a cost in its normal form, of the texts that the configuration and `defaults` give, in this order;
        empty where there is none, or one is wrong."""
        values = {one.name: one.default for one in self.function.parameters if one.is_literal}
        values |= {axis.name: axis.values[0] for axis in self.matrix if axis.values}
        options = chosen.values("variant", self.function.language)
        values |= {name: value for name, value in options.items() if type(value) is int}
        values |= constexprs
        types = [(argument.name, argument.type) for argument in self.args + self.grid_args]
        run_time = {name for name, _ in types}
        known = [name for name, type_, _ in expanded(types) if type_[:1] in "iu" and type_ != "u64"]
        known += sorted(
            name for name, value in values.items() if isinstance(value, int) and name not in run_time
        )
        found: list[str] = []
        for path, text in texts.items():
            own = ["cost"] * (path[2] == "defaults" and "cost" not in run_time)
            try:
                parsed = expressions.parse(text, [*known, expressions.NUM_SMS, *own], "")
            except ManifestError as error:
                self.reader.error(path, ascii(error.message.removeprefix(": "))[1:-1], error.help)
                return ""
            if own and "cost" in parsed.names:
                found = [expressions.substituted(parsed.text, {"cost": one}) for one in found]
            else:
                found.append(parsed.text)
        return found[0] if found else ""

    def _divided(
        self, path: KeyPath, values: Mapping[str, Any], taken: Collection[str]
    ) -> tuple[dict[str, Any], dict[str, Value]]:
        """The options that a configuration gives, by their own names, and its meta-parameters; `taken` are keys that
        are neither."""
        for name in taken:
            if self._option(name) is None:
                self.reader.error((*path, name), "is given in args or matrix already")
        chosen: dict[str, Any] = {}
        constexprs: dict[str, Value] = {}
        for name, value in values.items():
            option = self._option(name)
            if option is None:
                constexprs[name] = value
            elif name != option.name and option.name in values:
                self.reader.error((*path, name), f"is another name of {option.name}, which is given as well")
            else:
                chosen[option.name] = value
        return chosen, constexprs

    def _option(self, name: str) -> Option | None:
        """The option of a name, for kernels of this language."""
        option = by_name(name, "variant")
        return option if option and option.language in ("", self.function.language) else None

    def _own(
        self, key: KeyPath, entry: Mapping[str, Any], names: Mapping[str, Collection[str]]
    ) -> Mapping[str, Any]:
        """An entry without the options of other languages, which are noted unless they are constexpr parameters."""
        language = self.function.language
        for name in entry:
            option = by_name(name, "variant")
            if option is None or option.language in ("", language) or name in names["<constexpr>"]:
                continue
            advice = "`block` says the threads of a block" if name == "num_warps" else ""
            what = "CUDA C++" if option.language == CUDA else "Triton's language"
            self.reader.error((*key, name), f"is an option of kernels in {what}", advice)
            entry = {other: value for other, value in entry.items() if other != name}
        return entry

    def _check_needed(self, key: KeyPath, given: Collection[str]) -> None:
        """Notes constexpr parameters without a value."""
        for one in self.function.parameters:
            if one.is_constexpr and not one.has_default and one.name not in given:
                advice = self.advice or "give it in config, or its values in matrix"
                self.reader.error(key, f'constexpr "{one.name}" has no value', advice)


def check_reach(reader: ManifestReader, kernel: Kernel, places: list[KeyPath]) -> None:
    """A configuration is dead if wherever it applies one before it applies without asking for run-time facts, unless it is
    compared by its cost with one of those before; where it is not, the architectures have what its options need.

    Those written out for the values of an axis are one, those for a list of facts are not.
    """
    lines = [(place, config.guards) for place, config in zip(places, kernel.configs)]
    applied: dict[tuple[KeyPath, tuple[Guard, ...]], bool] = {}
    blocker: dict[tuple[KeyPath, tuple[Guard, ...]], KeyPath] = {}
    alike: dict[KeyPath, KeyPath] = {}
    needing = [index for index, config in enumerate(kernel.configs) if config.options.lacking(())]
    reached: dict[int, dict[str, None]] = {index: {} for index in needing}
    for arch in ARCHS:  # All that there are, so that a package for fewer need not drop configurations.
        for point, specialization in itertools.product(points(kernel), kernel.specializations):
            facts = dict(point) | {"arch": arch, "specialize": specialization.name}
            settled, has_cost = None, False
            known: dict[object, int] = {}
            for index, config in enumerate(kernel.configs):
                if not config.when.holds(facts):
                    continue
                line = lines[index]
                is_taken = settled is None or (has_cost and bool(config.cost))
                applied[line] = applied.get(line, False) or is_taken
                if not is_taken:
                    blocker[line] = settled or places[index]
                    continue
                if index in reached:
                    reached[index][arch] = None
                same = known.setdefault(_but_cost(kernel, config), index)
                if same != index and config.cost and places[same] != places[index]:
                    alike[places[index]] = places[same]
                if settled is None:
                    has_cost = has_cost or bool(config.cost)
                    settled = None if config.guards else places[index]
    for line, is_reached in applied.items():
        if not is_reached:
            message = f"is never used: config[{blocker[line][-1]}] applies wherever it does"
            reader.error(line[0], message, "give it a `when`")
    for place, same in alike.items():
        message = f"differs from config[{same[-1]}] in its cost alone, and both apply to the same calls"
        reader.error(place, message, "give them one cost, or facts that are not the same")
    for index, archs in reached.items():
        _check_features(reader, places[index], kernel.configs[index].options, archs)


def _but_cost(kernel: Kernel, config: Config) -> object:
    """What tells the variants of a configuration from those of others that apply at the same point."""
    values = dict(kernel.defaults) | dict(config.constexprs)
    constexprs = frozenset((name, type(value), value) for name, value in values.items())
    return constexprs, config.options, frozenset(config.guards)


def _check_features(
    reader: ManifestReader, place: KeyPath, chosen: CompileOptions, archs: Collection[str]
) -> None:
    """Notes options of a configuration that one of these architectures has no feature for."""
    for option in chosen.lacking(()):
        found = obstacle(reader, option, getattr(chosen, option.name), archs)
        if found:
            message, takes = found
            key = (*place, option.name)
            key = key if key in reader.lines else (*place[:2], "defaults", option.name)
            advice = f"{takes}: say for which by `when = {{ arch = … }}` of a configuration"
            reader.error(key, message, advice)
