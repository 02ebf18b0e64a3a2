"""`kbuild export-hub`: wheels as the folder of a repository on the Hugging Face Hub."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from kbuild.aot.artifact.hub import METADATA, hub_files
from kbuild.aot.build import project as builder
from kbuild.aot.build import results
from kbuild.aot.files import write_files
from kbuild.cli.verbs.build import progress_of, request_of
from kbuild.errors import ErrorGroup, UsageError


def run(options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    wheels = [Path(name) for name in options.wheels] or _built(options)
    files: dict[str, bytes] = {}
    makers: dict[str, Path] = {}
    for wheel in wheels:
        made = hub_files(wheel)
        for variant in sorted({path.split("/")[1] for path in made}):
            if variant in makers:
                raise UsageError(
                    f"{wheel.name} and {makers[variant].name} are both for {variant}",
                    help="give one wheel for each platform; kbuild merge joins those of several architectures",
                )
            makers[variant] = wheel
        files |= made
    variants = [folder / "build" / variant for variant in makers]
    if not options.dry_run:
        for variant in variants:
            if (
                variant / METADATA
            ).is_file():  # Of an earlier export, whose other files would not fit its digests.
                shutil.rmtree(variant)
        write_files({folder / path: data for path, data in files.items()})
    if options.json:
        print(
            json.dumps({"variants": [str(variant) for variant in variants], "files": sorted(files)}, indent=1)
        )
    elif not options.quiet:
        print("".join(f"{variant}\n" for variant in variants), end="")
    return 0


def _built(options: argparse.Namespace) -> list[Path]:
    """The wheel of the project, which is built where it is not there; none where nothing is to be done."""
    result = builder.build(request_of(options), progress_of(options))
    if result.failures:
        raise ErrorGroup(results.grouped(result.failures))
    if result.wheel is None:
        return []
    if not options.quiet:
        print(f"wheel: {result.wheel}", file=sys.stderr)
    return [result.wheel]
