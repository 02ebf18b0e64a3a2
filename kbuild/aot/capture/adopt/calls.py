"""The calls that a capture has of one kernel, in the terms of a manifest, and grouped by shape.

Variants of one kernel of a package have the same run-time arguments, and values of one type on each axis.  So calls that
give None for a pointer make a kernel of their own, and so do those with True where others have a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.capture.records import CapturedKernel, CapturedVariant
from kbuild.aot.manifest.kinds import Name
from kbuild.aot.manifest.model import DTYPES, TYPE_WORDS, Value
from kbuild.aot.manifest.schema import DESCRIPTOR
from kbuild.aot.manifest.schema_values import VALUE
from kbuild.options import by_name

_TYPE = re.compile(r"(\*?)k?([a-z][a-z0-9]*)(?::(16|1))?")
_WORDS = {"u1": "i1", "f16": "fp16", "f32": "fp32", "f64": "fp64"}
IGNORED = {
    "cluster_dims": {"tuple": [1, 1, 1]},
    "launch_cooperative_grid": False,
    "warp_size": 32,
    "sanitize_overflow": False,
    # Of all configurations of Triton 3.2.
    "num_buffers_warp_spec": 0,
    "num_consumer_groups": 0,
    "reg_dec_producer": 0,
    "reg_inc_consumer": 0,
}
"""Options of Triton's that a manifest does not have, with the values that mean nothing."""


class Unsupported(Exception):
    """A call that no manifest can have; the text says why."""


@dataclass(frozen=True)
class Leaf:
    """A run-time argument of a call: a parameter, or an element of one that is a tuple."""

    name: str
    """`strides_0` for an element."""
    pointer: str
    """`*` or nothing."""
    type: str
    """The element type; of a tensor descriptor the whole type."""
    hint: str
    parameter: str
    """The parameter's own name."""

    @property
    def kind(self) -> str:
        """What all calls of a kernel have in common of it."""
        if "[" in self.type:
            return self.type
        is_float = not self.pointer and self.type[:1] in "fb"
        return self.pointer or ("float" if is_float else "integer")


@dataclass
class Call:
    """One specialisation that was asked for."""

    leaves: tuple[Leaf, ...]
    constexprs: dict[str, Value]
    """Compile-time values by parameter, those of arguments that are None among them, and of parameters that have the name of an
    option."""
    options: dict[str, Any]
    tuned: frozenset[str]
    """Names whose values a tuner chose."""
    keys: list[dict[str, Any]]
    """What the tuner chose it by."""
    count: int
    launches: list[dict[str, Any]]
    place: str
    """The file and line of the capture."""

    def shape(self, parameters: Iterable[str]) -> tuple[object, ...]:
        """What calls of one kernel of a package have in common."""
        kinds = tuple((leaf.name, leaf.kind) for leaf in self.leaves)
        types = tuple(
            (
                name,
                None
                if name in self.tuned and self.constexprs[name] is not None
                else type(self.constexprs[name]),
            )
            for name in parameters
            if name in self.constexprs
        )
        return kinds, types, bool(self.tuned)


@dataclass
class Calls:
    """Calls of one shape."""

    kernel: CapturedKernel
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def count(self) -> int:
        """Launches."""
        return sum(call.count for call in self.calls)

    @property
    def absent(self) -> tuple[str, ...]:
        """Parameters that are None in all of them."""
        return tuple(name for name, value in self.calls[0].constexprs.items() if value is None)


def grouped_calls(
    kernel: CapturedKernel,
    variants: Iterable[CapturedVariant],
    places: Mapping[str, str],
    left_out: list[str],
) -> list[Calls]:
    """The calls of a kernel, those that are launched most before others; what cannot be built is noted in `left_out`."""
    found: dict[tuple[object, ...], Calls] = {}
    reasons: dict[str, int] = {}
    for variant in variants:
        try:
            call = _call(kernel, variant, places.get(variant.id, ""))
        except Unsupported as why:
            reasons[str(why)] = reasons.get(str(why), 0) + 1
            continue
        shape = call.shape(name for name, _ in kernel.params)
        found.setdefault(shape, Calls(kernel)).calls.append(call)
    for reason, count in reasons.items():
        left_out.append(
            f"{kernel.module}:{kernel.name}: {count} variant{'s' * (count > 1)} left out: {reason}"
        )
    return sorted(found.values(), key=lambda calls: -calls.count)


def _call(kernel: CapturedKernel, variant: CapturedVariant, place: str) -> Call:
    leaves: list[Leaf] = []
    constexprs: dict[str, Value] = {}
    options = dict(variant.options)
    for name, is_constexpr in kernel.params:
        option = by_name(name, "variant") if is_constexpr else None
        if option is None and not Name().takes(name):
            raise Unsupported(f"a manifest cannot name its parameter {name}")
        if is_constexpr:
            constexprs[name] = _value(name, variant.constexprs[name])
            if option is not None and constexprs[name] is not None:
                options[name] = constexprs[name]  # Triton takes such a keyword for both.
        elif variant.args[name] == "none":
            constexprs[name] = None
        else:
            leaves += _leaves(name, variant.args[name], name)
    return Call(
        leaves=tuple(leaves),
        constexprs=constexprs,
        options=_options(options),
        tuned=frozenset(variant.tuned),
        keys=[launch["key"] for launch in variant.launches.values() if "key" in launch],
        count=variant.count,
        launches=[*variant.launches.values()],
        place=place,
    )


def _leaves(name: str, given: Any, parameter: str) -> Iterator[Leaf]:
    if isinstance(given, list):
        for index, element in enumerate(given):
            if isinstance(element, list):
                raise Unsupported(f"{parameter} is a tuple of tuples")
            if element == "none" or isinstance(element, dict):
                raise Unsupported(f"{parameter} is a tuple with a compile-time value in it")
            yield from _leaves(f"{name}_{index}", element, parameter)
        return
    text = str(given)
    if text.startswith("tensordesc<"):
        if not re.fullmatch(DESCRIPTOR, text):
            raise Unsupported(f"{parameter} is a {text}, which is no type of a manifest")
        yield Leaf(name, "", text.replace(" ", ""), "", parameter)
        return
    match = _TYPE.fullmatch(text)
    word = _WORDS.get(match[2], match[2]) if match else ""
    if match is None or word not in DTYPES:
        raise Unsupported(f"{parameter} is a {text}, which is no type of a manifest")
    yield Leaf(name, match[1], word, match[3] or "", parameter)


def _value(name: str, given: Any) -> Value:
    """A compile-time value as a manifest has it."""
    if isinstance(given, dict):
        word = TYPE_WORDS.get(str(given.get("dtype", "")), given.get("dtype"))
        if word in DTYPES:
            return word
        what = next(iter(given))
        shown = {"function": "a function", "tuple": "a tuple", "float": "not a finite number"}.get(what, "")
        raise Unsupported(f"{name} is {shown or given[what]}, which is no value of a manifest")
    if given is not None and not VALUE.takes(given):
        raise Unsupported(f"{name} is {given!r}, which is no value of a manifest")
    return given


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        option = by_name(name, "variant")
        if option is not None and option.is_legal(value):
            if value != option.default or option.is_shown:
                found[option.name] = value
        elif name not in IGNORED or value != IGNORED[name]:
            raise Unsupported(f"the option {name} = {value!r} is none of a manifest")
    for name in ("num_warps", "num_stages"):
        option = by_name(name)
        assert option is not None
        found.setdefault(name, option.default)
    return found
