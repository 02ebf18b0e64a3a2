"""`kbuild clean`: removes the build directory and the wheel made from it."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from kbuild.aot.build.plan import STATE, WHEEL
from kbuild.aot.build.project import BUILD
from kbuild.aot.identity import unseal


def run(options: argparse.Namespace) -> int:
    project = Path(options.directory)
    directory = project / BUILD
    if not (directory / STATE).is_dir():
        if not options.quiet:
            print(f"no build in {project}", file=sys.stderr)
        return 0
    paths = [directory]
    record = directory / WHEEL
    if record.is_file() and (made := unseal(record.read_bytes())):
        paths.append(Path(options.output or project / "dist", Path(made["wheel"]).name))
    for path in paths:
        if not path.exists():
            continue
        if not options.quiet:
            print(f"{'would remove' if options.dry_run else 'removed'} {path}", file=sys.stderr)
        if options.dry_run:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return 0
