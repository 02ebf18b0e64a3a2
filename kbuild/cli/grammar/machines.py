"""The grammar of builds that several machines share: the verbs `merge`, `ci` and `cache`, and options of builds."""

from __future__ import annotations

import argparse

from kbuild.cli.grammar.arguments import add_options, positive
from kbuild.cli.grammar.verbs import Verbs

FORMS = ("github", "gitlab", "json")
"""What jobs are printed as."""
LIMIT = "100MB"
"""The most that a wheel may have unless told otherwise: what PyPI takes."""
_ACTIONS = {
    "stats": "what they hold",
    "gc": "remove the entries used longest ago, until the rest fits",
    "push": "send what is here and not there",
    "pull": "fetch what the project's variants need and is not here",
    "verify": "read everything, and remove what is damaged here",
}


def add_merge(verbs: Verbs) -> None:
    """The verb `merge`."""
    merging = verbs.add(
        "merge",
        "Join parts of one build, and wheels for different architectures, to the wheel of all of them.",
        "-q --json -o --no-cache",
        module="machines.merge",
    )
    help = "made by kbuild build --shard, or by kbuild wheel --arch"
    merging.add_argument("parts", nargs="+", metavar="PART", help=help)
    help = "the platform of the wheel, where parts alone are joined"
    merging.add_argument("--platform", default="", metavar="TAG", help=help)


def add_ci(verbs: Verbs) -> None:
    """The verb `ci`."""
    listing = verbs.add(
        "ci",
        "Print the jobs that build the project on several machines, which cost the same.",
        "-C -q --arch",
        module="machines.ci",
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


def add_remote(verb: argparse.ArgumentParser) -> None:
    """What a build shares with other machines."""
    add = verb.add_argument
    _add_shared(verb)
    add(
        "--remote",
        default="",
        metavar="URL",
        help="have steps executed by this service as well: grpc://host:port/instance (default: KBUILD_REMOTE_URL)",
    )
    add(
        "--remote-jobs",
        type=positive,
        default=0,
        metavar="N",
        help="steps that it executes at a time (default 16)",
    )
    add("--remote-only", action="store_true", help="compile nothing here as long as it works")


def add_cache(verbs: Verbs) -> None:
    """The verb `cache`."""
    caching = verbs.add(
        "cache",
        "Say what the caches of cubins hold, clear them, and move entries between them.",
        "-C -q --json --dry-run --arch",
        module="machines.cache",
        directory="the project whose variants push, pull and verify are about",
    )
    add = caching.add_argument
    text = "; ".join(f"{name}: {what}" for name, what in _ACTIONS.items())
    add("action", choices=tuple(_ACTIONS), metavar="ACTION", help=text)
    add("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    add("--all", action="store_true", help="push and verify all entries, not those of the project alone")
    add("--max-size", default="", metavar="SIZE", help="for gc: 500M, 4G (default: KBUILD_CACHE_SIZE)")
    _add_shared(caching)
    add_options(caching, "debug", "lineinfo")


def _add_shared(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--cache",
        dest="cache_url",
        default="",
        metavar="URL",
        help="share cubins with other machines: file:, http:, https:, s3:, grpc: or grpcs: (default: KBUILD_CACHE_URL)",
    )
    verb.add_argument(
        "--cache-read-only", action="store_true", help="send nothing there (as KBUILD_CACHE_MODE=read-only)"
    )


def _count(text: str) -> int:
    # Only for those who ask for shards: it loads the model of manifests.
    from kbuild.aot.shards.shard import MOST

    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {MOST:,}, found {text!r}")
    return int(text)
