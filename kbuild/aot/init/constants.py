"""The constexpr parameters of a kernel: values from autotune, heuristics and wrappers, or guessed."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.init.guesses import (
    BOUNDS,
    TYPES,
    Guess,
    is_block,
    is_flag,
    is_type,
    number_for,
    words_compared,
)
from kbuild.aot.init.launches import Launch, NoExpression
from kbuild.aot.init.uses import Uses
from kbuild.aot.manifest.configs.decorators import Decorations, heuristic_body
from kbuild.aot.manifest.configs.evaluate import Evaluator, NoValue, names_in
from kbuild.aot.manifest.expressions import ExpressionFault, evaluate, parse
from kbuild.aot.manifest.functions.kernel_function import KernelParameter
from kbuild.aot.manifest.kinds import ConstexprKind, Name, dotted_type
from kbuild.errors import ManifestError
from kbuild.options import by_name, options

_TAKEN = ("num_warps", "num_stages", "maxnreg")
_OPTION_NAMES = tuple(option.name for option in options("variant"))


@dataclass
class Constants:
    """What becomes of a kernel's constexpr parameters."""

    values: dict[str, Any] = field(default_factory=dict)
    """Of every configuration: values, expressions, and options such as `num_warps`."""
    axes: dict[str, list[Any]] = field(default_factory=dict)
    bounded: list[str] = field(default_factory=list)
    """Arguments for which configurations need a largest value, since blocks follow from them."""
    warps: str = ""
    """How the wrapper computes `num_warps`, where that is an expression over constants."""
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """Flags that hold where facts of arguments do."""
    guesses: list[Guess] = field(default_factory=list)
    axis_guesses: list[Guess] = field(default_factory=list)
    untranslated: list[str] = field(default_factory=list)

    def configs(self) -> list[dict[str, Any]]:
        """The configurations, the first that applies first."""
        bounds = {name: [f"<= {bound}" for bound in BOUNDS] for name in self.bounded}
        if self.warps and len(bounds) == 1 and not self.facts:
            return [self._bounded_config(self.bounded[0], bound) for bound in BOUNDS]
        found: list[dict[str, Any]] = []
        for chosen in itertools.product((True, False), repeat=len(self.facts)):
            when: dict[str, Any] = {**bounds}
            for name, fact in [
                fact for holds, facts in zip(chosen, self.facts.values()) if holds for fact in facts.items()
            ]:
                when[name] = [f"{bound}, {fact}" for bound in bounds[name]] if name in bounds else fact
            config = {**self.values, **dict(zip(self.facts, chosen))}
            config |= {name: config.pop(name) for name in _TAKEN if name in config}
            found.append(config | ({"when": when} if when else {}))
        return found

    def _bounded_config(self, argument: str, bound: int) -> dict[str, Any]:
        """The configuration for arguments up to a bound, with the warps that the wrapper computes for it."""
        known = {argument: bound}
        for _ in self.values:  # Each round works out what names only what is known.
            for name, value in [*self.values.items(), ("num_warps", self.warps)]:
                with suppress(ManifestError, ExpressionFault):
                    known[name] = (
                        value if isinstance(value, int) else evaluate(parse(str(value), known, ""), known)
                    )
        warps = {
            name: value for name, value in known.items() if name == "num_warps" and is_option(name, value)
        }
        return {**self.values, **warps, "when": {argument: f"<= {bound}"}}


