"""The grammar of the verbs that take over a library which launches kernels through Triton's JIT."""

from __future__ import annotations

import argparse

from kbuild.cli.grammar.verbs import Verbs
from kbuild.targets import ARCHS


def add_adopting(verbs: Verbs) -> None:
    """The verb `capture`."""
    capturing = verbs.add(
        "capture",
        "Run a command where Triton is, and record the specialisations that it asks Triton's JIT for.",
        "-q --json -o",
        module="adopting.capture",
        output="the file to write, or to extend (default: capture.jsonl)",
    )
    capturing.add_argument(
        "--device",
        choices=ARCHS,
        default="",
        help="without a GPU: kernels are launched on a device that does nothing, and none is compiled",
    )
    capturing.add_argument(
        "--merge", action="append", default=[], metavar="FILE", help="run nothing, and join captures"
    )
    help = "print the folder for PYTHONPATH, by which processes record into the folder KBUILD_CAPTURE"
    capturing.add_argument("--hook", action="store_true", help=help)
    capturing.add_argument("command", nargs=argparse.ZERO_OR_MORE, metavar="-- COMMAND", help="what to run")
