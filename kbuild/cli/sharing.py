"""The grammar of what is shared with other machines: options of builds, and those of `kbuild cache`."""

from __future__ import annotations

import argparse

from kbuild.cli.arguments import positive

_ACTIONS = {
    "stats": "what they hold",
    "gc": "remove the entries used longest ago, until the rest fits",
    "push": "send what is here and not there",
    "pull": "fetch what the project's variants need and is not here",
    "verify": "read everything, and remove what is damaged here",
}


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


def add_cache(caching: argparse.ArgumentParser) -> None:
    """What is done with caches."""
    add = caching.add_argument
    text = "; ".join(f"{name}: {what}" for name, what in _ACTIONS.items())
    add("action", choices=tuple(_ACTIONS), metavar="ACTION", help=text)
    add("kernels", nargs="*", metavar="KERNEL", help="of these kernels alone")
    add("--all", action="store_true", help="push and verify all entries, not those of the project alone")
    add("--max-size", default="", metavar="SIZE", help="for gc: 500M, 4G (default: KBUILD_CACHE_SIZE)")
    _add_shared(caching)


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
