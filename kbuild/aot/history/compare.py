"""What differs between two states of a variant's inputs, in words: pure, and every difference with its place.

source      kernels/scale.py:10, in scale_kernel    the lines, before and after
manifest    kernel "scale": config                  a key of kernels.toml
option      lineinfo                                what the command line asks for
compiler    kbuild 0.1.0                            the files of the compiler that differ
tool        ptxas                                   its version
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbuild.aot.history.ledger import DECORATOR, Circumstances, Made, SourcePart
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.manifest.reader import one_line
from kbuild.options import by_name, options

_COMMENT = re.compile(r"//[^\"\n]*$")
_MAX_FILES = 5
"""Files of the compiler that are named."""


class DiffLine(NamedTuple):
    """A line of the source before or after."""

    sign: str
    """`-` or `+`."""
    line: int
    text: str


@dataclass(frozen=True)
class Reason:
    """One input that differs."""

    kind: str
    """`source`, `manifest`, `option`, `compiler`, `tool`, `kbuild` or `files`."""
    text: str
    place: str = ""
    """`file:line`, where it has one."""
    key: tuple[str, ...] = ()
    """Key of the kernel's table in the manifest, where it is one of the manifest's."""
    diff: tuple[DiffLine, ...] = ()


@dataclass(frozen=True)
class State:
    """A variant's inputs."""

    made: Made
    circumstances: Circumstances | None
    """None where they are not known."""
    source: tuple[SourcePart, ...] | None
    """As above."""


def differences(before: State, after: State) -> list[Reason]:
    """Why `after` has another identity than `before`, the user's own changes first.

    Where what was recorded does not say, there is one reason that admits it.
    """
    old, new = before.made.job, after.made.job
    found = [*_sources(before, after), *_keys(old, new)]
    found += [*variant_differences(before.made.variant, after.made.variant), *_options(old, new)]
    found += _circumstances(before.circumstances, after.circumstances)
    if not found and old.get("identity") != new.get("identity"):
        found = [_moved(before, after)]
    return found


def _sources(before: State, after: State) -> Iterator[Reason]:
    old, new = before.made.job, after.made.job
    if old.get("source_digest") == new.get("source_digest"):
        return
    reasons = (
        list(source_differences(before.source, after.source))
        if before.source is not None and after.source is not None
        else []
    )
    yield from reasons or [Reason("source", f"{new['function']}, or what it reaches", str(new["source"]))]


def source_differences(before: Sequence[SourcePart], after: Sequence[SourcePart]) -> Iterator[Reason]:
    """The functions that differ, each with its lines, and constants of modules that have other values."""
    old = {(part.file, part.name): part for part in before}
    new = {(part.file, part.name): part for part in after}
    constants: dict[str, Reason] = {}
    for key, part in new.items():
        if key in old:
            diff = tuple(_diff(old[key], part))
            if diff:
                first = next((line.line for line in diff if line.sign == "+"), diff[0].line)
                yield Reason(
                    "source", f"in {part.name}" if part.name else "", f"{part.file}:{first}", diff=diff
                )
            for reason in _values(old[key], part):
                constants.setdefault(reason.text, reason)
        else:
            yield Reason("source", f"{part.name} is reached now", f"{part.file}:{part.line}")
    yield from constants.values()
    for key in old.keys() - new.keys():
        yield Reason("source", f"{old[key].name} is not reached any more", f"{old[key].file}:{old[key].line}")


def _values(old: SourcePart, new: SourcePart) -> Iterator[Reason]:
    """Names of a module that mean something else, where the function's own text does not say it."""
    for name in old.values.keys() & new.values.keys():
        if name == DECORATOR and old.values[name] != new.values[name]:
            text = f"the decorator of {new.name}: {old.values[name]} → {new.values[name]}"
            yield Reason("source", text, f"{new.file}:{new.line}")
        elif old.values[name] != new.values[name]:
            text = f"{name} = {old.values[name]} → {new.values[name]}, which {new.name} uses"
            yield Reason("source", text, f"{new.file}:{new.line}")


def _diff(old: SourcePart, new: SourcePart) -> Iterator[DiffLine]:
    """The lines of code that differ; comments, docstrings and empty lines do not count."""
    before, after = code_lines(old), code_lines(new)
    if old.name and _syntax(old.text) == _syntax(new.text):
        return
    matcher = difflib.SequenceMatcher(
        None, [text for _, text in before], [text for _, text in after], autojunk=False
    )
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag != "equal":
            yield from (DiffLine("-", line, text) for line, text in before[first:last])
            yield from (DiffLine("+", line, text) for line, text in after[start:end])


def code_lines(part: SourcePart) -> list[tuple[int, str]]:
    """The lines of a function with code, without comments and docstring, numbered as in the file; those of a whole file
    in CUDA C++ without the comments that end a line."""
    lines = part.text.splitlines()
    if not part.name:
        kept = [_COMMENT.sub("", line).rstrip() for line in lines]
        return [(part.line + index, line) for index, line in enumerate(kept) if line]
    text = textwrap.dedent(part.text)
    kept = text.splitlines()
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                kept[token.start[0] - 1] = kept[token.start[0] - 1][: token.start[1]]
    skipped: set[int] = set()
    with suppress(SyntaxError, ValueError, RecursionError):
        function = ast.parse(text).body[0]
        first = function.body[0] if isinstance(function, ast.FunctionDef) else function
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            skipped = set(range(first.lineno - 1, first.end_lineno or first.lineno))
    return [
        (part.line + index, line.rstrip())
        for index, line in enumerate(kept)
        if line.strip() and index not in skipped
    ]


