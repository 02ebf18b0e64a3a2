"""Calls that take the cheapest of several rows, in C and in Python."""

from dataclasses import replace

import pytest

from kbuild.aot.artifact import selection, tables
from kbuild.aot.manifest.model import Argument, Guard
from kbuild.errors import ManifestError
from tests.launcher.example_package import ROUNDS, Tensor, built, kernel_of, manifest_of, variant_of

SMS = 6
"""Multiprocessors of the fake driver's devices."""


def cheapest(m: int, n: int) -> str:
    """The tile whose rounds cost least, the first of those that cost the same."""
    costs = {
        f"{height}x{width}": step * -(-(-(-m // height) * -(-n // width)) // SMS)
        for (height, width), step in ROUNDS.items()
        if (height, width) != (128, 128) or n % 64 == 0
    }
    return min(costs, key=lambda tile: costs[tile])


def test_the_cheapest_of_those_that_apply_is_taken(world):
    x, seen = Tensor(), set()
    for m in (17, 64, 100, 256, 384, 1000, 1281):
        for n in (1, 63, 64, 192, 200, 512, 768, 800, 1536, 4096):
            world.package.rounds(x, m, n)
            seen.add(tile := cheapest(m, n))
            assert world.driver.last.key == f"rounds.fp32:16.{tile}", (m, n)
    assert seen == {f"{height}x{width}" for height, width in ROUNDS}


def test_rows_without_a_cost_stand_in_their_order(world):
    """One before those with a cost is taken before them, one behind them where none of them applies."""
    for m, n, tile in ((16, 512, "few"), (17, 0, "any"), (17, -64, "any"), (17, 1, cheapest(17, 1))):
        world.package.rounds(Tensor(), m, n, grid=1)
        assert world.driver.last.key == f"rounds.fp32:16.{tile}"


def test_costs_are_compared_for_one_type_and_specialisation(world):
    for x, point in (
        (Tensor("float16"), "fp16:16"),
        (Tensor("float16", address=0x108), "fp16"),
        (Tensor(address=0x108), "fp32"),
    ):
        for m, n in ((128, 64), (256, 1536), (384, 4096)):
            world.package.rounds(x, m, n)
            assert world.driver.last.key == f"rounds.{point}.{cheapest(m, n)}"


def test_a_cost_without_a_value(world):
    """The rows before are taken as ever; where it would be compared, the call is refused."""
    for m, n in ((2**62, 2**20), (2**62, 2**12)):
        with pytest.raises(
            world.package.LaunchError, match=r"rounds\(\): a cost of its rows overflows 64 bits"
        ):
            world.package.rounds(Tensor(), m, n)
    world.package.rounds(Tensor(), 2**62, 0, grid=1)
    assert world.driver.last.key.endswith(".any")
    world.package.rounds(Tensor(), 16, 2**62, grid=1)
    assert world.driver.last.key.endswith(".few")


def test_an_explanation_has_the_costs(world, capsys):
    world.package.explain("rounds", Tensor(), 128, 1152)
    shown = capsys.readouterr().out
    assert (
        "TILE=128x192 num_warps=4 num_stages=3 x:16 if n > 0: taken, for it costs 480: "
        "480 * cdiv(cdiv(m, 128) * cdiv(n, 192), num_sms)"
    ) in shown
    assert "TILE=128x256 num_warps=4 num_stages=3 x:16 if n > 0: matches, and costs 620: 620 * " in shown
    assert (
        "TILE=128x128 num_warps=4 num_stages=3 x:16 if n > 0 if n % 64 == 0: matches, and costs 660" in shown
    )
    assert "x:16: matches, behind the one taken" in shown, "the row for any sizes"
    assert "TILE=128x192 num_warps=4 num_stages=3 if n > 0: matches, behind the one taken" in shown
    world.package.explain("rounds", Tensor(), 128, 1152, arch="sm_90")
    assert "taken, for it costs 330: 330 * " in capsys.readouterr().out, "there all tiles are one round"
    world.package.explain("rounds", Tensor(), 2**62, 2**20)
    shown = capsys.readouterr().out
    assert "no cost: 480 * cdiv(cdiv(m, 128) * cdiv(n, 192), num_sms) overflows 64 bits" in shown
    assert "taken" not in shown.replace("behind the one taken", "") and "grid" not in shown.splitlines()[-1]


def test_the_message_for_a_call_whose_costs_have_no_value():
    table = table_of(("", "n"), ("", "2 * n"))
    call = selection.AskedCall(facts_for(table), (0, 1), "a device")
    message = selection.no_variant_message(table, (selection.CodeTarget("sm_90", 90, 90),), call)
    assert message.startswith("f(): a cost of its rows overflows 64 bits, or divides by zero\n")


def table_of(*rows: tuple[str, str], **values) -> selection.KernelTable:
    """A table of rows with a fact and a cost each."""
    kernel = replace(kernel_of("f", ("n",)), grid_args=(Argument("n", "i64"), Argument("m", "i64")))
    made = []
    for number, (fact, cost) in enumerate(rows):
        guards = (Guard(fact, "<=", 8),) if fact else ()
        variant = variant_of(
            "f", "sm_90", {"x": "*fp32"}, constexprs={"I": number}, guards=guards, cost=cost, **values
        )
        made.append(built(variant))
    return tables.make_table(manifest_of((kernel,)), made).kernels[0]


def facts_for(table: selection.KernelTable) -> tuple[int, ...]:
    """Facts that every row allows."""
    return ((1 << 64) - 1,) * table.fact_count


def test_the_table_has_each_cost_once():
    table = table_of(("", "2*n"), ("n", "(2 * n)"), ("n", ""), ("m", "num_sms"))
    assert table.costs == ("2 * n", "num_sms")
    assert [(row.cost, row.rival) for row in table.rows] == [(0, 1), (0, 3), (-1, -1), (1, -1)]
    assert [(p.name, p.grid_only) for p in table.parameters] == [("x", False), ("n", False), ("m", False)]
    table = table_of(("", "2*n"), ("", "n"))
    assert [(p.name, p.grid_only) for p in table.parameters][1:] == [("n", False), ("m", True)], (
        "what costs name is given by every call"
    )


def test_the_first_of_those_that_cost_the_same_is_taken():
    table = table_of(("", "n"), ("", "m"), ("", "n + m"))
    for costs, row in (((3, 3, 3), 0), ((4, 3, 3), 1), ((4, 4, 3), 2), ((-1, -2, 5), 1)):
        assert selection.select(table, facts_for(table), costs).row == row
    assert selection.select(table, facts_for(table), (1, None, 1)).row == selection.COST_FAULT


def test_one_row_with_a_cost_is_taken_whatever_it_costs():
    table = table_of(("", "n"), ("n", ""))
    chosen = selection.select(table, facts_for(table), (None,))
    assert (chosen.row, chosen.compared) == (0, ())


@pytest.mark.parametrize("cost", ["k", "x", "2 * BLOCK"])
def test_a_cost_that_names_what_calls_do_not_have(cost):
    with pytest.raises(ManifestError, match="cost: unknown name"):
        table_of(("", cost))
