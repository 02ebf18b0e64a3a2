"""A build's entry in the history: what it made, of what, and how long its steps took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kbuild import __version__
from kbuild.aot import toolchain
from kbuild.aot.artifact.sources import reached
from kbuild.aot.build.ninja import NinjaOutcome, step_times
from kbuild.aot.build.plan import LAUNCHER, WHEEL, Edge, Job, Plan
from kbuild.aot.build.step import CACHED
from kbuild.aot.history.ledger import (
    DECORATOR,
    BuildRun,
    Circumstances,
    History,
    Made,
    SourcePart,
    Step,
    append,
    encoded,
    encoded_source,
    read,
    rewrite,
)
from kbuild.aot.identity import FORMAT, compiler_files, digest
from kbuild.aot.manifest.model import below, language_of
from kbuild.compiler.frontend.sources.digest import closure
from kbuild.compiler.frontend.sources.files import find_function
from kbuild.compiler.frontend.sources.functions import SourceFunction
from kbuild.errors import KbuildError
from kbuild.options import CUDA

_FILE_DIGEST = 16
"""Characters of the digests of the compiler's files: enough to tell whether one has changed."""


def extend(
    project: Path,
    build: Path,
    planned: Plan,
    run: NinjaOutcome,
    made: Mapping[str, Mapping[str, Any]],
    source_digest: Callable[..., str],
) -> None:
    """Adds a build that ran steps.  `made` are the records of what is there now; `source_digest` as in
    `BuildOptions`.

    A disk that is full or read-only costs the entry, not the build.
    """
    if not run.steps:
        return
    history = read(build)
    number = history.builds[-1].number + 1 if history.builds else 1
    steps = tuple(_steps(build, planned, run))
    lines: list[bytes] = []
    new = list(_made(history, planned, made, number, {step.what: step.how for step in steps}))
    if new:
        current = _circumstances(planned, made)
        new = [Made(name, number, how, current.id, job) for name, how, job in new]
        if current.id not in history.circumstances:
            lines.append(encoded(current))
        for text, parts in _sources(project, planned, history, new, source_digest):
            lines.append(encoded_source(text, parts))
        lines += map(encoded, new)
    lines.append(encoded(BuildRun(number, time.time(), len(planned.jobs), steps)))
    with suppress(OSError):
        append(build, lines)
        if history.is_wasteful:
            rewrite(build, read(build).trimmed(job.variant.name for job in planned.jobs))


def _made(
    history: History,
    planned: Plan,
    made: Mapping[str, Mapping[str, Any]],
    number: int,
    how: Mapping[str, str],
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, how and job of what was made since it was noted last."""
    for job in planned.jobs:
        name, last = job.variant.name, history.last(job.variant.name)
        is_noted = last is not None and last.identity == (
            job.identity,
            job.portable,
            job.source,
            job.function,
        )
        if job.record in made and not is_noted:
            yield name, how.get(name, ""), job.fields()


def _steps(build: Path, planned: Plan, run: NinjaOutcome) -> Iterator[Step]:
    """The steps that ran, in the order in which they ended."""
    edges = {edge.description: edge for edge in planned.edges}
    times = step_times(build)
    failed = {failure.output for failure in run.failures}
    notes: dict[str, list[str]] = {}
    for step, line in run.said:
        notes.setdefault(step, []).append(line)
    for step in run.steps:
        edge = edges.get(step)
        if edge is None:
            continue
        what, kind = _named(edge)
        said = tuple(notes.get(step, ()))
        start, end = times.get(edge.outputs[0], (None, run.ended[step]))
        is_cached = any(line.startswith(CACHED) for line in said)
        how = "failed" if edge.outputs[0] in failed else "cache" if is_cached else "compiled"
        if how == "failed":  # What ninja's log has is of an earlier build.
            start, end = None, run.ended[step]
        yield Step(what, kind, start, end, how, tuple(line for line in said if line != CACHED))


def _named(edge: Edge) -> tuple[str, str]:
    """What a step makes, and its kind."""
    if edge.record == WHEEL:
        return edge.description.removeprefix("package "), "package"
    if edge.outputs[0] == LAUNCHER:
        return "launcher", "launcher"
    return edge.description.removeprefix("compile "), "compile"


def circumstances_of(compiler: str, tools: Mapping[str, str], versions: Mapping[str, str]) -> Circumstances:
    """What variants are made with by this kbuild: digests of its compiler and its tools, and the tools' versions."""
    named = {"kbuild": __version__, "compiler": compiler, "format": FORMAT, "tools": dict(tools)}
    files = {name: found[:_FILE_DIGEST] for name, found in compiler_files()}
    return Circumstances(
        id=digest(named)[:_FILE_DIGEST],
        kbuild=__version__,
        compiler=compiler,
        format=FORMAT,
        files=files,
        tools=dict(tools),
        versions=versions,
    )


def _circumstances(planned: Plan, made: Mapping[str, Mapping[str, Any]]) -> Circumstances:
    facts = next(made[job.record] for job in planned.jobs if job.record in made)
    versions = {"ptxas": str(facts.get("ptxas_version", "")), **toolchain.llvm_versions()}
    return circumstances_of(planned.compiler, planned.tools, versions)


def _sources(
    project: Path,
    planned: Plan,
    history: History,
    new: list[Made],
    source_digest: Callable[..., str],
) -> Iterator[tuple[str, tuple[SourcePart, ...]]]:
    """The texts that are not in the history yet, by their digests."""
    names = {entry.name for entry in new}
    wanted = {
        job.source_digest: job
        for job in planned.jobs
        if job.variant.name in names and job.source_digest not in history.sources
    }
    for found, job in wanted.items():
        include = below(job.variant.options.include, project)
        with suppress(KbuildError, OSError, UnicodeDecodeError):
            parts = source_parts(project, job)
            # Else it was edited while it was compiled.
            given = (str(project / job.source), job.function, False, *([include] if include else ()))
            if source_digest(*given) == found:
                yield found, parts


def source_parts(project: Path, job: Job) -> tuple[SourcePart, ...]:
    """The text of a kernel and all that it reaches: functions in Python, whole files in CUDA C++.

    Raises KbuildError or OSError where it cannot be read.
    """
    source, function = job.source, job.function
    if language_of(source) == CUDA:
        return tuple(_files(project, source, job.variant.options.include))
    parts: list[SourcePart] = []
    for part in closure(find_function(str(project / source), function)):
        node, path = part.function.node, Path(part.function.file)
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        values = dict(part.values) | {DECORATOR: _decorator(part.function)}
        parts.append(SourcePart(_shown(path, project), part.function.name, node.lineno, text, values))
    return tuple(parts)


def _files(project: Path, source: str, include: str | None) -> Iterator[SourcePart]:
    """The file of a kernel, and the headers of the project that it includes."""
    root = Path(os.path.abspath(project))
    first = root / source
    for file in sorted(
        reached([first], root, include.split(",") if include else ()), key=lambda path: path != first
    ):
        yield SourcePart(_shown(file, root), "", 1, file.read_text(encoding="utf-8"))


def _decorator(function: SourceFunction) -> str:
    flags = (name for name in ("noinline", "debug") if getattr(function, name))
    return " ".join([function.kind, *flags])


def _shown(path: Path, project: Path) -> str:
    with suppress(ValueError, OSError):
        return path.resolve().relative_to(project.resolve()).as_posix()
    return path.as_posix()


def unrecorded(job: Job) -> Made:
    """A variant that is there although the history does not say how it came to be."""
    return Made(job.variant.name, 0, "", "", job.fields())
