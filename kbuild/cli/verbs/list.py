"""`kbuild list`: the variants that the manifest asks for, and the facts of those that are built."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kbuild.aot.build.project import BUILD, load_variants
from kbuild.aot.build.results import warnings_of
from kbuild.aot.identity import unseal
from kbuild.aot.manifest.expand import Variant, notes_on_size, notes_on_sources
from kbuild.aot.shards.shard import WHOLE
from kbuild.cli.verbs.show import compile_options, size_of


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    manifest, expansion = load_variants(
        project, options.archs, options.kernels, compile_options(options), options.shard or WHOLE
    )
    variants = expansion.variants
    if options.json:
        excluded = [
            {"kernel": e.kernel, "arch": e.arch, "matrix": dict(e.matrix), "reason": e.reason}
            for e in expansion.excluded
        ]
        rows = [
            {"name": variant.name, "variant": str(variant), "built": _facts(project, variant)}
            for variant in variants
        ]
        print(json.dumps({"variants": rows, "excluded": excluded}, indent=1))
        return 0
    lines = [_described(project, variant) if options.verbose else variant.name for variant in variants]
    print("".join(f"{line}\n" for line in lines), end="")
    for excluded in expansion.excluded if options.verbose else ():
        values = ", ".join(f"{name} = {value}" for name, value in excluded.matrix)
        print(f"not {excluded.kernel}.{excluded.arch} {values}: {excluded.reason}")
    if not options.quiet:
        for note in notes_on_sources(manifest, options.kernels):
            print(f"note: {note}", file=sys.stderr)
        for note in notes_on_size(manifest, expansion):
            print(f"warning: {note}", file=sys.stderr)
        print(f"{len(variants)} variants, {len(expansion.excluded)} excluded", file=sys.stderr)
    return 0


def _facts(project: Path, variant: Variant) -> dict[str, Any] | None:
    """What is known of a variant that is built."""
    facts = project / BUILD / variant.arch / variant.kernel / f"{variant.file_name}.json"
    return unseal(facts.read_bytes()) if facts.is_file() else None


def _described(project: Path, variant: Variant) -> str:
    """The name of a variant, and what is known of it."""
    built = _facts(project, variant)
    facts = [size_of(built["size"]), f"{built['registers']} registers", *warnings_of(built)] if built else []
    return "  ".join([variant.name, ", ".join(facts)]).rstrip()
