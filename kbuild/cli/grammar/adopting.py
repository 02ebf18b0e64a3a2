"""The grammar of the verbs that take over a library which launches kernels through Triton's JIT."""

from __future__ import annotations

import argparse

from kbuild.cli.grammar.verbs import Verbs
from kbuild.targets import ARCHS


def add_adopting(verbs: Verbs) -> None:
    """The verbs `capture` and `import`."""
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
    importing = verbs.add(
        "import",
        "Write a kernels.toml that builds what captures have asked for.",
        "-C -q --json --dry-run --arch -o",
        module="adopting.import_capture",
        output="the file to write (default: kernels.toml)",
        archs="an architecture of the package (repeatable; default: those captured, or sm_80 and sm_90)",
        dry_run="say what would be written, and write nothing",
    )
    importing.add_argument(
        "captures", nargs="+", metavar="CAPTURE", help="files of kbuild capture, or folders of them"
    )
    importing.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="MODULE",
        help="only kernels of this package or module (repeatable; default: all)",
    )
    importing.add_argument(
        "--append", action="store_true", help="add the kernels that the manifest does not have yet"
    )
    importing.add_argument(
        "--embed",
        action="store_true",
        help="copy kernels that no file has as they ran, such as those made by functions, into the project",
    )
