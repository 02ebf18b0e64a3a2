"""From a manifest to its variants: pure, ordered, and every exclusion with its reason.

Within one kernel and architecture the configurations stand as written, and within one the specialisations;
the order in which dispatch tries them is that of `tables.py`.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from kbuild.aot.manifest.descriptors import hint_of, resolved
from kbuild.aot.manifest.expressions import NUM_SMS, substituted
from kbuild.aot.manifest.launches.shape import with_launch_shape
from kbuild.aot.manifest.model import (
    GUARD_OPERATORS,
    Argument,
    Config,
    Guard,
    Kernel,
    Manifest,
    Specialization,
    Value,
)
from kbuild.options import DEFAULTS, CompileOptions
from kbuild.targets import find_target

_GUARD = re.compile(
    rf"(\w+(?::\d+)?(?:\*\w+(?::\d+)?)*)({'|'.join(re.escape(operator) for operator in GUARD_OPERATORS)})"
    rf"(-?\d+|(?:\d+\*)?{NUM_SMS}(?://\d+)?)"
)
_AXIS = re.compile(r"\{(\w+)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.,=+-]")
MANY_VARIANTS = 500
"""Variants of one kernel; of more a build says what multiplies to them."""
_LONGEST_FILE_NAME = 180
"""Characters; file systems allow 255 bytes, and suffixes come on top."""


@dataclass(frozen=True)
class Variant:
    """One cubin, fully specified.

    `str()` is the whole variant as text, `parse` reads it back; `name` is for people and `file_name` for
    files.
    """

    kernel: str
    """Name of the kernel in the manifest."""
    arch: str
    """Architecture, such as `sm_90`."""
    matrix: tuple[tuple[str, Value], ...]
    """Values of the matrix axes, in the manifest's order."""
    signature: tuple[tuple[str, str], ...]
    """Run-time arguments in the kernel's order: name, and type with hint, such as `*fp16:16` or `i32`."""
    constexprs: tuple[tuple[str, Value], ...]
    """Meta-parameters of the configuration and defaults of the source; axes that are parameters stand in
    `matrix`."""
    options: CompileOptions = DEFAULTS
    """How it is compiled."""
    guards: tuple[Guard, ...] = ()
    """Run-time facts that have to hold where dispatch takes this variant; the cubin does not depend on them."""
    cost: str = ""
    """What a call costs with it, as an expression over run-time integers: of several with a cost dispatch takes the cheapest.
    Neither the cubin nor the names of files depend on it."""

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        sections = (
            self.kernel,
            self.arch,
            ",".join(f"{name}={_value_text(value)}" for name, value in self.matrix),
            ",".join(f"{name}={type_}" for name, type_ in self.signature),
            ",".join(f"{name}={_value_text(value)}" for name, value in self.constexprs),
            _tags(self.options),
            ",".join(str(guard) for guard in self.guards) + (f";{self.cost}" if self.cost else ""),
        )
        return "/".join(sections)

    @staticmethod
    def parse(text: str) -> Variant:
        """The variant whose `str` is this text; ValueError if there is none."""
        sections = text.split("/", 6)  # A guard and a cost may have `//`.
        if len(sections) != 7:
            raise ValueError(f"a variant has 7 parts with / between them, not {len(sections)}: {text!r}")
        kernel, arch, matrix, signature, constexprs, tags, facts = sections
        guards, _, cost = facts.partition(";")
        return Variant(
            kernel=kernel,
            arch=arch,
            matrix=tuple((name, _parse_value(value)) for name, value in _pairs(matrix)),
            signature=tuple(_pairs(signature)),
            constexprs=tuple((name, _parse_value(value)) for name, value in _pairs(constexprs)),
            options=CompileOptions.parse(tags),
            guards=tuple(parse_guard(guard) for guard in guards.split(",") if guard),
            cost=cost,
        )

    @property
    def values(self) -> dict[str, Value]:
        """All compile-time values by name: axes, meta-parameters and defaults."""
        return dict(self.matrix) | dict(self.constexprs)

    @cached_property
    def file_name(self) -> str:
        """A readable name made of `[A-Za-z0-9_.,=+-]`, unlike that of any other variant of its kernel and
        arch.

        Argument types follow from the matrix, so their specialisations alone are named, where they are not
        the usual ones: `n=d16` divisible by 16, `n=d8` by 8, `n=d4` by 4, `n=one` equal to one, `x=any` a pointer of any
        alignment.
        """
        words = [str(value) for _, value in self.matrix if isinstance(value, str)]
        axes = [f"{name}={_short(value)}" for name, value in self.matrix if not isinstance(value, str)]
        hinted = [f"{name}={word}" for name, type_ in self.signature if (word := _hint_word(type_))]
        meta = [f"{name}={_short(value)}" for name, value in self.constexprs if value is not None]
        facts = [
            f"{_factors_word(guard)}-{_OPERATOR_WORDS[guard.operator]}-{_bound_word(guard)}"
            for guard in self.guards
        ]
        parts = ["+".join(words), ",".join(axes), ",".join(hinted), ",".join(meta), ",".join(facts)]
        name = ".".join(_UNSAFE.sub("_", part) for part in parts if part)
        if len(name) > _LONGEST_FILE_NAME:
            whole = str(replace(self, cost=""))
            name = f"{name[:_LONGEST_FILE_NAME]}.{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
        return f"{name}.{_tags(self.options)}".lstrip(".")

    def portable(self) -> Variant:
        """The same for PTX that newer GPUs run."""
        features = find_target(self.arch).portable().features
        return replace(self, options=replace(self.options.on(features), portable=True))

    @property
    def name(self) -> str:
        """Kernel, architecture and values: the variant's name in messages."""
        return f"{self.kernel}.{self.arch}.{self.file_name}"


