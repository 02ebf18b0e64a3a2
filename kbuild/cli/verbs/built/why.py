"""`kbuild why`: what the next build would compile, and which input has changed; else what the last one was for."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kbuild.aot.build.cache import Cache
from kbuild.aot.build.plan import Job
from kbuild.aot.build.project import MANIFEST, BuildOptions
from kbuild.aot.environment import cache_directory
from kbuild.aot.history.compare import Reason
from kbuild.aot.history.now import Answer, Project, is_cached
from kbuild.cli.verbs.built.chosen import chosen
from kbuild.cli.verbs.show import compile_options

MAX_LINES = 12
"""Lines of the source that are shown for one function."""
_TEXTS = {
    "changed": "would be compiled again",
    "new": "was never built here",
    "damaged": "would be made again",
    "gone": "is not asked for",
    "same": "up to date",
}


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    asked = BuildOptions(
        project=project,
        environment=options.environment,
        archs=tuple(options.archs),
        compile=compile_options(options),
        display=(project / MANIFEST).as_posix(),
    )
    state = Project.of(asked)
    removed, older = _gone(state, options)
    answers = [
        state.answer(name) for name in chosen(options.variants, [*state.jobs, *removed], [*removed, *older])
    ]
    if options.json:
        print(json.dumps([_json(answer) for answer in answers], indent=1))
        return 0
    if not options.variants:
        answers = [answer for answer in answers if answer.state != "same"]
    cache = Cache(None if options.no_cache else cache_directory(options.environment))
    for group in _grouped(answers):
        print("\n".join(_text(group, state, options.verbose, is_cached(group[0], cache.get))))
    if not options.quiet:
        print(_summary(answers, len(state.jobs)), file=sys.stderr)
    return 0


def _gone(state: Project, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Variants that were built and are not asked for any more: those whose files a whole build would remove, and the
    others."""
    removed: list[str] = []
    older: list[str] = []
    for name in state.history.made.keys() - state.jobs.keys():
        job = Job.decode(state.history.made[name][-1].job)
        if not options.archs or job.variant.arch in options.archs:
            (removed if (state.build / job.record).is_file() else older).append(name)
    return sorted(removed), sorted(older)


def _grouped(answers: Sequence[Answer]) -> list[list[Answer]]:
    """The variants for which the same is to be said, together."""
    groups: dict[tuple[object, ...], list[Answer]] = {}
    for answer in answers:
        alike: tuple[object, ...] = (answer.state, answer.reasons, answer.last.build if answer.last else 0)
        if answer.state == "new":  # Each differs from the nearest in its own way.
            alike = (answer.state, answer.name.split(".")[0], tuple(_heads(answer.reasons)))
        groups.setdefault(alike, []).append(answer)
    return list(groups.values())


def _heads(reasons: Sequence[Reason]) -> list[str]:
    return [reason.place for reason in reasons]


def _text(group: Sequence[Answer], state: Project, is_verbose: bool, is_in_cache: bool) -> list[str]:
    first, others = group[0], group[1:]
    lines = [f"{first.name}: {_TEXTS[first.state]}{_ending(first, state)}"]
    for reason in first.reasons:
        lines += _reason(reason)
    if is_in_cache and first.state in ("changed", "new", "damaged"):
        lines.append("  its cubin is in the cache, so that no compiler runs")
    if others and is_verbose:
        lines += ["likewise:", *(f"  {answer.name}" for answer in others)]
    elif others:
        lines.append(f"  likewise {len(others)} other{'s' * (len(others) > 1)}; -v names them")
    return lines


def _ending(answer: Answer, state: Project) -> str:
    """What is known besides the reasons."""
    because = ", because:" if answer.reasons else ""
    last = answer.last
    if answer.state == "new":
        return f"; it differs from {answer.nearest} in:" if answer.nearest else ""
    if answer.state == "gone":
        return ("" if answer.reasons else " by this manifest") + because
    if answer.state != "same" or last is None:
        return because
    if not last.build:
        return "; which build made it is not known"
    ended = {build.number: build.ended for build in state.history.builds}.get(last.build)
    when = time.strftime(", %Y-%m-%d %H:%M", time.localtime(ended)) if ended else ""
    how = {"compiled": "compiled it", "cache": "took it from the cache"}.get(last.how, "made it")
    return f"; build {last.build}{when}, {how}" + (because or ", as the first")


def _reason(reason: Reason) -> list[str]:
    place = f"{reason.place}: " if reason.place else ""
    lines = [f"  {reason.kind:9}{place}{reason.text}".rstrip(": ")]
    width = max((len(str(line.line)) for line in reason.diff), default=0)
    shown = reason.diff if len(reason.diff) <= MAX_LINES else reason.diff[: MAX_LINES - 1]
    lines += [f"    {line.sign} {line.line:{width}}  {line.text}" for line in shown]
    if len(shown) < len(reason.diff):
        lines.append(f"    and {len(reason.diff) - len(shown)} lines more")
    return lines


def _summary(answers: Sequence[Answer], count: int) -> str:
    number = {state: sum(answer.state == state for answer in answers) for state in _TEXTS}
    made = number["changed"] + number["new"] + number["damaged"]
    text = (
        f"{made} of {count} variants would be made" if made else f"{count} variants, and nothing to compile"
    )
    return text + (f"; {number['gone']} not asked for any more" if number["gone"] else "")


def _json(answer: Answer) -> dict[str, object]:
    last = answer.last
    return {
        "variant": answer.name,
        "state": answer.state,
        "reasons": [
            asdict(reason) | {"diff": [line._asdict() for line in reason.diff]} for reason in answer.reasons
        ],
        "nearest": answer.nearest or None,
        "build": last.build if last else None,
        "how": last.how if last else None,
    }
