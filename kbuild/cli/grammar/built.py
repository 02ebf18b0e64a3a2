"""The grammar of the verbs about what builds have made."""

from __future__ import annotations

import argparse

from kbuild.aot.artifact.sizes import parse_size
from kbuild.cli.grammar.arguments import add_options
from kbuild.cli.grammar.verbs import Verbs


def add_built(verbs: Verbs) -> None:
    """The verbs about what builds have made."""
    why = verbs.add(
        "why",
        "Say which variants a build would compile, and which of their inputs changed.",
        "-C -v -q --json --arch --no-cache",
        module="built.why",
        verbose="name every variant",
        no_cache="do not look into the cache",
    )
    why.add_argument(
        "variants",
        nargs="*",
        metavar="VARIANT",
        help="a name, its beginning, a part of it or a pattern with * (default: all that would be compiled)",
    )
    add_options(why, "debug", "lineinfo")
    size = verbs.add(
        "size",
        "Say where the bytes of a wheel are: by kernel, type and architecture.",
        "-C -v -q --json",
        module="built.size",
        verbose="list every variant",
        quiet="print nothing, but fail as --max says",
    )
    size.add_argument("wheel", nargs="?", metavar="WHEEL", help="default: that of the last build")
    size.add_argument("--diff", metavar="OLD.whl", help="also what changed since this wheel")
    size.add_argument(
        "--max", type=_size, metavar="SIZE", help="fail if the wheel is larger: 50MB, 47.5MiB, or bytes"
    )
    report = verbs.add(
        "report",
        "Write the state of the library as one HTML page: variants, builds, code, and what each pass does.",
        "-C -j -q --json --dry-run --arch -o --no-cache --color",
        module="built.report",
        jobs="processes that compile (default: MAX_JOBS, or as many as processors)",
        dry_run="name the variants that would be compiled for it",
        output="the file to write (default: report.html)",
        no_cache="neither read nor write the cache",
    )
    report.add_argument(
        "variants",
        nargs="*",
        metavar="VARIANT",
        help="show the passes and code of these, as for `why` (default: as many as fit)",
    )
    report.add_argument(
        "--max",
        type=_size,
        metavar="SIZE",
        help="room for passes and code in the page (default 16MB; 0: none)",
    )
    add_options(report, "debug")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
