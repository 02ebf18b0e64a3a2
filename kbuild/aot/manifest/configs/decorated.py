"""Configurations that `@triton.autotune` and `@triton.heuristics` give a kernel whose manifest gives none.

@triton.autotune([Config({"BLOCK": 64}), Config({"BLOCK": 128})], key=["N"])
@triton.heuristics({"EVEN": lambda args: args["N"] % args["BLOCK"] == 0})

config = [{ BLOCK = 64, EVEN = true, when = { N = "% 64" } }, { BLOCK = 64, EVEN = false }]

The first configuration that can be built is used, since there is no tuning at run time; `kbuild tune` times all.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.aot.manifest.configs.decorators import Decorations, read_decorations
from kbuild.aot.manifest.configs.evaluate import Evaluator, NoValue, TritonConfig, module_evaluator
from kbuild.aot.manifest.configs.features import obstacle
from kbuild.aot.manifest.configs.heuristics import Facts, RunTimeChoice, names_of_arguments, value_of
from kbuild.aot.manifest.functions.kernel_function import KernelFunction
from kbuild.aot.manifest.kinds import ConstexprKind
from kbuild.aot.manifest.model import Argument, Axis, Value, source_path
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader
from kbuild.aot.syntax import module_functions, syntax_tree
from kbuild.options import DEFAULTS, by_name, options

Entry = Mapping[str, Any]
"""A configuration as a manifest writes it."""

_MOST_CHOICES = 3
"""Heuristics whose values follow from facts: each doubles the configurations."""
_AUTOTUNE, _HEURISTICS = "@triton.autotune", "@triton.heuristics"


@dataclass(frozen=True)
class DecoratedConfigs:
    """What the decorators of a kernel say."""

    rows: tuple[tuple[Entry, ...], ...] = ()
    """The configurations of autotune that can be built, each as the entries that heuristics make of it, the first
    that applies first."""
    zeros: tuple[str, ...] = ()
    """Arguments of `reset_to_zero`."""
    restore: tuple[str, ...] = ()
    """Arguments of `restore_value`."""
    notes: tuple[str, ...] = ()
    """What of it is used, and what is not, for the author to know."""
    computed: tuple[str, ...] = ()
    """What heuristics compute from the rest of a configuration."""
    advice: str = ""
    """Why a constexpr parameter may have no value."""


@dataclass(frozen=True)
class DecoratedKernel:
    """A kernel with decorators, and what its manifest says of it."""

    reader: ManifestReader
    path: KeyPath
    """Of its table."""
    source: str
    """Its file, as the manifest names it."""
    name: str
    function: KernelFunction
    args: tuple[Argument, ...]
    matrix: tuple[Axis, ...]
    defaults: Entry
    """Those of its configurations."""
    is_tuned: bool
    """Whether the manifest says for which calls to tune."""

    def ignored(self) -> DecoratedConfigs:
        """What is said where the manifest has configurations of its own."""
        given = " and ".join(self.function.decorators)
        return DecoratedConfigs(notes=(f"config is given, so {given} of its source is not read",))

    def read(self) -> DecoratedConfigs:
        """What the decorators say; heuristics that a manifest cannot say are noted as mistakes."""
        tree = syntax_tree(source_path(self.source, self.reader.root))
        evaluator = module_evaluator(tree, {self.name})
        decorations = read_decorations(module_functions(tree)[self.name], evaluator)
        rows, obstacles = self._rows(decorations)
        wanted = {name: one for name, one in decorations.heuristics.items() if self._is_wanted(name)}
        first, *others = rows or [{}]
        written = [tuple(self._entries(first, wanted, evaluator))]
        written += [tuple(self._entries(row, wanted, evaluator, is_tried=True)) for row in others]
        pointers = [argument.name for argument in self.args if argument.is_pointer]
        return DecoratedConfigs(
            rows=tuple(written),
            zeros=tuple(name for name in decorations.zeroed if name in pointers),
            restore=tuple(name for name in decorations.restored if name in pointers),
            notes=tuple(self._notes(decorations, written, obstacles, wanted)),
            computed=tuple(wanted),
            advice=_advice(decorations, rows, obstacles),
        )

    def _is_wanted(self, name: str) -> bool:
        """Whether the manifest leaves it to heuristics what the value of a parameter or option is."""
        taken = {*self.defaults, *(axis.name for axis in self.matrix), *(one.name for one in self.args)}
        known = {one.name for one in self.function.parameters} | {one.name for one in options("variant")}
        return name in known - taken

    def _rows(self, decorations: Decorations) -> tuple[list[dict[str, Any]], list[str]]:
        """The configurations that can be built, each once, and why others cannot."""
        rows: list[dict[str, Any]] = []
        obstacles: list[str] = []
        for config in decorations.configs:
            try:
                row = self._row(config)
            except NoValue as obstacle:
                obstacles.append(str(obstacle))
                continue
            if row not in rows:
                rows.append(row)
        return rows, obstacles

    def _row(self, config: TritonConfig) -> dict[str, Any]:
        """One configuration; NoValue where kbuild cannot build it."""
        constexprs = {one.name for one in self.function.parameters if one.is_constexpr}
        axes = {axis.name for axis in self.matrix}
        row: dict[str, Any] = {}
        for name, value in config.kwargs.items():
            option = by_name(name, "variant")
            if name in axes:
                continue  # The caller's choice.
            if name not in constexprs and option is None:
                raise NoValue(f"the kernel has no constexpr {name}")
            if not (option.is_legal(value) if option else ConstexprKind().takes(value)):
                raise NoValue(f"{name} = {value!r}")
            row[name] = value
        for name, value in config.options.items():
            option = by_name("max_registers" if name == "maxnreg" else name, "variant")
            if option is None:
                if value not in (None, False, 1) or name == "pre_hook":
                    raise NoValue(f"{name} = {value!r}" if value else name)
            elif value is not None:
                if not option.is_legal(value):
                    raise NoValue(f"{name} = {value!r}")
                if found := obstacle(self.reader, option, value):
                    raise NoValue(f"{name} {found[0]}")
                if value != option.default or option.is_shown or option.name in self.defaults:
                    row[option.name] = value
        return row

    def _entries(
        self,
        row: dict[str, Any],
        heuristics: Mapping[str, ast.expr],
        evaluator: Evaluator,
        is_tried: bool = False,
    ) -> Iterator[Entry]:
        """A configuration with the values of heuristics, for each value of the axes that these look at; with all
        their facts where `kbuild tune` may put one of these entries in front of others."""
        named = set[str]().union(*(names_of_arguments(one, evaluator) for one in heuristics.values()))
        axes = [axis for axis in self.matrix if axis.name in named and axis.is_parameter]
        for values in itertools.product(*(axis.values for axis in axes)):
            point = dict(zip((axis.name for axis in axes), values))
            known = {**self._constants(), **row, **point}
            chosen: dict[str, Value] = {}
            choices: dict[str, RunTimeChoice] = {}
            for name, node in heuristics.items():
                found = self._value(name, node, evaluator, known)
                if isinstance(found, RunTimeChoice):
                    choices[name] = found
                else:
                    chosen[name] = known[name] = found
            if len(choices) > _MOST_CHOICES:
                text = f"{', '.join(choices)} of {_HEURISTICS} depend on run-time arguments"
                self._mistake(text, f"give all but {_MOST_CHOICES} of them in matrix or config")
                choices = {}
            for when, picked in _cases(choices, is_tried):
                facts = {**point, **when}
                yield {**row, **chosen, **picked} | ({"when": facts} if facts else {})

    def _constants(self) -> dict[str, Value]:
        """What is known of constexpr parameters and options before a configuration says more."""
        found: dict[str, Value] = {one.name: getattr(DEFAULTS, one.name) for one in options("variant")}
        found |= {one.name: one.default for one in self.function.parameters if one.is_literal}
        found |= {name: value for name, value in self.defaults.items() if ConstexprKind().takes(value)}
        taken = {*(axis.name for axis in self.matrix), *(one.name for one in self.args)}
        return {name: value for name, value in found.items() if name not in taken}

    def _value(
        self, name: str, node: ast.expr, evaluator: Evaluator, known: Mapping[str, Value]
    ) -> Value | RunTimeChoice:
        """What a heuristic gives; where it cannot be said, a mistake is noted."""
        integers = [one.name for one in self.args if one.type[:1] in "iu" and one.type != "i1"]
        option = by_name(name, "variant")
        try:
            found = value_of(node, evaluator, known, integers)
            values = (found.holds, found.otherwise) if isinstance(found, RunTimeChoice) else (found,)
            for value in values:
                if not (option.is_legal(value) if option else ConstexprKind().takes(value)):
                    raise NoValue(f"it is {value!r}")
        except NoValue as reason:
            body = node.body if isinstance(node, ast.Lambda) else node
            is_flag = isinstance(body, ast.Compare | ast.BoolOp | ast.UnaryOp) or "is_" in ast.unparse(body)
            values = "false, true" if is_flag else "…"
            help = f"callers choose it by `matrix = {{ {name} = [{values}] }}`, or a configuration of your own gives it"
            help = f"give {name} in `defaults`, or write `config`" if option else help
            self._mistake(f"{name} of {_HEURISTICS} cannot be used: {reason}", help, node.lineno)
            return option.default if option else False
        return found

    def _mistake(self, message: str, help: str, line: int = 0) -> None:
        place = f"{self.source}:{line}: " if line else ""
        self.reader.error((*self.path, "source"), f"{place}{message}", help)

    def _notes(
        self,
        decorations: Decorations,
        written: Collection[tuple[Entry, ...]],
        obstacles: Collection[str],
        heuristics: Collection[str],
    ) -> Iterator[str]:
        """What is used, for the author."""
        count = len(decorations.configs)
        if count and len(obstacles) < count:
            entry = next(iter(written))[0]
            values = [
                f"{name} = {_shown(value)}"
                for name, value in entry.items()
                if name not in ("when", *heuristics)
            ]
            what = f"1 of the {count} configurations" if count > 1 else "the configuration"
            said = [f"{what} of {_AUTOTUNE} is used: {', '.join(values)}"]
            if obstacles:
                said.append(f"{len(obstacles)} cannot be built, the first for {next(iter(obstacles))}")
            if unread := [
                one.partition(" of ")[0] for one in decorations.untranslated if " of autotune" in one
            ]:
                said.append(f"{', '.join(unread)} is not read")
            if len(written) > 1:
                table = "" if self.is_tuned else "with a bucket of calls in [kernel.tune], "
                said.append(f"{table}kbuild tune times them all")
            yield "; ".join(said)
        elif decorations.unread:
            yield f"the configurations of {_AUTOTUNE} are not used: {decorations.unread}"
        if heuristics:
            yield f"{', '.join(heuristics)} as {_HEURISTICS} computes {'it' if len(heuristics) == 1 else 'them'}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _advice(decorations: Decorations, rows: Collection[Any], obstacles: Collection[str]) -> str:
    """Why no configuration of autotune gives a parameter its value."""
    if decorations.unread:
        return f"{_AUTOTUNE} cannot be read, {decorations.unread}: give it in config, or its values in matrix"
    if obstacles and not rows:
        first = next(iter(obstacles))
        return f"none of the configurations of {_AUTOTUNE} can be built ({first}): give it in config"
    return ""


def _cases(
    choices: Mapping[str, RunTimeChoice], is_complete: bool
) -> Iterator[tuple[Facts, dict[str, Value]]]:
    """The facts and values of every combination, in the order in which dispatch has to ask: where a fact is not
    asked for, one before that asks for it did not apply, unless the facts have to be complete."""
    for picked in itertools.product((True, False), repeat=len(choices)):
        asked = [
            one.cases if is_held else one.others
            for one, is_held in zip(choices.values(), picked)
            if is_held or is_complete
        ]
        values = {
            name: one.holds if is_held else one.otherwise
            for (name, one), is_held in zip(choices.items(), picked)
        }
        for cases in itertools.product(*asked):
            when: dict[str, str] = {}
            for case in cases:
                for name, fact in case.items():
                    when[name] = f"{when[name]}, {fact}" if when.get(name, fact) != fact else fact
            yield when, values