@lru_cache(maxsize=4096)
def _tags(options: CompileOptions) -> str:
    return options.tags


@dataclass(frozen=True)
class Excluded:
    """A point of a matrix for which nothing is built."""

    kernel: str
    """Name of the kernel."""
    arch: str
    """Architecture."""
    matrix: tuple[tuple[str, Value], ...]
    """Values of the axes."""
    reason: str
    """Why, in words for the author of the manifest."""
    is_meant: bool = True
    """Whether the manifest excludes it, rather than giving no configuration for it."""


@dataclass(frozen=True)
class Expansion:
    """All variants of a manifest."""

    variants: tuple[Variant, ...]
    """Variants in order of kernel, architecture, matrix, configuration, specialisation."""
    excluded: tuple[Excluded, ...]
    """Points left out."""

    def requested(self, options: CompileOptions) -> Expansion:
        """The same variants with the options of a request that change the code."""
        asked = options.requested()
        if not asked:
            return self
        return replace(
            self, variants=tuple(replace(each, options=each.options.changed(asked)) for each in self.variants)
        )

    @cached_property
    def kernels_left_out(self) -> tuple[str, ...]:
        """Kernels that are excluded everywhere, on the architectures asked for."""
        built = {variant.kernel for variant in self.variants}
        return tuple(dict.fromkeys(point.kernel for point in self.excluded if point.kernel not in built))


def expand(manifest: Manifest, archs: Iterable[str] = (), kernels: Iterable[str] = ()) -> Expansion:
    """Every variant of the manifest, or of the named architectures and kernels alone."""
    wanted_archs, wanted_kernels = tuple(archs), tuple(kernels)
    variants: list[Variant] = []
    excluded: list[Excluded] = []
    for kernel in manifest.kernels:
        if wanted_kernels and kernel.name not in wanted_kernels:
            continue
        for arch in manifest.package.archs:
            if wanted_archs and arch not in wanted_archs:
                continue
            for found in _expand_kernel(kernel, arch):
                (variants if isinstance(found, Variant) else excluded).append(found)  # type: ignore[arg-type]
    # Where options have no effect, as clusters on some architectures, several may differ in their costs alone.
    each_once: dict[Variant, Variant] = {}
    for variant in variants:
        each_once.setdefault(replace(variant, cost="") if variant.cost else variant, variant)
    return Expansion(tuple(each_once.values()), tuple(excluded))


def notes_on_sources(manifest: Manifest, kernels: Collection[str] = ()) -> Iterator[str]:
    """What is used of the decorators of kernels and what is not, each line once for all of which it holds."""
    said: dict[str, list[str]] = {}
    for kernel in manifest.kernels:
        if not kernels or kernel.name in kernels:
            for note in kernel.notes:
                said.setdefault(note, []).append(f'"{kernel.name}"')
    for note, names in said.items():
        yield f"kernel{'s' * (len(names) > 1)} {', '.join(names)}: {note}"


