"""The grammar of what spreads a build over machines: `--shard`, the verbs `merge` and `ci`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

AddVerb = Callable[..., argparse.ArgumentParser]
"""`_Verbs.add` of `parser.py`."""


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


def _shard(text: str) -> Any:
    from kbuild.aot.build.shards import (
        Shard,  # Only for those who ask for one: it loads the manifest's model.
    )

    return Shard.parse(text)
