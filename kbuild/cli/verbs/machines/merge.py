"""`kbuild merge`: wheels of some architectures and parts of builds become the wheel of all that they have."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbuild.aot.artifact.platforms import parse_platform
from kbuild.aot.build.assemble import PART
from kbuild.aot.build.cache import Cache, usable
from kbuild.aot.environment import cache_directory
from kbuild.aot.shards.merge import merge
from kbuild.cli.verbs.show import size_of


def run(options: argparse.Namespace) -> int:
    parts = [Path(name) for name in options.parts]
    asked = parse_platform(options.platform).text if options.platform else ""
    wheel = merge(parts, Path(options.output or "dist"), options.environment, asked, Cache(_cache(options)))
    size = wheel.stat().st_size
    print(json.dumps({"wheel": str(wheel), "wheel_bytes": size}, indent=1) if options.json else wheel)
    if not options.quiet:
        what = "parts" if any(part.suffix == PART for part in parts) else "wheels"
        print(f"joined {len(parts)} {what}, {size_of(size)}", file=sys.stderr)
    return 0


def _cache(options: argparse.Namespace) -> Path | None:
    """The cache of builds, where it may be used."""
    directory = None if options.no_cache else cache_directory(options.environment)
    return None if directory is None or usable(directory) else directory
