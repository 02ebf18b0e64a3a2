"""`kbuild capture`: what a command asks Triton's JIT for."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbuild.aot.capture.command import captured, hook_folder
from kbuild.aot.capture.records import Capture, read_captures, write_capture
from kbuild.errors import UsageError, shown_path

_EXAMPLE = "kbuild capture -- COMMAND, as kbuild capture -- pytest -q tests"


def run(options: argparse.Namespace) -> int:
    output = Path(options.output or "capture.jsonl")
    if options.hook:
        print(hook_folder())
        return 0
    if output.is_dir():
        raise UsageError(f"{shown_path(str(output))} is a directory", help="-o names the file to write")
    if options.merge:
        if options.command:
            raise UsageError(
                "--merge runs no command", help="capture first, and join the captures afterwards"
            )
        found, code = read_captures(map(Path, options.merge)), 0
        write_capture(found, output)
    elif options.command:
        code, found = captured(options.command, output, options.environment, options.device)
    else:
        raise UsageError("no command to run", help=_EXAMPLE)
    _report(found, output, code, options)
    return code


def _report(found: Capture, output: Path, code: int, options: argparse.Namespace) -> None:
    """How much was seen, and what could not be recorded."""
    shown = shown_path(str(output))
    facts = {
        "kernels": len(found.kernels),
        "variants": len(found.variants),
        "launches": found.launches,
        "processes": len(found.processes),
    }
    if options.json:
        lost = {"failed": found.failed, "dropped": found.dropped}
        print(
            json.dumps(
                {"capture": shown if found.kernels else None, "exit_code": code, **facts, **lost}, indent=1
            )
        )
    if options.quiet:
        return
    for name, error in found.failed.items():
        print(f"warning: {name}: a launch could not be recorded: {error}", file=sys.stderr)
    if found.dropped:
        print(f"warning: {found.dropped:,} launches of further variants were not recorded", file=sys.stderr)
    if found.kernels:
        counts = ", ".join(f"{count:,} {name if count != 1 else _one(name)}" for name, count in facts.items())
        print(f"{shown}: {counts}", file=sys.stderr)
    else:
        print("warning: no kernel was launched through Triton's JIT; nothing is written", file=sys.stderr)
    if code:
        print(f"note: the command ended with exit code {code}", file=sys.stderr)


def _one(name: str) -> str:
    """The singular of a word."""
    return name.removesuffix("es") if name.endswith(("ches", "sses")) else name.removesuffix("s")
