"""A choice of an operator, `[[kernel.op.choose]]`, written out as values that are computed one after another.

    of = [{ rows = 64, step = 154 }, { rows = 128, step = 277, when = "M > 64" }]
    let = { tiles = "cdiv(M, rows)" }            least = "step * tiles"

becomes, with a name of its own for what each row makes of an expression,

    _0_1_when   = M > 64
    _0_0_tiles  = cdiv(M, 64)                    _0_1_tiles  = cdiv(M, 128) if _0_1_when else 0
    _0_0_least  = 154 * _0_0_tiles               _0_1_least  = 277 * _0_1_tiles if _0_1_when else 2**63 - 1
    _0_least    = min(_0_0_least, _0_1_least)
    rows        = 64 if _0_0_least == _0_least else 128
    tiles       = _0_0_tiles if _0_0_least == _0_least else _0_1_tiles

so that whatever prints values, prints choices too.  Where a row does not apply, nothing is computed of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from kbuild.aot.manifest.expressions import substituted
from kbuild.aot.op.expressions import OpExpression
from kbuild.aot.op.model import OpChoice, OpValue

_MOST = 2**63 - 1


def written_out(choice: OpChoice, number: int) -> Iterator[OpValue]:
    """The values that a choice consists of; `number` tells the choices of an operator apart."""
    made: list[dict[str, str]] = []
    for index, row in enumerate(choice.rows):
        prefix = f"_{number}_{index}_"
        applies = ""
        if row.when:
            applies = f"{prefix}when"
            yield OpValue(applies, row.when, is_part=True)
        own: dict[str, str] = {}
        for name, expression in (*row.columns, *((value.name, value.expression) for value in choice.values)):
            if isinstance(expression.tree, ast.Constant):
                own[name] = expression.plain
                continue
            yield OpValue(prefix + name, _of_row(expression, own, applies, 0), is_part=True)
            own[name] = prefix + name
        yield OpValue(f"{prefix}least", _of_row(choice.least, own, applies, _MOST), is_part=True)
        made.append(own)
    costs = [f"_{number}_{index}_least" for index in range(len(choice.rows))]
    least = f"_{number}_least"
    yield OpValue(least, _integer(_least(costs)), is_part=True)
    for name in made[0]:
        *others, last = [own[name] for own in made]
        chain = "".join(f"{value} if {cost} == {least} else " for value, cost in zip(others, costs))
        yield OpValue(name, _integer(chain + last))


def _least(names: Sequence[str]) -> str:
    """The least of any number of values; `min` takes eight."""
    while len(names) > 1:
        groups = [names[start : start + 8] for start in range(0, len(names), 8)]
        names = [f"min({', '.join(group)})" if len(group) > 1 else group[0] for group in groups]
    return names[0]


def _integer(text: str) -> OpExpression:
    return OpExpression(text, "int", text)


def _of_row(expression: OpExpression, own: Mapping[str, str], applies: str, otherwise: int) -> OpExpression:
    """What an expression is for a row: with the row's own names, where the row applies."""
    plain = substituted(expression.plain, own)
    if applies:
        plain = f"({plain}) if {applies} else {otherwise}"
    return OpExpression(expression.text, "int", plain, expression.strides, expression.constants)