def _syntax(text: str) -> str:
    """The syntax tree of a function as text; the text itself where it has none."""
    try:
        function = ast.parse(textwrap.dedent(text)).body[0]
    except (SyntaxError, ValueError, RecursionError, IndexError):
        return text
    if isinstance(function, ast.FunctionDef):
        first = function.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            function.body = function.body[1:]
    return ast.dump(function)


def _keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Keys of the manifest that go into a cubin besides those that its name shows."""
    for key in ("source", "function"):
        if old.get(key) != new.get(key):
            yield Reason("manifest", f"{key} = {old.get(key)} → {new.get(key)}", key=(key,))
    if bool(old.get("portable")) != bool(new.get("portable")):
        is_asked = "is asked for now" if new.get("portable") else "is not asked for any more"
        yield Reason("manifest", f"PTX for newer GPUs {is_asked}", key=("archs",))


def variant_differences(old: Variant, new: Variant) -> Iterator[Reason]:
    """What differs between two variants, each with the key of the manifest that says so."""
    for what, before, after in (("kernel", old.kernel, new.kernel), ("arch", old.arch, new.arch)):
        if before != after:
            yield Reason("manifest", f"{what} = {before} → {after}", key=("archs",) if what == "arch" else ())
    signatures = [each.signature for each in (old, new)]
    if old.matrix != new.matrix:  # From which the types follow.
        signatures = [[(name, type_.partition(":")[2]) for name, type_ in each] for each in signatures]
    rows = (
        ("matrix", old.matrix, new.matrix),
        ("args", *signatures),
        ("config", old.constexprs, new.constexprs),
        ("config", tuple(old.options.values().items()), tuple(new.options.values().items())),
    )
    for table, before, after in rows:
        for text, name in _changes(before, after):
            option = by_name(name) if table == "config" else None
            if option and option.scope == "request":
                yield Reason("option", text)
            else:
                yield Reason("manifest", text, key=(table, name))
    if old.guards != new.guards:
        texts = [
            " and ".join(guard.expression for guard in guards) or "always"
            for guards in (old.guards, new.guards)
        ]
        yield Reason("manifest", f"taken where {texts[0]} → {texts[1]}", key=("config",))
    if old.cost != new.cost:
        yield Reason(
            "manifest", f"cost = {old.cost or 'none'} → {new.cost or 'none'}", key=("config", "cost")
        )


def _changes(
    before: Iterable[tuple[str, Any]], after: Iterable[tuple[str, Any]]
) -> Iterator[tuple[str, str]]:
    """What differs between two tables, with the name."""
    old, new = dict(before), dict(after)
    for name in {**old, **new}:
        if name not in old or name not in new or (type(old[name]), old[name]) != (type(new[name]), new[name]):
            texts = (one_line(table[name]) if name in table else "none" for table in (old, new))
            yield f"{name} = {next(texts)} → {next(texts)}", name


def _options(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Options of the request; those of the manifest are in the variant's name."""
    for text, _ in _changes(_requested(old), _requested(new)):
        yield Reason("option", text)


def _requested(job: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    given = dict(job.get("options", {}))
    for option in options("request"):
        if option.changes_code and not option.tag:
            yield option.name, given.get(option.name, option.default)


def _circumstances(old: Circumstances | None, new: Circumstances | None) -> Iterator[Reason]:
    if old is None or new is None or old.id == new.id:
        return
    if old.compiler != new.compiler:
        version = (
            f"kbuild {old.kbuild} → {new.kbuild}" if old.kbuild != new.kbuild else f"kbuild {new.kbuild}"
        )
        yield Reason("compiler", f"{version}: {_files(old.files, new.files)}")
    elif old.kbuild != new.kbuild or old.format != new.format:
        yield Reason("kbuild", f"kbuild {old.kbuild} → {new.kbuild}")
    for name in {**old.tools, **new.tools}:
        if old.tools.get(name) != new.tools.get(name):
            before, after = (each.versions.get(name) or "of unknown version" for each in (old, new))
            text = f"{name} {before} → {after}" if before != after else f"{name} {after}, another file"
            yield Reason("tool", text)


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The files of the compiler that differ."""
    names = sorted(name for name in {**old, **new} if old.get(name) != new.get(name))
    shown = ", ".join(names[:_MAX_FILES]) + (
        f" and {len(names) - _MAX_FILES} more" if len(names) > _MAX_FILES else ""
    )
    return (
        f"{len(names)} file{'s' * (len(names) != 1)} of its compiler differ{'s' * (len(names) == 1)}: {shown}"
    )


def _moved(before: State, after: State) -> Reason:
    """What is left: places of statements, which some options put into a cubin."""
    given = dict(after.made.job.get("options", {}))
    named = [name for name in ("debug", "lineinfo") if given.get(name)]
    if named:
        return Reason(
            "source",
            f"its lines have moved, and {named[0]} puts them into the cubin",
            str(after.made.job["source"]),
        )
    missing = "the history does not say what that build was made with" if before.circumstances is None else ""
    return Reason("files", missing or "an input that the history does not have")
