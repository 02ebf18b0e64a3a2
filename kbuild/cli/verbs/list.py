"""`kbuild list`: the variants that the manifest asks for, and the facts of those that are built."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kbuild.aot.build.project import BUILD, load_variants
from kbuild.aot.build.shards import WHOLE
from kbuild.aot.identity import unseal
from kbuild.aot.manifest.expand import notes_on_size, notes_on_sources
from kbuild.cli.verbs.show import compile_options, size_of, warnings_of


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    manifest, expansion = load_variants(
        project, options.archs, options.kernels, compile_options(options), options.shard or WHOLE
    )
    rows: list[dict[str, Any]] = []
    for variant in expansion.variants:
        facts = project / BUILD / variant.arch / variant.kernel / f"{variant.file_name}.json"
        known = unseal(facts.read_bytes()) if facts.is_file() else None
        rows.append({"name": variant.name, "variant": str(variant), "built": known})
    if options.json:
        excluded = [
            {"kernel": e.kernel, "arch": e.arch, "matrix": dict(e.matrix), "reason": e.reason}
            for e in expansion.excluded
        ]
        print(json.dumps({"variants": rows, "excluded": excluded}, indent=1))
        return 0
    for row in rows:
        built = row["built"]
        facts = (
            [size_of(built["size"]), f"{built['registers']} registers", *warnings_of(built)] if built else []
        )
        print("  ".join([row["name"], ", ".join(facts)]).rstrip() if options.verbose else row["name"])
    for excluded in expansion.excluded if options.verbose else ():
        values = ", ".join(f"{name} = {value}" for name, value in excluded.matrix)
        print(f"not {excluded.kernel}.{excluded.arch} {values}: {excluded.reason}")
    if not options.quiet:
        for note in notes_on_sources(manifest, options.kernels):
            print(f"note: {note}", file=sys.stderr)
        for note in notes_on_size(manifest, expansion):
            print(f"warning: {note}", file=sys.stderr)
        print(f"{len(rows)} variants, {len(expansion.excluded)} excluded", file=sys.stderr)
    return 0
