"""`kbuild run`: one kernel on the emulator, with arguments from the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kbuild.aot.environment import INTERPRET, flag
from kbuild.aot.toolchain import ptxas_of_code
from kbuild.aot.verify.one import interpret_one, run_one
from kbuild.cli.verbs.compile import constexprs_of, pairs, signature_of
from kbuild.cli.verbs.show import compile_options
from kbuild.compiler import driver
from kbuild.errors import UsageError


def run(options: argparse.Namespace) -> int:
    if len(options.archs) > 1:
        raise UsageError("--arch: one architecture at a time")
    parts = options.grid.split(",")
    if len(parts) > 3 or not all(
        part.isascii() and part.isdigit() and 0 < int(part) < 2**31 for part in parts
    ):
        raise UsageError(
            f"--grid {options.grid}: expected one to three numbers from 1 on",
            help="write, for example, --grid 4,2",
        )
    if options.races and options.schedule == "lockstep":
        raise UsageError(
            "--races: warps that run in lockstep have none", help="give another order: --schedule reverse"
        )
    texts = dict(item for text in options.arg for item in pairs(text, "--arg"))
    artifact = driver.compile(
        str(Path(options.directory, options.source)),
        signature=signature_of(options),
        constexprs=constexprs_of(options),
        target=(options.archs or ["sm_90"])[0],
        options=compile_options(options),
        lineinfo=True,
        stop="ptx",
        ptxas=ptxas_of_code(options.environment),
    )
    grid = [int(part) for part in parts]
    if flag(options.environment, INTERPRET):
        outputs, findings = interpret_one(artifact, texts, grid)
    else:
        outputs, findings = run_one(artifact, texts, grid, options.schedule, options.timing, options.races)
    if options.json:
        print(json.dumps({"outputs": outputs, "findings": findings}, indent=1))
    else:
        print("\n".join(outputs + findings))
    return 1 if findings else 0
