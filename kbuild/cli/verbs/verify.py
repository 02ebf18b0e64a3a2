"""`kbuild verify`: runs the variants' PTX on the CPU, and compares it with the kernel's meaning."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from kbuild.aot.build.cache import usable
from kbuild.aot.build.progress import Bar, Lines, Progress
from kbuild.aot.build.project import load_variants
from kbuild.aot.environment import cache_directory, number
from kbuild.aot.manifest.expand import Expansion, Variant
from kbuild.aot.manifest.model import Manifest
from kbuild.aot.manifest.reader import suggestion
from kbuild.aot.shards.shard import WHOLE
from kbuild.aot.toolchain import ptxas_of_code
from kbuild.aot.verify.session import LONGEST_VARIANT, VerifyOptions, verify
from kbuild.aot.verify.verdict import BOUNDS, COARSEST, Check, Verdict, Wanted, cause_of
from kbuild.cli.verbs.show import compile_options
from kbuild.errors import UsageError

MAX_PROBLEMS = 3
"""Runs of a variant that went wrong which are shown in full."""
_GUESSED = "one launch is guessed, with arrays as large as what it touches"
_CAPTURED = (
    "launches are the smallest that were captured, with a few programs of each; numbers in arrays are made up"
)


def run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    project = Path(options.directory)
    manifest, expansion = load_variants(
        project, options.archs, options.kernels, compile_options(options), options.shard or WHOLE
    )
    variants = _chosen(expansion, options)
    left_out = {kernel.name: kernel.unverified for kernel in manifest.kernels if kernel.unverified}
    for name in dict.fromkeys(variant.kernel for variant in variants if variant.kernel in left_out):
        print(f"note: {name} is not verified: {left_out[name]}", file=sys.stderr)
    variants = [variant for variant in variants if variant.kernel not in left_out]
    if options.dry_run:
        print("\n".join(variant.name for variant in variants))
        return 0
    progress = progress_of(options)
    verdicts: list[Verdict] = []
    shown = _Shown(options.verbose, options.lenient)
    ptxas = ptxas_of_code(options.environment, manifest.package.ptxas, manifest.package.min_driver)
    verifying = verify(project, manifest, variants, _how(options, progress, ptxas))
    with closing(verifying) as found:  # However this ends, the workers end with it.
        for verdict in found:
            verdicts.append(verdict)
            if not (verdict.cached or options.verbose):
                progress.step(len(verdicts), len(variants), verdict.variant)
            if verdict.state != "ok" or options.verbose:
                progress.message(shown.described(verdict))
            if verdict.state == "failed" and not options.keep_going:
                break
    progress.finish()
    places = {variant.name: place for place, variant in enumerate(variants)}
    verdicts.sort(key=lambda verdict: places[verdict.variant])
    if options.json:
        print(json.dumps([verdict.encode() for verdict in verdicts], indent=1))
    elif not options.quiet:
        print(_table(verdicts))
        print(
            "bounds: "
            + ", ".join(f"{name} {bound:g}" for name, bound in BOUNDS.items())
            + f", 8 bits {COARSEST:g}"
        )
    failed = sum(verdict.state == "failed" for verdict in verdicts)
    if not options.quiet:
        for note in dict.fromkeys(_notes(manifest, verdicts)):
            print(f"note: {note}", file=sys.stderr)
        print(_summary(verdicts, len(variants) - len(verdicts), time.monotonic() - started), file=sys.stderr)
    return 1 if failed else 0


def _notes(manifest: Manifest, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Where the launches were not those of the manifest, and what is worth knowing of them."""
    for verdict in verdicts:
        kernel = manifest.kernel(verdict.kernel)
        if kernel.verify is None and not kernel.recorded:
            yield f"{kernel.name} has no [kernel.verify]: {_GUESSED}"
    if any(manifest.kernel(verdict.kernel).recorded for verdict in verdicts):
        yield _CAPTURED
    for verdict in verdicts:
        yield from (f"{verdict.kernel} {check.note}" for check in verdict.checks if check.note)


def _chosen(expansion: Expansion, options: argparse.Namespace) -> list[Variant]:
    """The variants of the command line.  UsageError for names that the manifest does not have."""
    variants = list(expansion.variants)
    if not options.variant:
        return variants
    chosen = [variant for variant in variants if options.variant in (variant.name, variant.file_name)]
    if not chosen:
        names = [variant.name for variant in variants]
        raise UsageError(
            f"no variant {options.variant}",
            help=suggestion(options.variant, names) or "kbuild list shows them",
        )
    return chosen


def _how(options: argparse.Namespace, progress: Progress, ptxas: str | None) -> VerifyOptions:
    jobs = options.jobs or number(options.environment, "MAX_JOBS") or len(os.sched_getaffinity(0))
    cache = None if options.no_cache else cache_directory(options.environment)
    if cache is not None and (why := usable(cache)):
        print(f"warning: verifying without a cache: {why}", file=sys.stderr)
        cache = None
    wanted = Wanted(options.case, options.data, options.schedule, options.timing)
    return VerifyOptions(
        jobs, cache, float(options.limit or LONGEST_VARIANT), wanted, options.lenient, ptxas, progress.busy
    )


