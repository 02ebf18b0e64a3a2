"""Which tests are run for a mistake in a line, and in what order, by what is known of them
(`self_tests_plugin.py`).

Of the tests beside a module those that execute the statement, then those that start other processes of
Python; for a statement that runs when the module is imported, those that execute anything of the module, or
else all.  Of both the shortest come first, up to a number of seconds altogether; tests that share a fixture
stay together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from self_tests_plugin import HAS_LINES, IMPORTS, Note


class Statement(NamedTuple):
    """The lines of a statement, without those of the statements in it."""

    first: int
    last: int
    in_function: bool

    @property
    def bits(self) -> int:
        return (1 << self.last + 1) - (1 << self.first)


def statement_at(text: str, line: int) -> Statement:
    """The innermost statement of a module on a line; a case of `match` counts as one."""
    heads, in_function = [Statement(line, line, False)], False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt | ast.match_case):
            body = getattr(node, "body", None)
            first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            last = max(first, body[0].lineno - 1) if body else getattr(node, "end_lineno", first)
            if first <= line <= last:
                heads.append(Statement(first, last, False))
            if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= (node.end_lineno or 0):
                in_function |= not any(
                    "jit" in ast.unparse(decorator) for decorator in node.decorator_list
                )  # which Python never runs
    innermost = max(heads[1:] or heads, key=lambda head: (head.first, -head.last))
    return innermost._replace(in_function=in_function)


def belongs(test: str, beside: Iterable[str]) -> bool:
    """Whether a test is one of those that are named by a folder, a file or a function."""
    return any(test == name or test.startswith((f"{name}/", f"{name}::", f"{name}[")) for name in beside)


def reaching(
    notes: dict[str, Note], beside: Sequence[str], file: str, text: str, line: int
) -> tuple[list[Note], list[Note]]:
    """The tests to be run for a mistake in a line, of those that pass without it: first these, then those."""
    all_ = [
        note for note in notes.values() if note.test != IMPORTS and note.passed and belongs(note.test, beside)
    ]
    if not file.endswith(".py") or not HAS_LINES:
        return all_, []
    statement = statement_at(text, line)
    exact = [
        note for note in all_ if note.bits(file) & statement.bits
    ]  # of a table those that run a lambda in it
    if statement.in_function and not notes[IMPORTS].bits(file) & statement.bits:
        return exact, [note for note in all_ if note.spawned and note not in exact]
    some = (
        all_
        if not any(note.bits(file) for note in all_)
        else [note for note in all_ if note.spawned or note.bits(file)]
    )
    return exact, [note for note in some if note not in exact]


def in_order(first: Iterable[Note], then: Iterable[Note], most: float) -> list[Note]:
    """Of both the shortest first, as many as take `most` seconds altogether (one at least)."""
    chosen: list[Note] = []
    spent, ready = 0.0, set()
    for note in [*_sorted(first), *_sorted(then)]:
        spent += note.seconds + sum(seconds for name, seconds in note.shared.items() if name not in ready)
        if chosen and spent > most:
            break
        ready |= note.shared.keys()
        chosen.append(note)
    return chosen


def _sorted(notes: Iterable[Note]) -> Iterator[Note]:
    groups = [list(group) for _, group in groupby(sorted(notes, key=_fixtures), key=_fixtures)]
    parts = [
        part for group in groups for part in ([group] if group[0].shared else [[note] for note in group])
    ]
    for part in sorted(parts, key=lambda part: min(map(cost, part))):
        yield from sorted(part, key=cost)


def cost(note: Note) -> float:
    """Seconds of a test that is run alone."""
    return note.seconds + sum(note.shared.values())


def _fixtures(note: Note) -> tuple[str, ...]:
    return tuple(sorted(note.shared))


def write_chosen(path: Path, notes: Iterable[Note]) -> None:
    """The list that the plugin reads."""
    path.write_text("".join(f"{cost(note):.3f} {note.test}\n" for note in notes))
