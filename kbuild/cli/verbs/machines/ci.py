"""`kbuild ci`: the jobs that build a project on several machines, for a system of continuous integration."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from kbuild.aot.build.project import BUILD, load_variants
from kbuild.aot.shards.costs import measured, seconds_of
from kbuild.aot.shards.jobs import AXES, jobs_of
from kbuild.aot.shards.workflows import FORMS
from kbuild.cli.grammar.machines import LIMIT
from kbuild.errors import UsageError
from kbuild.options import DEFAULTS


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    axes = [axis for axis in options.by.split(",") if axis]
    if unknown := [axis for axis in axes if axis not in AXES]:
        raise UsageError(
            f"--by {options.by}: no {unknown[0]}", help=f"it takes {','.join(AXES)}, or one of them"
        )
    manifest, expansion = load_variants(project, options.archs, (), DEFAULTS)
    variants = expansion.variants
    known = measured(project / BUILD)
    count = options.shards or (1 if axes else 8)
    jobs = jobs_of(variants, seconds_of(project, manifest, variants, known), count, axes)
    seconds = [job.seconds for job in jobs]
    how = "measured" if all(variant.name in known for variant in variants) else "estimated"
    said = f"{len(variants)} variants, {len(jobs)} jobs of {min(seconds):.1f} to {max(seconds):.1f} CPU seconds, as {how}"
    words = ["kbuild", "ci", options.form, *_given(options)]
    print(FORMS[options.form](jobs, f"# {shlex.join(words)}: {said}.\n", options.max), end="")
    if not options.quiet:
        print(said, file=sys.stderr)
    return 0


def _given(options: argparse.Namespace) -> list[str]:
    """The options of the command line."""
    words = [word for arch in options.archs for word in ("--arch", arch)]
    words += ["--shards", str(options.shards)] if options.shards else []
    words += ["--by", options.by] if options.by else []
    return words + (["--max", options.max] if options.max != LIMIT else [])