def progress_of(options: argparse.Namespace) -> Progress:
    """How the command line reports what is under way."""
    wished = any(options.environment.get(name) for name in ("CI", "NO_COLOR"))
    plain = wished or options.color == "never" or not sys.stderr.isatty()
    return Progress() if options.quiet else Bar() if not plain or options.color == "always" else Lines()


class _Shown:
    """Verdicts as text: each cause is shown once, in full where it first occurs."""

    def __init__(self, verbose: bool, lenient: bool) -> None:
        self.verbose, self.lenient = verbose, lenient
        self._first: dict[tuple[str, str], str] = {}
        """The variant that a cause was shown for, by kernel and cause."""

    def described(self, verdict: Verdict) -> str:
        """A verdict, and below it the errors or, if `verbose`, the outcome of every run."""
        lines = [f"{verdict.state:6}  {verdict.variant}"]
        why = [verdict.problem, verdict.unfinished]
        lines += [f"    {line}" for text in why for line in text.splitlines()]
        wrong = [check for check in verdict.checks if check.problems]
        new = {
            check: [problem for problem in check.problems if self._is_new(verdict, problem)]
            for check in wrong
        }
        shown = [check for check in wrong if new[check]][:MAX_PROBLEMS]
        unfinished = {check.unfinished: check for check in verdict.checks[::-1] if check.unfinished}
        shown = verdict.checks if self.verbose else [*shown, *unfinished.values()]
        for check in shown:
            lines += self._run(verdict, check, check.problems if self.verbose else new.get(check, []))
        left = [check for check in wrong if check not in shown]
        elsewhere = {
            self._first[verdict.kernel, cause_of(problem)] for check in left for problem in check.problems
        }
        if left:
            as_in = sorted(elsewhere - {verdict.variant})
            where = f"as shown for {as_in[0]}" if as_in else "by the same causes"
            lines.append(
                f"    {len(left)} runs{' more' if shown else ''} of {len(verdict.checks)} are wrong, {where}"
            )
        return "\n".join(lines)

    def _is_new(self, verdict: Verdict, problem: str) -> bool:
        key = verdict.kernel, cause_of(problem)
        is_new = key not in self._first
        self._first.setdefault(key, verdict.variant)
        return is_new

    def _run(self, verdict: Verdict, check: Check, problems: Sequence[str]) -> list[str]:
        """One run, and some of its errors."""
        how = "exactly" if check.exact else f"at {check.error:.3f} of the bounds"
        came = "wrong" if check.problems else f"equal {how}" if check.exact else f"equal, {how}"
        came = "not finished" if check.unfinished else came
        lines = [
            f"    {check.run.case}: {check.launch} ({check.run.data}, {check.run.schedule}, {check.run.timing}): {came}"
        ]
        for problem in (*problems, check.unfinished):
            lines += [f"      {line}" for line in problem.splitlines()]
        if check.problems or check.unfinished:
            words = (
                f"{shlex.quote(verdict.variant)} {check.run.options()}{' --lenient' if self.lenient else ''}"
            )
            lines.append(f"      repeat it with: kbuild verify --variant {words}")
        return lines


def _table(verdicts: Sequence[Verdict]) -> str:
    """A line for each kernel and architecture."""
    rows = [("kernel", "arch", "variants", "ok", "launches", "runs", "exact", "largest error", "seconds")]
    for kernel, arch in dict.fromkeys((verdict.kernel, verdict.arch) for verdict in verdicts):
        here = [verdict for verdict in verdicts if (verdict.kernel, verdict.arch) == (kernel, arch)]
        checks = [check for verdict in here for check in verdict.checks]
        launches = sum(len({check.run.case for check in verdict.checks}) for verdict in here)
        worst = max((check.error for check in checks), default=0.0)
        rows.append(
            (
                kernel,
                arch,
                str(len(here)),
                str(sum(verdict.state == "ok" for verdict in here)),
                str(launches),
                str(len(checks)),
                str(sum(check.exact for check in checks)),
                f"{worst:.2f} of bound",
                f"{sum(verdict.seconds for verdict in here):.1f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(_aligned(row, widths)).rstrip() for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Names to the left, numbers to the right."""
    return [
        text.ljust(width) if place < 2 else text.rjust(width)
        for place, (text, width) in enumerate(zip(row, widths))
    ]


def _summary(verdicts: Sequence[Verdict], left: int, seconds: float) -> str:
    count = Counter(verdict.state for verdict in verdicts)
    cached = sum(verdict.cached for verdict in verdicts)
    parts = [f"{count['ok']} ok", f"{count['failed']} failed"]
    parts += [f"{count['unfinished']} not finished, nothing wrong so far"] * (count["unfinished"] > 0)
    parts.append(f"{cached} known from before")
    if shared := sum(verdict.shared for verdict in verdicts):
        runs = sum(len(verdict.checks) for verdict in verdicts if not verdict.cached)
        parts.append(f"{shared} of {runs} runs done once for variants with the same code")
    return ", ".join(parts + [f"{left} not tried; -k tries them"] * (left > 0)) + f"; {seconds:.1f} s"
