"""Choices of an operator: of the rows that apply, the values of the one that costs least."""

from __future__ import annotations

import pytest

from kbuild.aot.manifest.expressions import Expression, evaluate
from tests.aot.op.project import MANIFEST, loaded, mistakes

PLACE = 'outputs = { made = "" }\n'
"""A line of the operator `sum`."""
CHOICE = """
[[kernel.op.choose]]
of = [
  { rows = 128, step = 277, again = "rounds", when = "shape > 64" },
  { rows = 64, step = 154, again = 1 },
]
let = { tiles = "cdiv(shape, rows) * again", beyond = "shape % tiles" }
least = "step * tiles"
"""


def with_choice(choice: str = CHOICE) -> str:
    """The manifest with an operator `sum` that chooses."""
    head, tail = MANIFEST.split(PLACE)
    table, others = tail.split("\n\n", 1)
    return f'{head}{PLACE}let = {{ rounds = "2" }}\n{table}\n{choice}\n{others}'


def computed(folder, shape: int, choice: str = CHOICE) -> dict[str, int]:
    """What an operator `sum` computes for so many elements, in its order."""
    op = loaded(folder, with_choice(choice)).kernel("sum").op
    assert op is not None
    known = {"shape": shape, "num_sms": 132}
    for value in op.values:
        known[value.name] = evaluate(Expression(value.expression.plain, ()), known)
    return known


@pytest.mark.parametrize(
    ("shape", "rows", "tiles"),
    [
        (64, 64, 1),  # the larger one does not apply, whatever it costs
        (128, 64, 2),  # 277 · 2 against 154 · 2
        (1000, 64, 16),
    ],
)
def test_the_row_of_least_cost_gives_its_values(folder, shape: int, rows: int, tiles: int) -> None:
    values = computed(folder, shape)
    assert (values["rows"], values["tiles"]) == (rows, tiles)
    assert values["beyond"] == shape % tiles


def test_the_first_of_equal_rows_is_taken(folder) -> None:
    values = computed(folder, 1000, CHOICE.replace("step = 277", "step = 77").replace('"rounds"', "2"))
    assert (values["rows"], values["again"], values["step"]) == (128, 2, 77)


def test_there_may_be_many_rows(folder) -> None:
    many = "".join(f"  {{ rows = {64 + n}, step = {154 + abs(n - 70)}, again = 1 }},\n" for n in range(1, 90))
    assert computed(folder, 64, CHOICE.replace("of = [\n", "of = [\n" + many))["rows"] == 64 + 70


def test_nothing_is_computed_of_a_row_that_does_not_apply(folder) -> None:
    zero = CHOICE.replace("cdiv(shape, rows)", "cdiv(shape, max(0, shape - 64)) if rows == 128 else 1")
    assert computed(folder, 64, zero)["rows"] == 64
    assert computed(folder, 65, zero)["step"] == 154


def test_a_second_choice_names_what_the_first_has_chosen(folder) -> None:
    second = '[[kernel.op.choose]]\nof = [{ half = 2 }, { half = 1 }]\nlet = { left = "tiles // half" }\nleast = "left"\n'
    values = computed(folder, 1000, CHOICE + second)
    assert (values["half"], values["left"]) == (2, 8)


LIKE = """
[[kernel]]
name = "total"
like = "sum"
[kernel.op]
inputs = { x = "*all" }
outputs = { made = "" }
workspaces = { partial = "cdiv(all, BLOCK * STEPS)" }
launch = [{ bind = { n = "all" } }, { kernel = "sum_partials", bind = { out = "made", count = "cdiv(all, BLOCK * STEPS)" } }]
let = { shape = "2 * all", rounds = "2" }
[[kernel.op.choose]]
like = "sum"
least = "1000 - step"
"""
"""An operator that chooses among the rows of another by a cost of its own, and says itself what they name."""


def test_a_choice_like_another_has_its_rows(folder) -> None:
    op = loaded(folder, with_choice() + LIKE).kernel("total").op
    assert op is not None
    known = {"all": 500, "num_sms": 132}
    for value in op.values:
        known[value.name] = evaluate(Expression(value.expression.plain, ()), known)
    assert (known["rows"], known["tiles"], known["_0_least"]) == (128, 16, 723)


@pytest.mark.parametrize("name", ["total", "sun", "vector_add"])
def test_a_choice_can_only_be_like_one_before_it(folder, name: str) -> None:
    (found,) = mistakes(
        folder, with_choice() + LIKE, 'like = "sum"\nleast', f'like = "{name}"\nof = [{{ rows = 1 }}]\nleast'
    )
    assert f'op.choose[0].like: no operator of "{name}" before this one chooses as often' in found


def test_a_mistake_in_a_row_of_another_is_reported_where_it_is_written(folder) -> None:
    text = with_choice() + LIKE
    line = text[: text.index("{ rows = 128")].count("\n") + 1
    found = mistakes(
        folder, text, 'let = { shape = "2 * all", rounds = "2" }\n', 'let = { shape = "2 * all" }\n'
    )
    assert found[0].startswith(
        f'kernels.toml:{line}: error: kernel "total": op.choose[0].of[0].again: unknown name "rounds"'
    )


MISTAKES = {
    "a last row that may not apply": (
        "again = 1 }",
        'again = 1, when = "shape > 1" }',
        "op.choose[0].of[1].when: the last row has to apply always",
    ),
    "a row without a value": (", again = 1", "", "op.choose[0].of[1]: has no again, which the first row has"),
    "a row with another value": (
        "again = 1 }",
        "again = 1, more = 2 }",
        "op.choose[0].of[1].more: the first row has no such value",
    ),
    "a value that is taken": (
        "let = { tiles =",
        'let = { rounds = "1", tiles =',
        'op.choose[0].let.rounds: a value has the name "rounds"',
    ),
    "a column that is a dimension": (
        "{ rows = 64,",
        "{ shape = 1, rows = 64,",
        'op.choose[0].of[1].shape: a dimension has the name "shape"',
    ),
    "an unknown name": (
        'least = "step * tiles"',
        'least = "step * tile"',
        'op.choose[0].least: unknown name "tile" in "step * tile"',
    ),
    "a cost with a fraction": (
        'least = "step * tiles"',
        'least = "step / tiles"',
        'op.choose[0].least: "step / tiles" is not a whole number',
    ),
    "no cost": ('least = "step * tiles"', "", 'op.choose[0]: missing key "least"'),
    "no rows": (CHOICE.partition("let =")[0], "[[kernel.op.choose]]\nof = []\n", 'missing key "of"'),
    "too many rows": (
        "of = [\n",
        "of = [\n" + "  { rows = 1, step = 1, again = 1 },\n" * 100,
        "op.choose[0].of: has 102 rows; 100 are allowed",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_message_with_its_line(folder, case: str) -> None:
    old, new, message = MISTAKES[case]
    (found,) = mistakes(folder, with_choice(), old, new)
    assert message in found
