"""The manifest's text, with a comment at each guess, and the lines on which the guesses are."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbuild.aot.init.draft import KernelDraft
from kbuild.aot.init.guesses import Guess
from kbuild.aot.init.toml_text import WIDTH, grouped, toml_key, toml_list, toml_value

_NO_COUNTERPART = "no counterpart"


@dataclass
class ManifestText:
    """Lines of TOML, and what was guessed on which."""

    lines: list[str] = field(default_factory=list)
    guesses: list[tuple[int, Guess]] = field(default_factory=list)
    """Line numbers, from 1, with the guesses there."""

    def add(self, *lines: str, guesses: Iterable[Guess] = ()) -> None:
        """Adds lines; the guesses are a comment behind the first, or before it where that is too long."""
        together = _joined(guesses)
        comment = "; ".join(f"{guess.subject}: {guess.text}" for guess in together)
        first, *rest = lines
        if comment and len(first) + len(comment) + 4 <= WIDTH and not rest:
            first = f"{first}  # {comment}"
        elif comment:
            self.comment(*(f"{guess.subject}: {guess.text}" for guess in together))
        self.guesses += [(len(self.lines) + 1, guess) for guess in together]
        self.lines += [first, *rest]

    def comment(self, *texts: str) -> None:
        """Adds comments, each on as many lines as it takes."""
        for text in texts:
            self.lines += [
                "# " + line for line in textwrap.wrap(_printable(text), WIDTH - 2, break_on_hyphens=False)
            ]

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def _joined(guesses: Iterable[Guess]) -> list[Guess]:
    """The guesses, those with the same text as one."""
    subjects: dict[str, list[str]] = {}
    for guess in guesses:
        subjects.setdefault(_printable(guess.text), []).append(_printable(guess.subject))
    return [Guess(", ".join(dict.fromkeys(names)), text) for text, names in subjects.items()]


def _printable(text: str) -> str:
    """One line of a comment: TOML has no control characters there."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def add_head(text: ManifestText, package: str) -> None:
    """What stands before the kernels."""
    text.comment(
        "Written by `kbuild init` from the kernels' source; docs/manifest.md explains every key.",
        'Comments mark what was guessed. Hints make code faster where they hold: x = "*fp16:16" is an address, '
        'n = "i32:16?" an integer divisible by 16.',
    )
    text.add(
        "schema = 1",
        "",
        "[package]",
        f"name = {toml_value(package)}",
        'version = "0.1.0"',
        'archs = ["sm_80", "sm_90"]',
    )


def add_kernel(text: ManifestText, draft: KernelDraft) -> None:
    """One `[[kernel]]`."""
    if text.lines and text.lines[-1]:
        text.lines.append("")
    of = draft.guesses
    text.add("[[kernel]]")
    notes = [guess for guess in of.get("name", ()) if guess.subject == _NO_COUNTERPART]
    text.add(f"name = {toml_value(draft.name)}", guesses=notes)
    text.add(f"source = {toml_value(draft.source)}")
    if draft.function:
        text.add(f"function = {toml_value(draft.function)}")
    text.add(*toml_list("grid", [toml_value(axis) for axis in draft.grid]), guesses=of.get("grid", ()))
    _add_table(text, "args", grouped(draft.args), of.get("args", ()))
    if draft.grid_args:
        _add_table(text, "grid_args", grouped(draft.grid_args), of.get("grid_args", ()))
    if draft.matrix:
        _add_table(text, "matrix", draft.matrix, of.get("matrix", ()))
    if any(draft.configs):
        text.add(
            *toml_list("config", [toml_value(config) for config in draft.configs], True),
            guesses=of.get("config", ()),
        )
    _add_verify(text, draft)
    _add_tune(text, draft)


def _add_verify(text: ManifestText, draft: KernelDraft) -> None:
    guesses = draft.guesses.get("verify", ())
    if not draft.sizes:
        _add_left_out(text, guesses)
        return
    text.add("[kernel.verify]", guesses=guesses)
    _add_table(text, "sizes", grouped(draft.sizes), ())
    text.add(*toml_list("values", [toml_value(grouped(draft.values))], True))
    if draft.zeros:
        text.add(f"zeros = {toml_value(draft.zeros)}")


def _add_tune(text: ManifestText, draft: KernelDraft) -> None:
    guesses = draft.guesses.get("tune", ())
    if not draft.candidates:
        _add_left_out(text, guesses)
        return
    text.add("[kernel.tune]", guesses=guesses)
    if draft.restore:
        text.add(f"restore = {toml_value(draft.restore)}")
    _add_table(text, "candidates", draft.candidates, ())
    if draft.require:
        lines = textwrap.wrap(draft.require, WIDTH - 4)
        if len(lines) == 1:
            text.add(f"require = {toml_value(draft.require)}")
        else:
            text.add('require = """\\', *(f"  {line} \\" for line in lines[:-1]), f'  {lines[-1]}"""')
    text.add(*toml_list("bucket", [toml_value({"values": grouped(draft.tune_values)})], True))


def _add_left_out(text: ManifestText, guesses: Iterable[Guess]) -> None:
    """A comment in place of a table."""
    for guess in guesses:
        text.guesses.append((len(text.lines) + 1, guess))
        text.comment(f"{guess.subject}: {guess.text}")


def _add_table(text: ManifestText, key: str, table: Mapping[str, Any], guesses: Iterable[Guess]) -> None:
    """A table on one line, or with dotted keys on a line each."""
    inline = f"{key} = {toml_value(table)}"
    if len(inline) <= WIDTH:
        text.add(inline, guesses=guesses)
        return
    left = list(guesses)
    for name, value in table.items():
        names = [part.strip() for part in name.split(",")]
        own = [guess for guess in left if guess.subject in names]
        left = [guess for guess in left if guess not in own]
        room = WIDTH - len(f'{key}."" = {toml_value(value)}')
        for number, part in enumerate(textwrap.wrap(name, max(room, 40), break_long_words=False)):
            line = f"{key}.{toml_key(part.rstrip(','))} = {toml_value(value)}"
            text.add(line, guesses=() if number else own)
    text.guesses += [(len(text.lines), guess) for guess in left]
    text.comment(*(f"{guess.subject}: {guess.text}" for guess in left))
