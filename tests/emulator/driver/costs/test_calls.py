"""The search for calls that take a variant by its cost finds them, and what it finds is right."""

from __future__ import annotations

import pytest

from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.model import Guard
from tests.emulator.driver.costs.calls import Rival, calls, named, sizes, taken

TILES = {(128, 192): 480, (128, 256): 620, (128, 128): 330, (64, 256): 342, (256, 176): 870}


def variant(name: str, cost: str = "", *guards: Guard) -> Variant:
    signature = (("a", "*fp16"), ("M", "i32"), ("N", "i32:16"), ("K", "i32"))
    return Variant("matmul", "sm_90", (), signature, (("TILE", name),), guards=guards, cost=cost)


def tiles(*guards: Guard) -> list[Variant]:
    return [
        variant(
            f"{height}x{width}",
            f"{step} * cdiv(cdiv(M, {height}) * cdiv(N, {width}), num_sms)",
            *guards * (width == 176),
        )
        for (height, width), step in TILES.items()
    ]


@pytest.mark.parametrize("num_sms", [108, 132])
def test_calls_for_every_tile(num_sms: int) -> None:
    rivals = [
        variant("few", "", Guard("M", "<=", 16)),
        *tiles(Guard("K", "%", 64)),
        variant("any"),
    ]
    assert named(rivals) == ("M", "N")
    choices = {
        "M": sizes(rivals, "M", lambda value: value % 2 == 1),
        "N": sizes(rivals, "N", lambda value: value % 16 == 0),
    }
    found = calls(rivals, ({"K": 7}, {"K": 64}), choices, num_sms)
    assert [one.values["TILE"] for one in found] == [f"{height}x{width}" for height, width in TILES]
    for one, values in found.items():
        assert values and all(taken([*map(Rival.of, rivals)], call, num_sms) == one for call in values), one
        assert all(call["M"] % 2 == 1 and call["N"] % 16 == 0 for call in values)


def test_what_no_call_takes() -> None:
    """A tile that costs more than another at all sizes is found by none."""
    rivals = [*tiles(), variant("slow", "700 * cdiv(cdiv(M, 128) * cdiv(N, 256), num_sms)")]
    choices = {name: sizes(rivals, name, lambda _: True) for name in named(rivals)}
    found = calls(rivals, ({"K": 64},), choices, 132)
    assert [one.values["TILE"] for one, values in found.items() if not values] == ["slow"]


def test_costs_without_blocks() -> None:
    rivals = [variant("steep", "2 * M"), variant("flat", "M + 300 if N > 64 else M + 400")]
    choices = {name: sizes(rivals, name, lambda _: True) for name in named(rivals)}
    assert all(calls(rivals, ({},), choices, 1).values())
