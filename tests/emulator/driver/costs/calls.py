"""Calls for which dispatch takes a variant by its cost: sizes of whole tiles and rounds of these are tried."""

from __future__ import annotations

import functools
import itertools
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kbuild.aot.manifest.expand import Variant

COUNTS = (*range(1, 13), 16, 20, 24, 32, 48, 64, 96, 128)
"""Numbers of blocks that are tried along each axis."""

Values = dict[str, int | float]


@functools.cache
def compiled(text: str) -> types.CodeType:
    return compile(text, "<expression>", "eval")


def value_of(text: str, values: Mapping[str, int | float], num_sms: int) -> int:
    """The value of a condition or a cost for arguments on a device of so many multiprocessors."""
    return int(eval(compiled(text), names_for(num_sms), values))


@functools.cache
def names_for(num_sms: int) -> dict[str, Any]:
    """What conditions and costs may name besides arguments."""
    return {
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": lambda a: 1 << max(a - 1, 0).bit_length(),
        "num_sms": num_sms,
    }


class Rival(NamedTuple):
    """A variant, and whether it applies to a call, for a search among very many."""

    variant: Variant
    facts: str

    @staticmethod
    def of(variant: Variant) -> Rival:
        return Rival(variant, " and ".join(f"({guard.expression})" for guard in variant.guards) or "1")


def taken(rivals: Sequence[Rival], values: Mapping[str, int | float], num_sms: int) -> Variant | None:
    """The one of a point's variants, in their order, that a call takes."""
    applying = (rival.variant for rival in rivals if value_of(rival.facts, values, num_sms))
    first = next(applying, None)
    if first is None or not first.cost:
        return first
    compared = [first, *(one for one in applying if one.cost)]
    return min(compared, key=lambda one: value_of(one.cost, values, num_sms))


def named(rivals: Iterable[Variant]) -> tuple[str, ...]:
    """The arguments that the costs of variants name."""
    names = {name for one in rivals for name in re.findall(r"[A-Za-z_]\w*", one.cost)}
    return tuple(name for name, _ in next(iter(rivals)).signature if name in names)


def sizes(rivals: Iterable[Variant], name: str, is_right: Callable[[int], bool]) -> list[int]:
    """Values of an argument, each the largest right one within so many blocks of its that costs count."""
    found = {int(block) for one in rivals for block in re.findall(rf"cdiv\({name}, (\d+)\)", one.cost)}
    bounds = {block * count for block in found or {1, 100, 1000} for count in COUNTS}
    nearest = (next((bound - step for step in range(16) if is_right(bound - step)), 0) for bound in bounds)
    return sorted({value for value in nearest if value > 0})


def calls(
    rivals: Sequence[Variant],
    others: Iterable[Values],
    choices: Mapping[str, Sequence[int]],
    num_sms: int,
    most: int = 4,
) -> dict[Variant, list[Values]]:
    """For each of a point's variants with a cost a few calls that take it, the smallest first; of as many of the `others`, which
    have the arguments that no cost names, as it takes to find some for all."""
    found: list[list[Values]] = [[] for _ in rivals]
    chosen = sorted(itertools.product(*choices.values()), key=math.prod)
    for rest in others:
        which = all_taken(rivals, rest, tuple(choices), chosen, num_sms)
        for place, those in enumerate(found):
            more = np.flatnonzero(which == place)[: most - len(those)]
            those += ({**rest, **dict(zip(choices, chosen[index]))} for index in more)
        if all(those for one, those in zip(rivals, found) if one.cost):
            break
    return {one: those for one, those in zip(rivals, found) if one.cost}


def all_taken(
    rivals: Sequence[Variant],
    rest: Values,
    names: Sequence[str],
    chosen: Sequence[tuple[int, ...]],
    num_sms: int,
) -> np.ndarray:
    """For calls with the arguments `rest` and each `chosen` value of those with these names, the place of the variant that
    `taken` finds; below zero where it is none."""
    count = len(chosen)
    columns = {**rest, **dict(zip(names, np.array(chosen, np.int64).reshape(count, len(names)).T))}

    def column(text: str) -> np.ndarray:
        try:
            return np.broadcast_to(eval(compiled(text), names_for(num_sms), columns), count)
        except (ValueError, AttributeError):  # Where it chooses by a value, each call does.
            calls = ({**rest, **dict(zip(names, values))} for values in chosen)
            return np.fromiter((value_of(text, call, num_sms) for call in calls), np.int64, count)

    first, best = np.full(count, -1), np.full(count, -1)
    least = np.full(count, np.iinfo(np.int64).max)
    for place, one in enumerate(rivals):
        applies = np.ones(count, bool)
        for guard in one.guards:
            applies &= column(guard.expression) != 0
        first[applies & (first < 0)] = place
        if one.cost:
            cost = column(one.cost)
            better = applies & (cost < least)
            best[better], least[better] = place, cost[better]
    has_cost = np.array([bool(one.cost) for one in rivals])
    return np.where(has_cost[first], best, first)
