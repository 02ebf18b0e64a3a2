"""`kbuild stand-in`: the fake driver, a libcuda.so.1 that runs the project's kernels on the CPU, for its wheel's
tests."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kbuild.aot.fake_driver import fake_driver_library


def run(options: argparse.Namespace) -> int:
    folder = Path(options.output) if options.output else None
    path = fake_driver_library(
        Path(options.directory), options.archs or ["sm_90"], options.environment, folder
    )
    print(json.dumps({"path": str(path)}) if options.json else path)
    return 0
