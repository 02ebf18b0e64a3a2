"""`kbuild doctor`: the tools that a build would use, and what is missing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbuild import __version__
from kbuild.aot import toolchain
from kbuild.aot.cache import usable
from kbuild.aot.environment import cache_directory
from kbuild.errors import KbuildError


def run(options: argparse.Namespace) -> int:
    rows: list[tuple[str, str, bool]] = [
        ("kbuild", f"{__version__} in {Path(__file__).parents[2]}", True),
        ("python", f"{sys.version.split()[0]} in {sys.executable}", sys.version_info >= (3, 10)),
    ]
    for name, find in (("ptxas", toolchain.find_ptxas), ("ninja", toolchain.find_ninja), ("cc", toolchain.find_cc)):
        try:
            tool = find(options.environment)
            version = toolchain.version(tool)
            rows.append((name, f"{version}; {tool.path} ({tool.origin})", not version.startswith("(")))
        except KbuildError as error:
            rows.append((name, f"{error.message}; {error.hint}", False))
    try:
        rows.append(("llvmlite", toolchain.find_llvm().path, True))
    except KbuildError as error:
        rows.append(("llvmlite", f"{error.message}; {error.hint}", False))
    cache = cache_directory(options.environment)
    why = usable(cache) if cache else "switched off"
    rows.append(("cache", why or str(cache), not why or cache is None))
    if options.json:
        print(json.dumps([{"name": name, "found": text, "good": good} for name, text, good in rows], indent=1))
    else:
        for name, text, good in rows:
            print(f"{'ok     ' if good else 'missing'}  {name:9} {text}")
    return 0 if all(good for _, _, good in rows) else 1
