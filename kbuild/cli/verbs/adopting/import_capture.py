"""`kbuild import`: a manifest for what captures have asked for."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbuild.aot.capture.adopt.project import Adopted, Request, adopt
from kbuild.aot.capture.records import read_captures
from kbuild.errors import UsageError, shown_path
from kbuild.targets import ARCHS


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    manifest = Path(options.output) if options.output else project / "kernels.toml"
    shown = shown_path(str(manifest))
    if manifest.is_dir():
        raise UsageError(f"{shown} is a directory", help=f"-o {shown}/kernels.toml writes a file in it")
    if manifest.exists() and not (options.append or options.dry_run):
        help = "--append adds the kernels that it does not have, --output FILE writes another file"
        raise UsageError(f"{shown} is there already", help=help)
    if options.append and not manifest.exists():
        raise UsageError(f"no file {shown} to append to", help="without --append it is written anew")
    for arch in options.archs:
        if arch.removesuffix("+ptx") not in ARCHS:
            raise UsageError(f"unknown architecture {arch}", help=f"known: {', '.join(ARCHS)}")
    capture = read_captures(map(Path, options.captures))
    request = Request(
        manifest, options.library, options.archs, options.append, options.embed, options.dry_run
    )
    _report(adopt(capture, request), shown, options)
    return 0


def _report(found: Adopted, shown: str, options: argparse.Namespace) -> None:
    """What became of each kernel, and what its author should know."""
    rows = {name: len(table.rows) for name, table in found.kernels.items()}
    if options.json:
        kernels = [
            {
                "name": name,
                "source": found.sources[name].source,
                "function": found.sources[name].function,
                "digest": table.calls.kernel.digest,
                "variants": len(table.rows),
                "launches": table.calls.count,
                "notes": table.notes,
            }
            for name, table in found.kernels.items()
        ]
        files = [shown_path(str(path)) for path in found.files]
        print(
            json.dumps(
                {"manifest": shown, "kernels": kernels, "left_out": found.left_out, "files": files}, indent=1
            )
        )
    if options.quiet:
        return
    for note in found.notes if not options.json else ():
        print(f"note: {note}", file=sys.stderr)
    for text in found.left_out:
        print(f"left out: {text}", file=sys.stderr)
    verb = "would write" if options.dry_run else "wrote"
    count = f"{len(rows)} kernel{'s' * (len(rows) != 1)} with {sum(rows.values()):,} variants for each architecture"
    print(f"{verb} {shown}: {count}" if rows else f"nothing to add to {shown}", file=sys.stderr)
