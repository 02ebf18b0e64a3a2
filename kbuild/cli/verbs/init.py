"""`kbuild init`: a manifest for kernels in Triton source."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kbuild.aot.files import write_atomic
from kbuild.aot.init.project import Initialized, initialize
from kbuild.errors import UsageError, shown_path


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
    found = initialize(_requests(project, options.sources), manifest, options.append)
    if options.dry_run and not options.json:
        print(found.text, end="")
    elif found.kernels and not options.dry_run:
        before = manifest.read_bytes() if options.append else b""
        write_atomic(manifest, before + found.text.encode())
    _report(found, shown, options)
    return 0


def _requests(project: Path, sources: list[str]) -> dict[Path, list[str]]:
    """The files, each with the functions that are asked for; none for all of them."""
    found: dict[Path, list[str]] = {}
    whole: set[Path] = set()
    for text in sources:
        name, colon, functions = text.rpartition(":")
        if not colon or functions.endswith(".py"):
            name, functions = text, ""
        path = project / name
        names = [function.strip() for function in functions.split(",") if function.strip()]
        if colon and not names and name != text:
            raise UsageError(
                f"{text}: no function is named", help="write FILE.py:function, or FILE.py for all"
            )
        found.setdefault(path, []).extend(names)
        whole |= set() if names else {path}
    return {path: [] if path in whole else names for path, names in found.items()}


def _report(found: Initialized, shown: str, options: argparse.Namespace) -> None:
    """One line for each guess, and what became of the file."""
    if options.json:
        guesses = [
            {"line": line, "subject": guess.subject, "text": guess.text} for line, guess in found.guesses
        ]
        result = {"manifest": shown, "kernels": found.kernels, "guesses": guesses, "left_out": found.left_out}
        print(json.dumps(result | ({"text": found.text} if options.dry_run else {}), indent=1))
    if options.quiet:
        return
    for line, guess in found.guesses if not options.json else ():
        print(f"{shown}:{line}: {guess.subject}: {guess.text}", file=sys.stderr)
    for text in found.left_out:
        print(text, file=sys.stderr)
    count = f"{len(found.kernels)} kernel{'s' * (len(found.kernels) != 1)}"
    verb = "would write" if options.dry_run else "wrote"
    said = f"{verb} {shown}: {count}" if found.kernels else f"nothing to add to {shown}"
    print(said, file=sys.stderr)
