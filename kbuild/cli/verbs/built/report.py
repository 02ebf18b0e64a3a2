"""`kbuild report`: the state of the library as one HTML file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kbuild.aot.build.cache import Cache, usable
from kbuild.aot.build.progress import Bar, Lines, Progress
from kbuild.aot.build.project import MANIFEST, BuildOptions
from kbuild.aot.environment import cache_directory, number
from kbuild.aot.history.now import Project
from kbuild.aot.report.collect import summary
from kbuild.aot.report.detail import DetailTask, details
from kbuild.aot.report.page import page
from kbuild.aot.toolchain import find_nvdisasm
from kbuild.cli.verbs.built.chosen import chosen
from kbuild.cli.verbs.show import compile_options, size_of, write

OUTPUT = "report.html"
DETAILS = 16_000_000
"""Bytes of details that a page has unless --max says otherwise."""


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    output = Path(options.output or OUTPUT)
    asked = BuildOptions(
        project=project,
        environment=options.environment,
        archs=tuple(options.archs),
        compile=compile_options(options),
        display=(project / MANIFEST).as_posix(),
    )
    state = Project.of(asked)
    names = chosen(options.variants, state.jobs) if options.variants else _in_turn(state)
    if options.dry_run:
        print("\n".join(names))
        return 0
    tasks = _tasks(state, names, options)
    progress = _progress(options)
    found: list[tuple[str, str]] = []
    limit = DETAILS if options.max is None else options.max
    jobs = options.jobs or number(options.environment, "MAX_JOBS") or len(os.sched_getaffinity(0))
    made = 0

    def note(name: str) -> None:
        nonlocal made
        made += 1
        progress.step(made, len(tasks), f"compile {name} with its passes")

    for one in details(tasks, _cache(options), jobs, limit, note):
        found.append(one)
    progress.finish()
    text = page(summary(state), found)
    write(output, text.encode())
    if options.json:
        print(json.dumps(_json(output, text, state, found, names), indent=1))
    elif not options.quiet:
        print(_said(output, text, found, names), file=sys.stderr)
    return 0


def _in_turn(state: Project) -> list[str]:
    """All variants, those of one kernel and architecture in turn with those of the others, so that a page with room
    for some has some of each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, job in state.jobs.items():
        groups.setdefault((job.variant.kernel, job.variant.arch), []).append(name)
    longest = max(map(len, groups.values()), default=0)
    return [group[place] for place in range(longest) for group in groups.values() if place < len(group)]


def _tasks(state: Project, names: Sequence[str], options: argparse.Namespace) -> list[DetailTask]:
    nvdisasm = find_nvdisasm(options.environment)
    return [
        DetailTask(
            job=job,
            source=state.source(job) or (),
            project=str(state.options.project.resolve()),
            ptxas=state.ptxas.path,
            nvdisasm=nvdisasm.path if nvdisasm else "",
            cubin=str((state.build / f"{job.stem}.cubin").resolve()),
        )
        for job in (state.jobs[name] for name in names)
    ]


def _progress(options: argparse.Namespace) -> Progress:
    wished = any(options.environment.get(name) for name in ("CI", "NO_COLOR"))
    plain = wished or options.color == "never" or not sys.stderr.isatty()
    return Progress() if options.quiet else Bar() if not plain or options.color == "always" else Lines()


def _cache(options: argparse.Namespace) -> Cache:
    directory = None if options.no_cache else cache_directory(options.environment)
    return Cache(directory if directory is not None and not usable(directory) else None)


def _said(output: Path, text: str, found: Sequence[object], names: Sequence[str]) -> str:
    left = len(names) - len(found)
    more = f"; {left} others did not fit, --max makes room, and naming variants chooses" if left else ""
    return f"{output}: {size_of(len(text.encode()))}, with the passes and code of {len(found)} variants{more}"


def _json(
    output: Path, text: str, state: Project, found: Sequence[tuple[str, str]], names: Sequence[str]
) -> dict[str, object]:
    return {
        "report": str(output),
        "bytes": len(text.encode()),
        "variants": len(state.jobs),
        "details": [name for name, _ in found],
        "left_out": len(names) - len(found),
    }