def notes_on_size(manifest: Manifest, expansion: Expansion) -> Iterator[str]:
    """For each kernel with very many variants a line that says how many, of what, and how to have fewer."""
    archs: dict[str, list[str]] = {}
    for variant in expansion.variants:
        archs.setdefault(variant.kernel, []).append(variant.arch)
    for kernel in manifest.kernels:
        built = archs.get(kernel.name, ())
        if len(built) <= MANY_VARIANTS:
            continue
        if kernel.listed:
            shown = f"{len(set(built))} archs × the rows of {kernel.variants}"
            yield f'kernel "{kernel.name}": {len(built):,} variants, of {shown}; delete rows that nobody calls'
            continue
        hinted = [argument for argument in kernel.args if len(argument.hints) > 1]
        factors = {"archs": len(set(built))} | {axis.name: len(axis.values) for axis in kernel.matrix}
        factors |= {"specialize": len(kernel.specializations)}
        factors |= {f"hints of {argument.name}": len(argument.hints) for argument in hinted}
        factors |= {"config": len(kernel.configs)}
        shown = " × ".join(f"{count} {name}" for name, count in factors.items() if count > 1)
        advice = "put together in [[kernel.specialize]] what is aligned together, " if hinted else ""
        yield (
            f'kernel "{kernel.name}": {len(built):,} variants, of {shown}; shorten a list, {advice}'
            "or leave out what nobody calls by [[kernel.exclude]]"
        )


def points(kernel: Kernel) -> Iterator[tuple[tuple[str, Value], ...]]:
    """Every combination of the kernel's axes, the last axis fastest, or those that it lists."""
    if kernel.listed:
        yield from kernel.listed
        return
    names = [axis.name for axis in kernel.matrix]
    for values in itertools.product(*(axis.values for axis in kernel.matrix)):
        yield tuple(zip(names, values))


def survey(manifest: Manifest) -> tuple[dict[str, int], tuple[Excluded, ...]]:
    """How many variants each kernel has, equal ones counted each, and the points left out, as `expand` finds them, but
    without making the variants."""
    counts = {kernel.name: 0 for kernel in manifest.kernels}
    excluded: list[Excluded] = []
    for kernel in manifest.kernels:
        hints = {one: math.prod(map(len, _choices(kernel, one))) for one in kernel.specializations}
        for arch in manifest.package.archs:
            for _, found in _chosen_points(kernel, arch):
                if isinstance(found, Excluded):
                    excluded.append(found)
                else:
                    counts[kernel.name] += sum(hints[one] for _, chosen in found for one in chosen)
    return counts, tuple(excluded)


def _expand_kernel(kernel: Kernel, arch: str) -> Iterator[Variant | Excluded]:
    for point, found in _chosen_points(kernel, arch):
        if isinstance(found, Excluded):
            yield found
            continue
        for config, specializations in found:
            yield from expand_config(kernel, arch, point, config, specializations)


def _chosen_points(
    kernel: Kernel, arch: str
) -> Iterator[tuple[tuple[tuple[str, Value], ...], Excluded | list[tuple[Config, list[Specialization]]]]]:
    """The points of a kernel, each with the configurations and specialisations to build, or why there are none."""
    pinned = _by_point(kernel) if kernel.listed else {}
    for point in points(kernel):
        facts = dict(point) | {"arch": arch}
        exclude = next((condition for condition in kernel.excludes if condition.holds(facts)), None)
        if exclude is not None:
            yield point, Excluded(kernel.name, arch, point, f"excluded by {{ {exclude} }}")
            continue
        applying = list(_applying(kernel, facts, pinned.get(point, ()) if kernel.listed else kernel.configs))
        yield point, applying or Excluded(kernel.name, arch, point, "no config applies", is_meant=False)


def _by_point(kernel: Kernel) -> dict[tuple[tuple[str, Value], ...], list[Config]]:
    """The configurations of a list by the point that each is for, so that thousands are not tried at every point."""
    found: dict[tuple[tuple[str, Value], ...], list[Config]] = {}
    for config in kernel.configs:
        chosen = dict(config.when.choices)
        found.setdefault(tuple((axis.name, chosen[axis.name][0]) for axis in kernel.matrix), []).append(
            config
        )
    return found


def _applying(
    kernel: Kernel, facts: dict[str, Value], configs: Iterable[Config]
) -> Iterator[tuple[Config, list[Specialization]]]:
    """The configurations of a point in order, each with the specialisations it is for."""
    before = [_Before() for _ in kernel.specializations]
    for config in configs:
        chosen = []
        for one, earlier in zip(kernel.specializations, before):
            if config.when.holds(facts | {"specialize": one.name}) and earlier.lets_through(config):
                chosen.append(one)
        if chosen:
            yield config, chosen


class _Before:
    """The configurations that dispatch tries before another one, for the same point and specialisation."""

    def __init__(self) -> None:
        self._guards: list[frozenset[Guard]] = []
        self._ending: list[frozenset[Guard]] = []
        self._has_cost = False

    def lets_through(self, config: Config) -> bool:
        """Whether some call may take a configuration, which is then one of those before the next.

        Dispatch never gets past one that asks for the same facts or for fewer; but where the first that applies has a cost,
        it looks at all others that have one.
        """
        guards = frozenset(config.guards)
        if any(known <= guards for known in (self._ending if config.cost else self._guards)):
            return False
        self._guards.append(guards)
        self._has_cost = self._has_cost or bool(config.cost)
        if not self._has_cost:
            self._ending.append(guards)
        return True


