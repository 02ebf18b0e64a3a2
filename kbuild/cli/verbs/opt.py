"""`kbuild opt`: passes over the text of IR."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kbuild.cli.verbs.show import write
from kbuild.compiler.driver import after_passes
from kbuild.compiler.views.analyses import annotated
from kbuild.errors import UsageError


def run(options: argparse.Namespace) -> int:
    if len(options.archs) > 1:
        raise UsageError("opt takes one --arch")
    path = Path(options.directory, options.file)
    try:
        text = sys.stdin.read() if options.file == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    module = after_passes(text, options.passes, *options.archs, file=str(path))
    shown = [name for text in options.print for name in text.split(",") if name.strip()]
    printed = annotated(module, shown, str(path), *options.archs)
    if options.output:
        written = Path(options.output, "out.ttgir" if options.file == "-" else path.name)
        write(written, printed.encode())
    else:
        print(printed, end="" if printed.endswith("\n") else "\n")
    return 0
