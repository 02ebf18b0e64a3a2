"""`kbuild merge`: wheels of some architectures each become the wheel of all of them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbuild.aot.build.merge import merge
from kbuild.cli.verbs.show import size_of


def run(options: argparse.Namespace) -> int:
    wheels = [Path(name) for name in options.wheels]
    wheel = merge(wheels, Path(options.output or "dist"), options.environment)
    size = wheel.stat().st_size
    print(json.dumps({"wheel": str(wheel), "wheel_bytes": size}, indent=1) if options.json else wheel)
    if not options.quiet:
        print(f"joined {len(wheels)} wheels, {size_of(size)}", file=sys.stderr)
    return 0