def expand_config(
    kernel: Kernel,
    arch: str,
    point: tuple[tuple[str, Value], ...],
    config: Config,
    specializations: list[Specialization],
) -> Iterator[Variant]:
    given = {name for name, _ in (*point, *config.constexprs)}
    constexprs = config.constexprs + tuple(
        (name, value) for name, value in kernel.defaults if name not in given
    )
    values = dict(point + constexprs)
    options = with_launch_shape(kernel, _options_on(config.options, arch), values)
    cost = _cost_with(kernel, config.cost, values, options) if config.cost else ""
    types: list[dict[str, tuple[str, str]]] = [{} for _ in kernel.args]
    for hints in _hint_choices(kernel, specializations):
        signature = []
        for argument, known, hint in zip(kernel.args, types, hints):
            if hint not in known:
                known[hint] = argument.name, argument_type(argument, values, hint)
            signature.append(known[hint])
        yield Variant(kernel.name, arch, point, tuple(signature), constexprs, options, config.guards, cost)


@lru_cache(maxsize=4096)
def _options_on(options: CompileOptions, arch: str) -> CompileOptions:
    """Options for an architecture."""
    return options.on(find_target(arch).features)


def _cost_with(kernel: Kernel, text: str, values: dict[str, Value], options: CompileOptions) -> str:
    """The expression of a cost with the numbers of a variant for its compile-time values and options."""
    given = {argument.name for argument in kernel.args + kernel.grid_args}
    known = {**options.values("variant", kernel.language), **values}
    numbers = {
        name: int(value) for name, value in known.items() if isinstance(value, int) and name not in given
    }
    return substituted(text, numbers)


def _hint_choices(kernel: Kernel, specializations: list[Specialization]) -> Iterator[tuple[str, ...]]:
    """The hints of all arguments, for every variant of one configuration."""
    for specialization in specializations:
        yield from itertools.product(*_choices(kernel, specialization))


def _choices(kernel: Kernel, specialization: Specialization) -> list[tuple[str, ...]]:
    """The hints that each argument may have."""
    pinned = dict(specialization.hints)
    return [
        (pinned[argument.name],) if argument.name in pinned else argument.hints for argument in kernel.args
    ]


def argument_type(argument: Argument, point: dict[str, Value], hint: str = "") -> str:
    """The argument's type with matrix values put in, and its hint: `*{dtype}` and `16` give `*fp16:16`."""
    text = argument.type
    if "{" in text:
        text = _AXIS.sub(lambda match: str(point[match[1]]), text)
    if argument.is_descriptor:
        return resolved(text, point)
    return f"{text}:{hint}" if hint else text


_OPERATOR_WORDS = {
    "<=": "le",
    ">=": "ge",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    ">": "gt",
    "%": "mod",
    "!%": "nomod",
}


def _hint_word(type_: str) -> str:
    """The specialisation of an argument in a file name; empty for the usual one."""
    hint = hint_of(type_)
    if type_.startswith("*"):
        return {"4": "d4", "8": "d8", "16": ""}.get(hint, "any")
    return {"": "", "1": "one"}.get(hint, f"d{hint}")


def _value_text(value: Value) -> str:
    return value if isinstance(value, str) else repr(value)


def _short(value: Value) -> str:
    if isinstance(value, str) and value.startswith("gl."):  # The numbers of a layout say which it is.
        return re.sub(r"\w+=", "", value.removeprefix("gl."))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _factors_word(guard: Guard) -> str:
    return "+".join(f"{name}by{size}" if size else name for name, size in guard.factors)


def _bound_word(guard: Guard) -> str:
    return str(guard.value).replace("*", "x").replace("//", "by")


def _parse_value(text: str) -> Value:
    if text.isdecimal() and text.isascii() and (text[0] != "0" or text == "0"):
        return int(text)  # As nearly all are, at a tenth of the time.
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value


def parse_guard(text: str) -> Guard:
    match = _GUARD.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a fact such as M<=64, found {text!r}")
    return Guard(match[1], match[2], match[3] if NUM_SMS in match[3] else int(match[3]))


def _items(text: str) -> list[str]:
    """The parts between commas outside of brackets, which layouts have."""
    items, depth = [""] if text else [], 0
    for character in text:
        depth += (character in "([<") - (character in ")]>")
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    return items


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for item in _items(text):
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"expected name=value, found {item!r}")
        yield name, value
