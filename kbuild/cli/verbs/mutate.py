"""`kbuild mutate`: how many mistakes in the variants' PTX `kbuild verify` would find."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbuild.aot.build.project import load_variants
from kbuild.aot.environment import number
from kbuild.aot.manifest.expand import Variant
from kbuild.aot.toolchain import ptxas_of_code
from kbuild.aot.verify.pool import Crash, run_jobs
from kbuild.cli.verbs.show import compile_options
from kbuild.cli.verbs.verify import progress_of
from kbuild.errors import UsageError

LONGEST_VARIANT = 3600.0
"""Seconds after which a variant is given up."""


def run(options: argparse.Namespace) -> int:
    os.putenv(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy is imported after this; there are as many workers as processors.
    from kbuild.aot.verify.mutants import MutantsOutcome, marks_of, tried, verdict

    started = time.monotonic()
    project = Path(options.directory)
    manifest, expansion = load_variants(project, options.archs, options.kernels, compile_options(options))
    variants = _chosen(expansion.variants, options)
    if options.dry_run:
        print("\n".join(variant.name for variant in variants))
        return 0
    ptxas = ptxas_of_code(options.environment, manifest.package.ptxas, manifest.package.min_driver)
    marks = marks_of(Path(options.directory, options.marks)) if options.marks else ()
    jobs = options.jobs or number(options.environment, "MAX_JOBS") or len(os.sched_getaffinity(0))

    def work(variant: Variant) -> MutantsOutcome:
        return tried(project, manifest, variant, options.limit or None, options.group, marks, ptxas)

    progress = progress_of(options)
    outcomes: list[MutantsOutcome] = []
    progress.step(0, len(variants), f"{len(variants)} variants")
    for variant, outcome in run_jobs(
        [[variant] for variant in variants], work, jobs, LONGEST_VARIANT, progress.busy
    ):
        outcome = MutantsOutcome(variant.name, problem=outcome.why) if isinstance(outcome, Crash) else outcome
        outcomes.append(outcome)
        progress.finish()
        if not options.quiet and not options.json:
            print(f"[{len(outcomes)}/{len(variants)}] {outcome.line}", flush=True)
    progress.finish()
    found = verdict(outcomes, marks)
    if options.json:
        print(json.dumps([result for outcome in outcomes for result in outcome.encode()], indent=1))
    elif not options.quiet:
        print(found.text)
        print(
            f"{sum(outcome.clean for outcome in outcomes)} runs of unchanged kernels, {time.monotonic() - started:.0f} s"
        )
    for problem in found.problems:
        print(problem, file=sys.stderr)
    return 1 if found.problems else 0


def _chosen(variants: Sequence[Variant], options: argparse.Namespace) -> list[Variant]:
    """The variants of the command line: all that have the name, or some of each kernel and architecture."""
    if options.variant:
        chosen = [variant for variant in variants if options.variant in (variant.name, variant.file_name)]
        if not chosen:
            raise UsageError(f"no variant {options.variant}", help="kbuild list shows them")
        return chosen
    return list(_sampled(variants, options.sample or 1))


def _sampled(variants: Sequence[Variant], count: int) -> Iterator[Variant]:
    """So many variants of each kernel and architecture, from all over the list."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.kernel, variant.arch), []).append(variant)
    for group in groups.values():
        if len(group) <= count:
            yield from group
        else:
            yield from (group[(2 * place + 1) * len(group) // (2 * count)] for place in range(count))