@dataclass
class ConstantsReader:
    """Decides on the constexpr parameters of one kernel."""

    uses: Uses
    decorations: Decorations
    launches: Sequence[Launch]
    evaluator: Evaluator
    integers: Sequence[str]
    """Run-time arguments that are integers."""
    found: Constants = field(default_factory=Constants)

    def read(self) -> Constants:
        """The decisions."""
        self._read_options()
        tuned = self.decorations.configs[0].kwargs if self.decorations.configs else {}
        left: list[KernelParameter] = []
        for parameter in self.uses.kernel.constexprs:
            name = parameter.name
            if name in _OPTION_NAMES and not parameter.has_default:
                continue
            if name in tuned and ConstexprKind().takes(tuned[name]):
                self.found.values[name] = tuned[name]
            elif name in self.decorations.heuristics or not self._from_literals(parameter):
                left.append(parameter)
        left = [one for one in left if not self._from_types(one)]
        left = [one for one in left if not self._from_heuristic(one)]
        left = [one for one in left if not self._from_wrapper(one)]
        blocks = sum(is_block(one.name, self.uses) for one in left if not one.has_default)
        # What follows from constants that are guessed comes after these.
        texts = {one.name: self._expression(one.name) for one in left}
        for parameter in sorted(left, key=lambda one: bool(texts[one.name])):
            name = parameter.name
            if texts[name] and self._take_expression(name, texts[name]):
                continue
            if not parameter.has_default:
                self._guess(name, blocks)
        if self.found.warps and len(self.found.bounded) != 1:
            said = f"left at its default: the wrapper computes {self.found.warps}"
            self.found.guesses.append(Guess("num_warps", said))
        for name in [name for name in self.found.axes if not Name().takes(name)]:
            self.found.values[name] = self.found.axes.pop(name)[0]
            said = f"guessed {_shown(self.found.values[name])}: no axis may have this name"
            self.found.guesses.append(Guess(name, said))
        for name, node in self.decorations.heuristics.items():
            if name not in self.uses.names:
                self.found.untranslated.append(f"{name} of heuristics: {ast.unparse(node)[:80]}")
        return self.found

    def _read_options(self) -> None:
        """`num_warps` and its like, of the first configuration or of the first launch with literals."""
        if any(config.options.get("num_ctas", 1) != 1 for config in self.decorations.configs) or any(
            "num_ctas" in launch.options for launch in self.launches
        ):
            self.found.untranslated.append("num_ctas, which is for sm_90 and later alone")
        if self.decorations.configs:
            given = self.decorations.configs[0].options
            self.found.values.update(
                {name: given[name] for name in _TAKEN if is_option(name, given.get(name))}
            )
            return
        for launch in self.launches:
            for name in ("num_warps", "num_stages"):
                node = launch.options.get(name) or launch.passed.get(name)
                if node is None or name in self.found.values:
                    continue
                try:
                    value = launch.literal(node)
                except NoValue:
                    if name == "num_warps" and (text := _expression(launch, node, name)):
                        self.found.warps = text
                        continue
                    value = self._first_literal(launch, node)
                    text = f"guessed {value}" if value else "left at its default"
                    shown = ast.unparse(launch.resolved(node))[:60]
                    how = "it" if shown == name else shown
                    self.found.guesses.append(Guess(name, f"{text}: the wrapper computes {how}"))
                if is_option(name, value):
                    self.found.values[name] = value

    def _from_literals(self, parameter: KernelParameter) -> bool:
        """Whether all launches pass literals for a parameter."""
        name = parameter.name
        values: list[Any] = []
        for launch in self.launches:
            if name not in launch.passed:
                if not parameter.is_literal:
                    return False
                values.append(parameter.default)
                continue
            try:
                values.append(launch.literal(launch.passed[name]))
            except NoValue:
                return False
        distinct = [*{repr(value): value for value in values}.values()]
        if not distinct or not all(map(ConstexprKind().takes, distinct)):
            return False
        if len(distinct) == 1:
            if not (parameter.is_literal and repr(parameter.default) == repr(distinct[0])):
                self.found.values[name] = distinct[0]
        elif len({type(value) for value in distinct}) == 1:
            self.found.axes[name] = distinct
        else:
            return False
        return True

    def _from_types(self, parameter: KernelParameter) -> bool:
        """Whether a parameter is a type: one that all launches pass, or an axis of those that they may."""
        name = parameter.name
        if name in self.decorations.heuristics or not is_type(name, self.uses):
            return False
        passed = [launch.resolved(launch.passed[name]) for launch in self.launches if name in launch.passed]
        types = [*dict.fromkeys(dotted_type(ast.unparse(node)) for node in passed)]
        if len(types) == 1 and types[0] and not parameter.has_default:
            self.found.values[name] = types[0]
        elif passed or not parameter.has_default:
            self.found.axes[name] = [*types] if types and all(types) else [*TYPES]
            said = (
                "the types that launches pass"
                if types and all(types)
                else "guessed: the caller's choice of a type"
            )
            self.found.axis_guesses.append(Guess(name, said))
        return True

    def _from_heuristic(self, parameter: KernelParameter) -> bool:
        """Whether heuristics give a parameter: by a fact, an expression, or as an axis of both values."""
        name = parameter.name
        node = self.decorations.heuristics.get(name)
        if node is None:
            return False
        body = heuristic_body(node, self.evaluator)
        shown = ast.unparse(body[1] if body else node)[:80]
        if body is None:
            self.found.untranslated.append(f"{name} of heuristics: {shown}")
            return False
        try:
            text = _blank(self.uses, self.evaluator, node).expression(body[1], body[0])
        except NoExpression:
            text = ""
        if text and (fact := self._fact(text)) and len(self.found.facts) < 2:
            self.found.facts[name] = fact
            return True
        if text and not isinstance(body[1], ast.Compare | ast.BoolOp) and self._take_expression(name, text):
            return True
        if isinstance(body[1], ast.Compare | ast.BoolOp | ast.UnaryOp) or is_flag(name, self.uses):
            self.found.axes[name] = [False, True]
            self.found.axis_guesses.append(Guess(name, f"the caller's choice; heuristics computed {shown}"))
            return True
        self.found.untranslated.append(f"{name} of heuristics: {shown}")
        return False

    def _fact(self, text: str) -> dict[str, str]:
        """`N % 64 == 0` as the fact `N = "% 64"`, if its right side is the same number wherever the kernel is
        tuned."""
        tree = ast.parse(text, mode="eval").body
        varying = {name for config in self.decorations.configs[1:] for name in config.kwargs}
        match tree:
            case ast.Compare(
                left=ast.BinOp(left=ast.Name(id=name), op=ast.Mod(), right=size),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=0)],
            ):
                sign = "%"
            case ast.Compare(left=ast.Name(id=name), ops=[operator], comparators=[size]):
                signs = {
                    ast.LtE: "<=",
                    ast.Lt: "<",
                    ast.GtE: ">=",
                    ast.Gt: ">",
                    ast.Eq: "==",
                    ast.NotEq: "!=",
                }
                sign = signs[type(operator)]
            case _:
                return {}
        names = names_in(size)
        if (
            name not in self.integers
            or names & varying
            or any(name in fact for fact in self.found.facts.values())
        ):
            return {}
        try:
            value = self.evaluator.value(size, {n: self.found.values[n] for n in names})
        except (NoValue, KeyError):
            return {}
        return {name: f"{sign} {value}"} if isinstance(value, int) and value > 0 else {}

    def _from_wrapper(self, parameter: KernelParameter) -> bool:
        """Whether the first launch that passes a parameter says what it is."""
        name = parameter.name
        launch = next((one for one in self.launches if name in one.passed), None)
        if launch is None:
            return False
        node = launch.passed[name]
        if (text := self._expression(name)) and self._take_expression(name, text):
            return True
        resolved = launch.resolved(node)
        is_argument = isinstance(resolved, ast.Name) and resolved.id in launch.annotations
        default = launch.defaults.get(resolved.id) if isinstance(resolved, ast.Name) else None
        is_bool = isinstance(default, ast.Constant) and isinstance(default.value, bool)
        if is_argument and isinstance(resolved, ast.Name) and launch.annotations[resolved.id] == "bool":
            is_bool = True
        if is_bool or isinstance(resolved, ast.Compare | ast.BoolOp):
            self.found.axes[name] = [False, True]
            self.found.axis_guesses.append(
                Guess(name, f"the caller's choice; the wrapper passes {ast.unparse(resolved)[:60]}")
            )
            return True
        if words_compared(name, self.uses):
            return False
        value = self._first_literal(launch, resolved)
        if isinstance(value, bool):
            self.found.axes[name] = [False, True]
            self.found.axis_guesses.append(Guess(name, "guessed: the caller's choice"))
            return True
        if value is None or not ConstexprKind().takes(value):
            return False
        self.found.values[name] = value
        self.found.guesses.append(
            Guess(name, f"guessed {_shown(value)}, which is one of the wrapper's values")
        )
        return True

    def _expression(self, name: str) -> str:
        """What the first launch that passes a parameter computes it from."""
        launch = next((one for one in self.launches if name in one.passed), None)
        return _expression(launch, launch.passed[name], name) if launch else ""

    def _first_literal(self, launch: Launch, node: ast.expr) -> Any:
        """A default of the wrapper's parameter, or the first literal that its name is assigned."""
        if not isinstance(node, ast.Name):
            return None
        candidates = [launch.defaults[node.id]] if node.id in launch.defaults else []
        candidates += launch.unsure.get(node.id, [])
        for candidate in candidates:
            try:
                return self.evaluator.value(candidate)
            except NoValue:
                continue
        return None

    def _take_expression(self, name: str, text: str) -> bool:
        """Whether a manifest may compute a parameter so: from integers of calls, and constants that are known."""
        names = names_in(ast.parse(text, mode="eval"))
        names -= {"cdiv", "min", "max", "abs", "next_power_of_2"}
        known = {name for name, value in self.found.values.items() if _is_number(value)}
        arguments = [n for n in self.integers if n in names]
        if (
            not names
            or name in names
            or names - known - {*arguments}
            or len({*self.found.bounded, *arguments}) > 2
        ):
            return False
        if arguments and "next_power_of_2" not in text:
            return (
                False  # A bound of the argument gives a bound of the value, which is right for blocks alone.
            )
        # A plain word would be a value in a manifest.
        self.found.values[name] = self.found.values[text] if text in known else text
        self.found.bounded += [n for n in arguments if n not in self.found.bounded]
        if arguments:
            said = f"up to {BOUNDS[-1]:,}: for larger ones add bounds to `when`"
            self.found.guesses.append(Guess(", ".join(arguments), said))
        return True

    def _guess(self, name: str, blocks: int) -> None:
        words = words_compared(name, self.uses)
        if words:
            self.found.axes[name] = [
                *dict.fromkeys(word for word in ("", *words) if ConstexprKind().takes(word))
            ]
            self.found.axis_guesses.append(Guess(name, "guessed: the words that the kernel compares it with"))
        elif is_flag(name, self.uses):
            self.found.axes[name] = [False, True]
            self.found.axis_guesses.append(Guess(name, "guessed: the caller's choice"))
        else:
            is_a_layout = self.uses.kernel.is_gluon and "layout" in name.lower()
            value = (
                "gl.AutoLayout()"
                if is_a_layout
                else number_for(name, blocks if is_block(name, self.uses) else 0)
            )
            self.found.values[name] = value
            self.found.guesses.append(Guess(name, f"guessed {value}"))


