"""The grammar of what spreads a build over machines: `--shard`, the verbs `merge` and `ci`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

AddVerb = Callable[..., argparse.ArgumentParser]
"""`_Verbs.add` of `parser.py`."""
FORMS = ("github", "gitlab", "json")
"""What jobs are printed as."""
LIMIT = "100MB"
"""The most that a wheel may have unless told otherwise: what PyPI takes."""


def add_shard(verb: argparse.ArgumentParser, text: str) -> None:
    """The option `--shard`, with `text` for what it has the verb do."""
    verb.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help=f"{text}; or a range of digests, A..B, as kbuild ci prints them",
    )


def add_merge(add: AddVerb) -> None:
    """The verb `merge`."""
    merging = add(
        "merge",
        "Join parts of one build, and wheels for different architectures, to the wheel of all of them.",
        "-q --json -o --no-cache",
    )
    help = "made by kbuild build --shard, or by kbuild wheel --arch"
    merging.add_argument("parts", nargs="+", metavar="PART", help=help)
    help = "the platform of the wheel, where parts alone are joined"
    merging.add_argument("--platform", default="", metavar="TAG", help=help)


def add_ci(add: AddVerb) -> None:
    """The verb `ci`."""
    listing = add(
        "ci",
        "Print the jobs that build the project on several machines, which cost the same.",
        "-C -q --arch",
        quiet="do not say on standard error what the jobs cost",
    )
    listing.add_argument("form", choices=FORMS, help="a workflow, a pipeline, or the matrix of a GitHub job")
    listing.add_argument(
        "--shards", type=_count, default=0, metavar="N", help="jobs, of each of --by (default 8, or 1)"
    )
    help = "jobs for each architecture, each kernel, or each of both: arch, kernel, or arch,kernel"
    listing.add_argument("--by", default="", metavar="AXES", help=help)
    help = f"the most that the wheel may have (default {LIMIT})"
    listing.add_argument("--max", default=LIMIT, metavar="SIZE", help=help)


def _count(text: str) -> int:
    # Only for those who ask for shards: it loads the model of manifests.
    from kbuild.aot.shards.shard import MOST

    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {MOST:,}, found {text!r}")
    return int(text)


def _shard(text: str) -> Any:
    from kbuild.aot.shards.shard import Shard  # As above.

    return Shard.parse(text)
