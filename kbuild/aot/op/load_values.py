"""The whole numbers that an operator computes first: `let`, then `[[kernel.op.choose]]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbuild.aot.manifest.expressions import NUM_SMS
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.reader import ManifestReader, described
from kbuild.aot.manifest.table import checked
from kbuild.aot.op import schema
from kbuild.aot.op.choices import written_out
from kbuild.aot.op.expressions import OpExpression, OpScope
from kbuild.aot.op.model import OpChoice, OpRow, OpValue

_Read = Callable[[KeyPath, str, OpScope], "OpExpression | None"]


MAX_ROWS = 100
"""Of a choice: each call computes what each of them costs."""


def named(values: Iterable[OpValue]) -> list[str]:
    """The names of values that a manifest may use."""
    return [value.name for value in values if not value.is_part]


@dataclass(frozen=True)
class ValueLoader:
    """Reads the values of one operator."""

    reader: ManifestReader
    path: KeyPath
    expression: _Read
    """Reads an expression."""
    condition: _Read
    """Reads one that holds or not."""
    is_free: Callable[[KeyPath, str, Mapping[str, str]], bool]
    """Whether a name is free; notes what has it."""

    def load(self, values: Mapping[str, Any], scope: OpScope, tensors: Sequence[str]) -> tuple[OpValue, ...]:
        """The values in the order in which they are computed; mistakes are noted in the reader."""
        taken = dict.fromkeys(tensors, "tensor") | dict.fromkeys(scope.dims, "dimension")
        taken |= dict.fromkeys(scope.scalars, "scalar") | {NUM_SMS: "number of multiprocessors"}
        found = list(self._let((*self.path, "let"), values.get("let", {}), scope, taken))
        for number, (key, entry) in enumerate(values.get("choose", ())):
            scope = replace(scope, values=named(found))
            taken |= dict.fromkeys(scope.values, "value")
            if choice := self._choice(key, checked(self.reader, key, entry, schema.CHOOSE), scope, taken):
                found += written_out(choice, number)
        return tuple(found)

    def _let(
        self, path: KeyPath, given: Mapping[str, Any], scope: OpScope, taken: Mapping[str, str]
    ) -> Iterator[OpValue]:
        """Values each of which may name those before it."""
        before = [*scope.values]
        for name, text in checked(self.reader, path, given, schema.LET).items():
            key = (*path, name)
            if self.is_free(key, name, taken) and (
                expression := self._integer(key, text, replace(scope, values=before))
            ):
                before.append(name)
                yield OpValue(name, expression)

    def _choice(
        self, path: KeyPath, values: Mapping[str, Any], scope: OpScope, taken: Mapping[str, str]
    ) -> OpChoice | None:
        before = len(self.reader.errors)
        given = values.get("of", ())
        if len(given) > MAX_ROWS:
            self.reader.error((*path, "of"), f"has {len(given)} rows; {MAX_ROWS} are allowed")
        if not 0 < len(given) <= MAX_ROWS:
            return None
        entries = [(key, checked(self.reader, key, row, schema.ROW)) for key, row in given]
        columns = [name for name in entries[0][1] if name != "when"]
        rows = [self._row(key, entry, columns, scope, taken) for key, entry in entries]
        if rows[-1].when:
            self.reader.error(
                (*entries[-1][0], "when"), "the last row has to apply always", "leave `when` out"
            )
        inner = replace(scope, values=[*scope.values, *columns])
        taken = {**taken, **dict.fromkeys(columns, "column")}
        let = tuple(self._let((*path, "let"), values.get("let", {}), inner, taken))
        inner = replace(inner, values=[*inner.values, *(value.name for value in let)])
        least = self._integer((*path, "least"), values["least"], inner) if "least" in values else None
        return OpChoice(tuple(rows), least, let) if least and len(self.reader.errors) == before else None

    def _row(
        self,
        key: KeyPath,
        entry: Mapping[str, Any],
        columns: Sequence[str],
        scope: OpScope,
        taken: Mapping[str, str],
    ) -> OpRow:
        """One row, with the columns that the first has."""
        for name in columns:
            if name not in entry:
                self.reader.error(key, f"has no {name}, which the first row has")
        found: list[tuple[str, OpExpression]] = []
        for name, value in entry.items():
            if name == "when" or not self.is_free((*key, name), name, taken):
                continue
            if name not in columns:
                self.reader.error((*key, name), "the first row has no such value", "give it to all rows")
            elif expression := self._integer((*key, name), str(value), scope):
                found.append((name, expression))
        when = self.condition((*key, "when"), entry["when"], scope) if "when" in entry else None
        return OpRow(tuple(found), when)

    def _integer(self, key: KeyPath, text: str, scope: OpScope) -> OpExpression | None:
        """An expression that is a whole number; None, with the mistake noted."""
        expression = self.expression(key, text, scope)
        if expression and expression.kind not in ("int", "bool"):
            self.reader.error(key, f"{described(text)} is not a whole number")
            return None
        return expression
