"""What a tuner chose for some sizes as rules for all: each size gets what was chosen nearest to it."""

from __future__ import annotations

import pytest

from kbuild.aot.capture.adopt.choices import Config, Sample, rules

A, B, C = ("a",), ("b",), ("c",)


def made(*samples: tuple[dict[str, int], Config], most: int = 32) -> list[tuple[tuple[str, ...], Config]]:
    return rules([Sample(key, config) for key, config in samples], most)


def taken(found: list[tuple[tuple[str, ...], Config]], **key: int) -> Config:
    """The configuration of the first rule that holds."""
    for facts, config in found:
        if all(key[fact.partition("<=")[0]] <= int(fact.partition("<=")[2]) for fact in facts):
            return config
    raise AssertionError("no rule holds")


def test_one_choice_is_a_rule_without_facts() -> None:
    assert made(({"n": 64}, A), ({"n": 4096}, A)) == [((), A)]


def test_bounds_are_halfway_between_sizes_by_their_ratio() -> None:
    assert made(({"n": 100}, A), ({"n": 10_000}, B)) == [(("n<=1000",), A), ((), B)]
    assert made(({"n": -8}, A), ({"n": 3}, B)) == [(("n<=-3",), A), ((), B)]
    assert made(({"n": 0}, A), ({"n": 1}, B)) == [(("n<=0",), A), ((), B)]


def test_what_is_chosen_again_farther_on_has_a_rule_of_its_own() -> None:
    found = made(({"n": 1}, A), ({"n": 16}, B), ({"n": 256}, A))
    assert [taken(found, n=n) for n in (1, 4, 5, 16, 64, 65, 9999)] == [A, A, B, B, B, A, A]


def test_the_size_that_tells_most_is_compared_first() -> None:
    samples = [({"M": m, "N": n}, A if n < 100 else B) for m in (1, 32, 4096) for n in (64, 4096)]
    assert made(*samples) == [(("N<=512",), A), ((), B)]


@pytest.mark.parametrize("corner", [0, 1, 2, 3])
def test_every_size_that_was_seen_gets_its_own_choice(corner: int) -> None:
    keys = [{"M": m, "N": n} for m in (16, 4096) for n in (64, 8192)]
    chosen = [C if place == corner else (A, B)[place % 3 % 2] for place in range(4)]
    found = made(*zip(keys, chosen))
    assert [taken(found, **key) for key in keys] == chosen


def test_there_are_no_more_rules_than_wanted() -> None:
    samples = [({"n": n}, A if n % 2 else B) for n in range(1, 40)]
    found = made(*samples, ({"n": 50}, A), most=3)
    assert len(found) == 3 and found[-1][0] == ()
