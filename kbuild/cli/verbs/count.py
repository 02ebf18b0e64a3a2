"""`kbuild count`: transactions and bank conflicts of launches on the emulator, by source line, and occupancy."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kbuild.aot.build.project import load_variants
from kbuild.aot.toolchain import find_ptxas
from kbuild.aot.verify.count import count_variant
from kbuild.errors import ErrorGroup, KbuildError, UsageError
from kbuild.options import DEFAULTS


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    manifest, expansion = load_variants(project, options.archs, options.kernels, DEFAULTS)
    variants = [
        variant
        for variant in expansion.variants
        if not options.variant or options.variant in (variant.name, variant.file_name)
    ]
    if not variants:
        raise UsageError(f"no variant {options.variant}", help="kbuild list shows them")
    ptxas = find_ptxas(options.environment, manifest.package.ptxas, manifest.package.min_driver).path
    found, errors = [], list[KbuildError]()
    for variant in variants:
        try:
            counts = count_variant(project, manifest, variant, options.case, ptxas)
        except KbuildError as error:
            errors.append(error)
            continue
        found.append(counts)
        if not options.json and not options.quiet:
            print(counts.table(project), end="\n\n")
    if options.json:
        print(json.dumps([counts.encode() for counts in found], indent=1))
    if errors:
        raise ErrorGroup(errors)
    return 1 if any(counts.findings for counts in found) else 0