def _expression(launch: Launch, node: ast.expr, parameter: str) -> str:
    """What a launch passes, in the manifest's language; empty where that has no words for it."""
    try:
        return launch.expression(node, parameter=parameter)
    except NoExpression:
        return ""


def _blank(uses: Uses, evaluator: Evaluator, node: ast.expr) -> Launch:
    """A launch in which only the arguments of heuristics have names."""
    return Launch(uses.kernel, node, {}, {}, {}, {}, {}, {}, evaluator)


def _is_number(value: object) -> bool:
    """Whether a value is an integer, or an expression for one."""
    return isinstance(value, int) or (isinstance(value, str) and not ConstexprKind().takes(value))


def is_option(name: str, value: object) -> bool:
    """Whether an option of the compiler may have a value."""
    option = by_name(name, "variant")
    return option is not None and value is not None and option.is_legal(value)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def candidates_of(
    decorations: Decorations, constants: Constants, defaults: Mapping[str, Any]
) -> tuple[dict[str, list[Any]], str]:
    """What autotune's configurations try, as lists that multiply, and the condition that leaves the combinations
    among them; empty where it cannot be written."""
    rows: list[dict[str, Any]] = []
    names = {name for config in decorations.configs for name in config.kwargs if name in constants.values}
    for config in decorations.configs:
        row = {name: config.kwargs.get(name, defaults.get(name)) for name in sorted(names)}
        for name, default in (("num_warps", 4), ("num_stages", 3), ("maxnreg", None)):
            value = config.options.get(name)
            row["max_registers" if name == "maxnreg" else name] = value if is_option(name, value) else default
        if all(value is None or ConstexprKind().takes(value) for value in row.values()) and row not in rows:
            rows.append(row)
    lists = {name: [*dict.fromkeys(row[name] for row in rows)] for name in (rows[0] if rows else {})}
    lists = {name: values for name, values in lists.items() if len(values) > 1 and None not in values}
    kept = [*{tuple(row[name] for name in lists) for row in rows}]
    if math.prod(map(len, lists.values())) == len(kept) or not all(
        isinstance(v, int) for values in lists.values() for v in values
    ):
        return lists, ""
    ordered = sorted(kept, key=lambda row: [lists[name].index(value) for name, value in zip(lists, row)])
    return lists, " or ".join(
        " and ".join(_equal(name, value) for name, value in zip(lists, row)) for row in ordered
    )


def _equal(name: str, value: Any) -> str:
    return (name if value else f"not {name}") if isinstance(value, bool) else f"{name} == {value}"
