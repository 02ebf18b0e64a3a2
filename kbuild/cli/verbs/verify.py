"""`kbuild verify`: the variants' PTX runs on the CPU, and has to do what the kernel means."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from kbuild.aot.build import MANIFEST, expand_known
from kbuild.aot.load import load
from kbuild.aot.verify import Verdict, verify


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    manifest = load(project / MANIFEST, (project / MANIFEST).as_posix())
    variants = expand_known(manifest, options.archs, options.kernels).variants
    if options.dry_run:
        print("\n".join(variant.name for variant in variants))
        return 0
    verdicts: list[Verdict] = []
    for verdict in verify(project, manifest, variants):
        verdicts.append(verdict)
        if not options.json and not (options.quiet and verdict.state != "failed"):
            print(f"[{len(verdicts)}/{len(variants)}] {_line(verdict)}", flush=True)
        if verdict.state == "failed" and not options.keep_going:
            break
    if options.json:
        print(json.dumps([asdict(verdict) | {"state": verdict.state} for verdict in verdicts], indent=1))
    counts = Counter(verdict.state for verdict in verdicts)
    if not options.quiet:
        left = len(variants) - len(verdicts)
        shown = [f"{counts[state]} {state}" for state in ("ok", "failed", "no cases")]
        print(", ".join(shown + [f"{left} not tried; -k tries them"] * (left > 0)), file=sys.stderr)
    return 1 if counts["failed"] else 0


def _line(verdict: Verdict) -> str:
    """A verdict as a line of the table, and below it what is wrong."""
    worst = max((check.error for check in verdict.checks), default=0.0)
    facts = f"  {len(verdict.checks)} runs, largest error {worst:.1e}, {verdict.seconds:.1f} s" if verdict.checks else ""
    lines = [f"{verdict.state:8}  {verdict.variant}{facts}"]
    lines += [f"    {line}" for line in verdict.problem.splitlines()]
    for check in verdict.checks:
        for problem in check.problems:
            lines.append(f"    {check.case} ({check.schedule})")
            lines += [f"      {line}" for line in problem.splitlines()]
    return "\n".join(lines)
